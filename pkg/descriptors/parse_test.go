package descriptors

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Descriptor
		err  string
	}{
		{"route=search,api_key=k1", Descriptor{{"route", "search"}, {"api_key", "k1"}}, ""},
		{"a=", Descriptor{{"a", ""}}, ""},
		{"a=b=c", Descriptor{{"a", "b=c"}}, ""},
		{`a\=b=c\,d\\,e=f\g`, Descriptor{{"a=b", `c,d\`}, {"e", `f\g`}}, ""},
		{"", nil, `entry 1 has no =`},
		{"a", nil, `entry 1 has no =`},
		{"a=b,", nil, `entry 2 has no =`},
		{"=b", nil, `entry 1 has no key`},
	} {
		got, err := Parse(tt.text)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Parse(%q) = %q, %v, want %q, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// FuzzParse writes a parsed descriptor as text and parses it again.
func FuzzParse(f *testing.F) {
	f.Add("route=search,api_key=k1")
	f.Add(`a\=b=c\,d\\,e=f\g`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		var parts []string
		for _, e := range d {
			parts = append(parts, Escape(e.Key)+"="+Escape(e.Value))
		}
		again, err := Parse(strings.Join(parts, ","))
		if err != nil || !slices.Equal(d, again) {
			t.Errorf("Parse(%q) = %q, written and read again %q, %v", text, d, again, err)
		}
	})
}
