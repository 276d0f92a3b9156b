package descriptors

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/random"
)

// path returns the path of nodes such as "route=search", "file=a*" and "api_key".
func path(nodes ...string) []Node {
	var p []Node
	for _, n := range nodes {
		key, value, found := strings.Cut(n, "=")
		p = append(p, Node{Key: key, Value: value, AnyValue: !found, Pattern: strings.Contains(value, Wildcard)})
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
		{"one file", path("file=img/a.png")},
		{"images", path("file=img/*")},
		{"pngs", path("file=*.png")},
		{"two stars", path("file=v*/x*/end")},
		{"any file", path("file")},
		{"all of it", path("all=*")},
		{"all alone", path("all")},
		{"below a pattern", path("file=doc/*", "user")},
	} {
		if err := tree.Add(r.path, r.rule); err != nil {
			t.Fatalf("Add(%v): %v", r.path, err)
		}
	}
	tests := []struct {
		name string
		d    Descriptor
		want string // empty means no rule
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
		{"unknown key", Descriptor{{"unknown", "1"}}, ""},
		{"bytes that are not UTF-8", Descriptor{{"api_key", "k\xff"}}, "key alone"},
		{"a value before a pattern", Descriptor{{"file", "img/a.png"}}, "one file"},
		{"the first pattern in order", Descriptor{{"file", "img/b.png"}}, "images"},
		{"the next one", Descriptor{{"file", "css/b.png"}}, "pngs"},
		{"a pattern before the key alone", Descriptor{{"file", "v1/x2/end"}}, "two stars"},
		{"stars may stand for nothing", Descriptor{{"file", "v/x/end"}}, "two stars"},
		{"what lies between must be there", Descriptor{{"file", "v/end"}}, "any file"},
		{"an end cannot be part of the beginning", Descriptor{{"file", "v/x/en"}}, "any file"},
		{"a star alone fits the empty value", Descriptor{{"all", ""}}, "all of it"},
		{"below a pattern", Descriptor{{"file", "doc/1"}, {"user", "u"}}, "below a pattern"},
		{"a level taken by pattern is not left again", Descriptor{{"file", "doc/1"}}, ""},
		{"a star in a request is a byte", Descriptor{{"file", "img/*"}}, "images"},
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
	if err := tree.Add(path("p=*x*"), 1); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string][]Node{
		"empty path":           nil,
		"empty key":            {{Value: "x"}},
		"second rule, same":    path("a=1", "b"),
		"empty key further in": {{Key: "a", AnyValue: true}, {AnyValue: true}},
		"pattern without star": {{Key: "a", Value: "x", Pattern: true}},
		"second pattern, same": path("p=*x*"),
	} {
		if err := tree.Add(p, 2); err == nil {
			t.Errorf("%s: Add(%v) = nil, want an error", name, p)
		}
	}
	if err := tree.Add(path("a=1"), 3); err != nil {
		t.Errorf("a rule above another: %v", err)
	}
}

// TestMatchEqualsNaive compares Match with a matcher that searches a list.
func TestMatchEqualsNaive(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for n := range 3000 {
		rules := randomRules(rnd)
		if n%500 == 0 { // wildcards of one level enough for an index
			for range 200 {
				value := randomText(rnd, "01*") + Wildcard + randomText(rnd, "01*")
				rules = append(rules, []Node{{Key: "a", Value: value, Pattern: true}})
			}
		}
		for range 30 {
			if problem := compareNaive(rules, randomDescriptor(rnd)); problem != "" {
				t.Fatalf("seed %d: %s", seed, problem)
			}
		}
	}
}

