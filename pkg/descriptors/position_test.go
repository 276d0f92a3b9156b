package descriptors

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestIntersectIsWhatFitsBoth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		a, b := randomText(r, "ab*")+randomText(r, "ab*"), randomText(r, "ab*")+randomText(r, "ab*")
		all, complete := Intersect(a, b, 10_000)
		if !complete {
			t.Fatalf("%q and %q: not complete", a, b)
		}
		for range 20 {
			v := randomText(r, "ab") + randomText(r, "ab")
			got := slices.ContainsFunc(all, func(p string) bool { return Fits(p, v) })
			if want := Fits(a, v) && Fits(b, v); got != want {
				t.Fatalf("%q fits %q and %q: %v, but the patterns %q say %v", v, a, b, want, all, got)
			}
		}
		for _, p := range all {
			if !strings.Contains(p, Wildcard) && (!Fits(a, p) || !Fits(b, p)) {
				t.Fatalf("%q does not fit %q and %q", p, a, b)
			}
		}
	}
}

func TestIntersectIsBounded(t *testing.T) {
	a := strings.Repeat("*a", 40)
	if all, complete := Intersect(a, a+"*", 100); complete || len(all) > 100 {
		t.Errorf("%d patterns, complete %v", len(all), complete)
	}
}

func TestPositionsAreWhereMatchGoes(t *testing.T) {
	tree := new(Tree[string])
	for rule, path := range map[string][]Node{
		"value": {{Key: "a", Value: "x"}}, "alone": {{Key: "a", AnyValue: true}}, "deep": {{Key: "a", Value: "x*", Pattern: true}, {Key: "b", AnyValue: true}},
	} {
		if err := tree.Add(path, rule); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []Descriptor{{{"a", "x"}}, {{"a", "y"}}, {{"a", "xy"}}, {{"a", "xy"}, {"b", "z"}}, {{"c", "x"}}, {{"a", "x"}, {"b", "z"}}} {
		place := tree.Top()
		for _, e := range d {
			place = place.Next(e)
		}
		got, gotOK := place.Rule()
		if want, wantOK := tree.Match(d); got != want || gotOK != wantOK {
			t.Errorf("%v: places lead to %q %v, Match to %q %v", d, got, gotOK, want, wantOK)
		}
	}
	below := tree.Top().Below()["a"]
	want := []Node{{Key: "a", Value: "x"}, {Key: "a", Value: "x*", Pattern: true}, {Key: "a", AnyValue: true}}
	if !slices.Equal(below, want) {
		t.Errorf("below the top: %v, want %v", below, want)
	}
	if below := (Position[string]{}).Next(Entry{"a", "x"}).Below(); below != nil {
		t.Errorf("below no place: %v", below)
	}
}
