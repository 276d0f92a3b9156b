package descriptors

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// path reads "route=search/api_key" as a rule's path.
func path(nodes ...string) []Node {
	var p []Node
	for _, n := range nodes {
		for i := range len(n) {
			if n[i] == '=' {
				p = append(p, Node{Key: n[:i], Value: n[i+1:]})
				n = ""
				break
			}
		}
		if n != "" {
			p = append(p, Node{Key: n, AnyValue: true})
		}
	}
	return p
}

func TestMatch(t *testing.T) {
	var tree Tree[string]
	for _, r := range []struct {
		rule string
		path []Node
	}{
		{"key alone", path("api_key")},
		{"one value", path("api_key=k1")},
		{"nested", path("route=search", "api_key")},
		{"nested value", path("route=search", "api_key=k1")},
		{"below any route", path("route", "user")},
		{"dead end", path("a=1", "b=2")},
		{"beside the dead end", path("a", "c")},
	} {
		if err := tree.Add(r.path, r.rule); err != nil {
			t.Fatalf("Add(%v): %v", r.path, err)
		}
	}
	tests := []struct {
		name string
		d    Descriptor
		want string // empty: none
	}{
		{"key alone", Descriptor{{"api_key", "k2"}}, "key alone"},
		{"an empty value is a value", Descriptor{{"api_key", ""}}, "key alone"},
		{"key and value before key alone", Descriptor{{"api_key", "k1"}}, "one value"},
		{"keys are case-sensitive", Descriptor{{"API_KEY", "k1"}}, ""},
		{"values are case-sensitive", Descriptor{{"api_key", "K1"}}, "key alone"},
		{"nested, any value", Descriptor{{"route", "search"}, {"api_key", "k9"}}, "nested"},
		{"nested, one value", Descriptor{{"route", "search"}, {"api_key", "k1"}}, "nested value"},
		{"no rule ends on the first level", Descriptor{{"route", "search"}}, ""},
		{"longer than the rule", Descriptor{{"api_key", "k2"}, {"user", "u"}}, ""},
		{"the order of entries counts", Descriptor{{"api_key", "k1"}, {"route", "search"}}, ""},
		{"another value goes below the key alone", Descriptor{{"route", "login"}, {"user", "u"}}, "below any route"},
		{"a level taken by value is not left again", Descriptor{{"route", "search"}, {"user", "u"}}, ""},
		{"nor where the value has no such child", Descriptor{{"a", "1"}, {"c", "x"}}, ""},
		{"no entries", nil, ""},
		{"unknown key", Descriptor{{"nobody", "1"}}, ""},
		{"bytes that are not UTF-8", Descriptor{{"api_key", "k\xff"}}, "key alone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tree.Match(tt.d)
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("Match(%q) = %q, %v, want %q", tt.d, got, ok, tt.want)
			}
		})
	}
}

func TestAddRefuses(t *testing.T) {
	var tree Tree[int]
	if err := tree.Add(path("a=1", "b"), 1); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string][]Node{
		"empty path":           nil,
		"empty key":            {{Value: "x"}},
		"second rule, same":    path("a=1", "b"),
		"empty key further in": {{Key: "a", AnyValue: true}, {AnyValue: true}},
	} {
		if err := tree.Add(p, 2); err == nil {
			t.Errorf("%s: Add(%v) = nil, want an error", name, p)
		}
	}
	if err := tree.Add(path("a=1"), 3); err != nil {
		t.Errorf("a rule above another: %v", err)
	}
}

// TestMatchEqualsNaive compares with a matcher that walks a plain list.
func TestMatchEqualsNaive(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		var tree Tree[int]
		var rules [][]Node
		for range 1 + rnd.IntN(12) {
			var p []Node
			for range 1 + rnd.IntN(3) {
				n := Node{Key: string(rune('a' + rnd.IntN(3)))}
				if rnd.IntN(2) == 0 {
					n.AnyValue = true
				} else {
					n.Value = string(rune('0' + rnd.IntN(3)))
				}
				p = append(p, n)
			}
			if tree.Add(p, len(rules)) == nil {
				rules = append(rules, p)
			}
		}
		for range 50 {
			var d Descriptor
			for range rnd.IntN(4) {
				d = append(d, Entry{string(rune('a' + rnd.IntN(3))), string(rune('0' + rnd.IntN(3)))})
			}
			got, ok := tree.Match(d)
			if !ok {
				got = -1
			}
			if want := naiveMatch(rules, d); got != want {
				t.Fatalf("seed %d round %d: Match(%v) over %v = %d, want %d", seed, round, d, rules, got, want)
			}
		}
	}
}

// naiveMatch narrows the rules down level by level.
func naiveMatch(rules [][]Node, d Descriptor) int {
	alive := make(map[int]bool)
	for i := range rules {
		alive[i] = true
	}
	for level, e := range d {
		exact, anyValue := map[int]bool{}, map[int]bool{}
		for i := range alive {
			if level >= len(rules[i]) || rules[i][level].Key != e.Key {
				continue
			}
			switch n := rules[i][level]; {
			case n.AnyValue:
				anyValue[i] = true
			case n.Value == e.Value:
				exact[i] = true
			}
		}
		alive = exact
		if len(exact) == 0 {
			alive = anyValue
		}
	}
	for i := range alive {
		if len(d) > 0 && len(rules[i]) == len(d) {
			return i
		}
	}
	return -1
}

func TestMatchDoesNotAllocate(t *testing.T) {
	var tree Tree[int]
	if err := tree.Add(path("a=1", "b=2", "c", "d"), 1); err != nil {
		t.Fatal(err)
	}
	d := Descriptor{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}}
	if got := testing.AllocsPerRun(100, func() { tree.Match(d) }); got != 0 {
		t.Errorf("Match allocates %v times, want 0", got)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, siblings := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("siblings=%d", siblings), func(b *testing.B) {
			var tree Tree[int]
			for i := range siblings {
				if err := tree.Add(path(fmt.Sprintf("route=r%d", i), "api_key"), i); err != nil {
					b.Fatal(err)
				}
			}
			d := Descriptor{{"route", "r7"}, {"api_key", "k"}}
			b.ReportAllocs()
			for b.Loop() {
				tree.Match(d)
			}
		})
	}
}
