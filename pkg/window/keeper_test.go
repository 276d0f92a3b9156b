package window_test

import (
	"testing"

	"github.com/slidegate/slidegate/pkg/window"
)

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		m    window.Match
		key  string
		want bool
	}{
		{window.Match{}, "k", true},
		{window.Match{Tag: "a"}, "{a}:r", true},
		{window.Match{Tag: "a"}, "{ab}:r", false},
		{window.Match{Tag: "a"}, "x{a}:r", false},
		{window.Match{Tag: "a"}, "{a", false},
		{window.Match{Contains: "r"}, "{a}:r", true},
		{window.Match{Tag: "a", Contains: "x"}, "{a}:r", false},
	} {
		if got := tt.m.Matches(tt.key); got != tt.want {
			t.Errorf("%+v matches %q: got %t", tt.m, tt.key, got)
		}
	}
}
