package traffic

import (
	"testing"
	"time"
)

func TestMostInWindow(t *testing.T) {
	const win = 100 * time.Millisecond
	call := func(from, to time.Duration) Span { return Span{from * time.Millisecond, to * time.Millisecond} }
	for _, tt := range []struct {
		name  string
		spans []Span
		want  int
	}{
		{"none", nil, 0},
		{"one", []Span{call(0, 5)}, 1},
		{"one that may have been any time", []Span{call(0, 500)}, 0},
		{"two for certain", []Span{call(0, 5), call(90, 99)}, 2},
		{"two perhaps", []Span{call(0, 5), call(90, 100)}, 1},
		{"not in order", []Span{call(90, 95), call(0, 5), call(50, 55), call(120, 125)}, 3},
		{"the second began before the first ended", []Span{call(0, 50), call(1, 40), call(2, 99), call(3, 101)}, 3},
	} {
		if got := MostInWindow(tt.spans, win); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
