package figures

import "testing"

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 3, 2, 1}, 2.5},
	} {
		if got := Median(tt.in); got != tt.want {
			t.Errorf("Median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestEscape(t *testing.T) {
	if got, want := escape(`a<b>&"c'`), "a&lt;b&gt;&amp;&#34;c&#39;"; got != want {
		t.Errorf("escape = %q, want %q", got, want)
	}
}