// FuzzMatch compares Match with the naive matcher for arbitrary seeds and values.
func FuzzMatch(f *testing.F) {
	f.Add(uint64(1), "a", "0", "b", "01")
	f.Add(uint64(2), "b", "", "c", "*")
	f.Fuzz(func(t *testing.T, seed uint64, key1, value1, key2, value2 string) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		rules := randomRules(rnd)
		// One rule is made from the descriptors, so that some match.
		p := []Node{{Key: key1, Value: value1 + Wildcard + value2, Pattern: true}, {Key: key2, AnyValue: true}}
		rules = append(rules, p)
		for _, d := range []Descriptor{{{key1, value1 + "x" + value2}, {key2, value2}}, {{key1, value2}}, {{"a", value1}, {key2, value2}}} {
			if problem := compareNaive(rules, d); problem != "" {
				t.Fatal(problem)
			}
		}
	})
}

// compareNaive describes how the tree of rules and the naive matcher differ, or returns "".
func compareNaive(rules [][]Node, d Descriptor) string {
	var tree Tree[int]
	var added [][]Node
	for _, p := range rules {
		if tree.Add(p, len(added)) == nil {
			added = append(added, p)
		}
	}
	got, ok := tree.Match(d)
	if !ok {
		got = -1
	}
	want := naiveMatch(added, d)
	if got != want {
		return fmt.Sprintf("Match(%q) over %v = %d, want %d", d, added, got, want)
	}
	// Trace must lead to the same rule.
	var taken []Node
	for _, step := range tree.Trace(d) {
		taken = append(taken, step.Taken)
	}
	if want >= 0 && !reflect.DeepEqual(taken, added[want]) {
		return fmt.Sprintf("Trace(%q) over %v takes %v, want %v", d, added, taken, added[want])
	}
	return ""
}

func randomRules(rnd *rand.Rand) [][]Node {
	rules := make([][]Node, 1+rnd.IntN(12))
	for i := range rules {
		for range 1 + rnd.IntN(3) {
			key := string(rune('a' + rnd.IntN(3)))
			switch rnd.IntN(4) {
			case 0:
				rules[i] = append(rules[i], Node{Key: key, AnyValue: true})
			case 1, 2:
				rules[i] = append(rules[i], Node{Key: key, Value: randomText(rnd, "01*") + Wildcard + randomText(rnd, "01*"), Pattern: true})
			default:
				rules[i] = append(rules[i], Node{Key: key, Value: randomText(rnd, "01")})
			}
		}
	}
	return rules
}

func randomDescriptor(rnd *rand.Rand) Descriptor {
	var d Descriptor
	for range rnd.IntN(4) {
		d = append(d, Entry{string(rune('a' + rnd.IntN(3))), randomText(rnd, "01")})
	}
	return d
}

func randomText(rnd *rand.Rand, alphabet string) string {
	b := make([]byte, rnd.IntN(4))
	for i := range b {
		b[i] = alphabet[rnd.IntN(len(alphabet))]
	}
	return string(b)
}

// naiveMatch narrows the rules down level by level. It matches patterns as regular
// expressions.
func naiveMatch(rules [][]Node, d Descriptor) int {
	alive := make([]int, len(rules)) // in the order of the rules
	for i := range rules {
		alive[i] = i
	}
	for level, e := range d {
		var exact, alone []int
		var pattern string // the first that fits
		byPattern := make(map[string][]int)
		for _, i := range alive {
			if level >= len(rules[i]) || rules[i][level].Key != e.Key {
				continue
			}
			switch n := rules[i][level]; {
			case n.AnyValue:
				alone = append(alone, i)
			case n.Pattern:
				as := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(n.Value), regexp.QuoteMeta(Wildcard), ".*") + "$"
				if matches(as, e.Value) {
					if pattern == "" {
						pattern = n.Value
					}
					byPattern[n.Value] = append(byPattern[n.Value], i)
				}
			case n.Value == e.Value:
				exact = append(exact, i)
			}
		}
		switch {
		case len(exact) > 0:
			alive = exact
		case len(byPattern[pattern]) > 0:
			alive = byPattern[pattern]
		default:
			alive = alone
		}
	}
	for _, i := range alive {
		if len(d) > 0 && len(rules[i]) == len(d) {
			return i
		}
	}
	return -1
}

