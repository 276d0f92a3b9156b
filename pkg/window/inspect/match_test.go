package inspect_test

import (
	"testing"

	"github.com/slidegate/slidegate/pkg/window/inspect"
)

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		m    inspect.Match
		key  string
		want bool
	}{
		{inspect.Match{}, "k", true},
		{inspect.Match{Tag: "a"}, "{a}:r", true},
		{inspect.Match{Tag: "a"}, "{ab}:r", false},
		{inspect.Match{Tag: "a"}, "x{a}:r", false},
		{inspect.Match{Tag: "a"}, "{a", false},
		{inspect.Match{Contains: "r"}, "{a}:r", true},
		{inspect.Match{Tag: "a", Contains: "x"}, "{a}:r", false},
	} {
		if got := tt.m.Matches(tt.key); got != tt.want {
			t.Errorf("%+v matches %q: got %t", tt.m, tt.key, got)
		}
	}
}
