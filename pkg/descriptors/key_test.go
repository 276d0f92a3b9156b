package descriptors

import (
	"slices"
	"strings"
	"testing"
)

// nameOf returns the name of a log. It fails if it matters whether a text has a prefix, or whether
// the tag is a part of the identity in memory.
func nameOf(t *testing.T, tag string, rule RuleID, identity ...string) string {
	t.Helper()
	whole, cut := make([]Text, len(identity)), make([]Text, len(identity))
	inside := &Text{"", tag}
	for i, part := range identity {
		whole[i], cut[i] = Text{"", part}, Text{part[:len(part)/3], part[len(part)/3:]}
		if part == tag {
			inside = &cut[i]
		}
	}
	name := string(AppendKey(nil, &Text{tag, ""}, rule, whole...))
	if other := string(AppendKey([]byte("before"), inside, rule, cut...)); other != "before"+name {
		t.Errorf("the names %q and %q of one log", name, other)
	}
	if none := string(AppendKey(nil, nil, rule, whole...)); tag == "" && none != name {
		t.Errorf("the names %q and %q of one log", name, none)
	}
	return name
}

func TestAppendKey(t *testing.T) {
	rule := NewRuleID("edge", path("route=search", "api_key"))
	tests := []struct {
		name     string
		tag      string
		identity []string
		want     string
	}{
		{"plain", "id.acme", []string{"id.acme"}, "{id.acme}:edge|route=search/api_key:id.acme"},
		{"without a tag the rule is the tag", "", nil, "{edge|route=search/api_key}:edge|route=search/api_key"},
		{"an empty part is a part", "", []string{""}, "{edge|route=search/api_key}:edge|route=search/api_key:"},
		{"several parts", "t", []string{"a", "b"}, "{t}:edge|route=search/api_key:a,b"},
		{"bytes with a meaning", "}{", []string{"a,b:c%~|"}, "{%7D%7B}:edge|route=search/api_key:a%2Cb%3Ac%25%7E%7C"},
		{"not UTF-8", "t", []string{"k\xff\x00"}, "{t}:edge|route=search/api_key:k%FF%00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := nameOf(t, tt.tag, rule, tt.identity...); got != tt.want {
				t.Errorf("AppendKey = %q, want %q", got, tt.want)
			}
			if got := RuleOfKey(tt.want); got != string(rule) {
				t.Errorf("RuleOfKey = %q, want %q", got, rule)
			}
		})
	}
}

// TestLongKeysAreDigested makes keys of many parts. All are different, none is longer than
// MaxKey, and each has the same hash tag as a short key.
func TestLongKeysAreDigested(t *testing.T) {
	parts := func(n, length int) []string { return slices.Repeat([]string{strings.Repeat("v", length)}, n) }
	// One value with many commas looks like many values.
	one, many := strings.Repeat("v,", 399)+"v", parts(400, 1)
	long := RuleID(strings.Repeat("r", 400))
	seen := make(map[string]string)
	for _, tt := range []struct {
		name, tag string
		rule      RuleID
		identity  []string
		inBraces  string
		digested  bool
	}{
		{"short", "t", "d|k", parts(2, 10), "t", false},
		{"as long as may be", "t", "d|k", append(parts(3, 128), strings.Repeat("v", MaxKey-len("{t}:d|k:")-3*129)), "t", false},
		{"a byte longer", "t", "d|k", append(parts(3, 128), strings.Repeat("v", MaxKey-len("{t}:d|k:")-3*129+1)), "t", true},
		{"a part more", "t", "d|k", append(parts(4, 128), ""), "t", true},
		{"many", "t", "d|k", many, "t", true},
		{"many in one", "t", "d|k", []string{one}, "t", false},
		{"another at the end", "t", "d|k", append(slices.Clone(many[1:]), "w"), "t", true},
		{"thousands", "t", "d|k", parts(4096, 120), "t", true},
		{"escaped", strings.Repeat("}", 128), "d|k", []string{strings.Repeat("}", 128)}, strings.Repeat("%7D", 128), true},
		{"a long rule", "t", long, parts(1, 128), "t", true},
		{"a long rule that is the tag", "", long, nil, "|" + string(appendDigest(nil, &Text{Value: string(long)})), false},
		{"a tag like it", string(long), long, nil, string(appendDigest(nil, &Text{Value: string(long)})), false},
		{"a rule of the longest tag", "", long[:maxTag], nil, string(long[:maxTag]), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := nameOf(t, tt.tag, tt.rule, tt.identity...)
			if len(key) > MaxKey || strings.Contains(key, "!") != tt.digested {
				t.Errorf("key %q of %d bytes, want at most %d, the rest digested: %v", key, len(key), MaxKey, tt.digested)
			}
			if want := "{" + tt.inBraces + "}:"; !strings.HasPrefix(key, want) {
				t.Errorf("key %q, want it to begin with %q", key, want)
			}
			if other, ok := seen[key]; ok {
				t.Errorf("it shares a key with %q", other)
			}
			seen[key] = tt.name
		})
	}
}

// TestKeysTakeNoMemory proves that only long keys allocate, and thousands of parts not more
// than a few.
func TestKeysTakeNoMemory(t *testing.T) {
	dst := make([]byte, 0, 2*MaxKey)
	short, long := []Text{{"id.", "acme"}, {"", "search"}}, slices.Repeat([]Text{{"", strings.Repeat("v", 100)}}, 4096)
	if n := testing.AllocsPerRun(100, func() { AppendKey(dst, &short[0], "edge|api_key/route", short...) }); n != 0 {
		t.Errorf("a short key takes %v allocations, want none", n)
	}
	if n := testing.AllocsPerRun(100, func() { AppendKey(dst, &short[0], "edge|api_key/route", long...) }); n > 4 {
		t.Errorf("a key of %d parts takes %v allocations, want a digest's", len(long), n)
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

// FuzzKey searches two inputs that share a key.
func FuzzKey(f *testing.F) {
	f.Add("t", "k", "v", "a", "b", "t", "k", "v", "a,b", "")
	f.Add("", "k", "", "", "", "d|k", "k", "", "", "")
	f.Add("t", "a", "b_c", "x", "y", "t", "a_b", "c", "x", "y")
	f.Add("~", "k", "%", "\x00", "\xff", "%7E", "k", "%25", "%00", "%FF")
	commas := strings.Repeat("x,", 300)
	f.Add("t", "k", commas, commas[:100], commas, "t", "k", commas, commas, commas[:100])
	long := strings.Repeat("x", maxPart+1)
	f.Add("t", "k", "v", long, "b", "t", "k", "v", string(appendDigest(nil, &Text{Value: long})), "b")
	f.Add("", strings.Repeat("k", 1000), "v", "a", "b", strings.Repeat("k", 1000), strings.Repeat("k", 1000), "v", "a", "b")
	f.Fuzz(func(t *testing.T, tag1, key1, value1, a1, b1, tag2, key2, value2, a2, b2 string) {
		one := nameOf(t, tag1, NewRuleID("d", []Node{{Key: key1, Value: value1}}), a1, b1)
		two := nameOf(t, tag2, NewRuleID("d", []Node{{Key: key2, Value: value2}}), a2, b2)
		same := slices.Equal([]string{tag1, key1, value1, a1, b1}, []string{tag2, key2, value2, a2, b2})
		if (one == two) != same {
			t.Errorf("%q %q %q %q %q\n%q %q %q %q %q\ngive %q and %q", tag1, key1, value1, a1, b1, tag2, key2, value2, a2, b2, one, two)
		}
		if len(one) > MaxKey {
			t.Errorf("the key %q has %d bytes", one, len(one))
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