// matches matches a regular expression byte by byte: it reads both texts as Latin-1.
func matches(expression, value string) bool {
	return regexp.MustCompile(latin1(expression)).MatchString(latin1(value))
}

func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

func TestMatchDoesNotAllocate(t *testing.T) {
	var tree Tree[int]
	for i, p := range [][]Node{path("a=1", "b=no*", "c", "d"), path("a=1", "b=2*3*4", "c", "d=*x")} {
		if err := tree.Add(p, i); err != nil {
			t.Fatal(err)
		}
	}
	d := Descriptor{{"a", "1"}, {"b", "2..3..4"}, {"c", "3"}, {"d", "4x"}}
	if got, ok := tree.Match(d); got != 1 || !ok {
		t.Fatalf("Match = %d, %v, want 1", got, ok)
	}
	if got := testing.AllocsPerRun(100, func() { tree.Match(d) }); got != 0 {
		t.Errorf("Match allocates %v times, want 0", got)
	}
}

func TestTrace(t *testing.T) {
	var tree Tree[int]
	for i, p := range [][]Node{path("f=a*"), path("f=*z", "u"), path("f", "u")} {
		if err := tree.Add(p, i); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		d    Descriptor
		want []Step
	}{
		{Descriptor{{"f", "xz"}, {"u", "1"}}, []Step{
			{Entry: Entry{"f", "xz"}, Taken: path("f=*z")[0], Tried: path("f=a*")},
			{Entry: Entry{"u", "1"}, Taken: path("u")[0]},
		}},
		{Descriptor{{"f", "x"}, {"v", "1"}, {"w", "1"}}, []Step{
			{Entry: Entry{"f", "x"}, Taken: path("f")[0], Tried: path("f=a*", "f=*z")},
			{Entry: Entry{"v", "1"}},
		}},
	} {
		if got := tree.Trace(tt.d); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Trace(%v) = %+v, want %+v", tt.d, got, tt.want)
		}
	}
}

// TestMatchWithin compares a match that has a bound with one that has none. The bound holds for all
// levels of a descriptor together.
func TestMatchWithin(t *testing.T) {
	var tree Tree[string]
	for _, p := range []string{"v=*x*y*", "v=*x*", "v=a*z", "v=*end", "v", "w=*q*,v=*x*"} {
		if err := tree.Add(path(strings.Split(p, ",")...), p); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("-", 1000)
	for _, tt := range []struct {
		d     Descriptor
		want  string
		steps int
	}{
		{Descriptor{{"v", "xy"}}, "v=*x*y*", 1 + 2},
		{Descriptor{{"v", long + "x"}}, "v=*x*", 2 + 2*1001},
		{Descriptor{{"v", "a" + long + "z"}}, "v=a*z", 3 + 2*1002},
		{Descriptor{{"v", long + "end"}}, "v=*end", 4 + 2*1003},
		{Descriptor{{"v", long}}, "v", 4 + 2*1000},
		{Descriptor{{"v", ""}}, "v", 4}, // too short to search in
		{Descriptor{{"w", "q"}, {"v", long + "x"}}, "w=*q*,v=*x*", 1 + 1 + 1 + 1001},
		{Descriptor{{"w", long}, {"v", "x"}}, "", 1 + 1000},
		{Descriptor{{"u", long}}, "", 0},
	} {
		got, ok, left := tree.MatchWithin(tt.d, tt.steps)
		if got != tt.want || ok != (tt.want != "") || left != 0 {
			t.Errorf("%.20q in %d steps: %q, %v, %d left, want %q and none", tt.d, tt.steps, got, ok, left, tt.want)
		}
		if _, ok, left := tree.MatchWithin(tt.d, tt.steps-1); ok || left >= 0 {
			t.Errorf("%.20q in %d steps: found %v, %d left, want a bound that is reached", tt.d, tt.steps-1, ok, left)
		}
	}
}
