package descriptors

import (
	"slices"
	"strings"
	"testing"
)

func TestAppendKey(t *testing.T) {
	rule := NewRuleID("edge", path("route=search", "api_key"))
	tests := []struct {
		name     string
		tag      string
		identity []string
		want     string
	}{
		{"plain", "id.acme", []string{"id.acme"}, "{id.acme}:edge|route=search/api_key:id.acme"},
		{"the rule is the tag where there is none", "", nil, "{edge|route=search/api_key}:edge|route=search/api_key"},
		{"an empty part is a part", "", []string{""}, "{edge|route=search/api_key}:edge|route=search/api_key:"},
		{"several parts", "t", []string{"a", "b"}, "{t}:edge|route=search/api_key:a,b"},
		{"bytes with a meaning", "}{", []string{"a,b:c%~|"}, "{%7D%7B}:edge|route=search/api_key:a%2Cb%3Ac%25%7E%7C"},
		{"not UTF-8", "t", []string{"k\xff\x00"}, "{t}:edge|route=search/api_key:k%FF%00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendKey(nil, tt.tag, rule, tt.identity...)); got != tt.want {
				t.Errorf("AppendKey = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLongPartsAreDigested(t *testing.T) {
	long := strings.Repeat("x", maxPart+1)
	got := string(AppendKey(nil, "t", "r", long))
	if len(got) > 100 || !strings.Contains(got, "~") {
		t.Errorf("AppendKey of a part of %d bytes = %q, want a digest", len(long), got)
	}
	other := string(AppendKey(nil, "t", "r", long+"x"))
	if got == other {
		t.Errorf("two long parts share the key %q", got)
	}
	digest := got[strings.IndexByte(got, '~'):]
	if literal := string(AppendKey(nil, "t", "r", digest)); literal == got {
		t.Errorf("the text of a digest shares the key %q with what it digests", got)
	}
}

func TestRuleIDsDiffer(t *testing.T) {
	paths := [][]Node{
		path("a"), path("a="), path("a=b"), path("a", "b"), path("a=b", "c"), path("a", "b=c"),
		{{Key: "a=b", AnyValue: true}},
		{{Key: "a/b", AnyValue: true}},
		{{Key: "a", Value: "b/c"}},
		path("a=b*"),
		{{Key: "a", Value: "b*"}},
		{{Key: "a*", Value: "b"}},
		{{Key: "a*", AnyValue: true}},
	}
	seen := map[RuleID][]Node{}
	for _, p := range paths {
		id := NewRuleID("d", p)
		if other, ok := seen[id]; ok {
			t.Errorf("%v and %v share the id %q", p, other, id)
		}
		seen[id] = p
	}
	if NewRuleID("a", path("b")) == NewRuleID("a|b", nil) {
		t.Error("a domain with a | shares an id with another's rule")
	}
}

// FuzzKey looks for two inputs that share a key.
func FuzzKey(f *testing.F) {
	f.Add("t", "k", "v", "a", "b", "t", "k", "v", "a,b", "")
	f.Add("", "k", "", "", "", "d|k", "k", "", "", "")
	f.Add("t", "a", "b_c", "x", "y", "t", "a_b", "c", "x", "y")
	f.Add("~", "k", "%", "\x00", "\xff", "%7E", "k", "%25", "%00", "%FF")
	f.Fuzz(func(t *testing.T, tag1, key1, value1, a1, b1, tag2, key2, value2, a2, b2 string) {
		one := string(AppendKey(nil, tag1, NewRuleID("d", []Node{{Key: key1, Value: value1}}), a1, b1))
		two := string(AppendKey(nil, tag2, NewRuleID("d", []Node{{Key: key2, Value: value2}}), a2, b2))
		same := slices.Equal([]string{tag1, key1, value1, a1, b1}, []string{tag2, key2, value2, a2, b2})
		if (one == two) != same {
			t.Errorf("%q %q %q %q %q\n%q %q %q %q %q\ngive %q and %q", tag1, key1, value1, a1, b1, tag2, key2, value2, a2, b2, one, two)
		}
		for _, c := range []byte(one) {
			if c <= ' ' || c > '~' {
				t.Errorf("the key %q holds the byte %#x", one, c)
			}
		}
		if open, closed := strings.Count(one, "{"), strings.Count(one, "}"); open != 1 || closed != 1 {
			t.Errorf("the key %q has %d { and %d }, want one hash tag", one, open, closed)
		}
	})
}
