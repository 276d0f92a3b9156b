package descriptors

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/random"
)

// TestCoversAndOverlap compares Covers and Overlaps with matching all values of up to six
// letters.
func TestCoversAndOverlap(t *testing.T) {
	var values []string
	for n := range 7 {
		for bits := range 1 << n {
			b := make([]byte, n)
			for i := range b {
				b[i] = "01"[bits>>i&1]
			}
			values = append(values, string(b))
		}
	}
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	random := func() string {
		return strings.ReplaceAll(randomText(rnd, "01*"), "**", "*") + Wildcard + randomText(rnd, "01")
	}
	covered, overlapped := 0, 0
	for range 3000 {
		a, b := random(), random()
		p, q := NewPattern(a), NewPattern(b)
		covers, overlap := true, false
		for _, v := range values {
			inA, inB := p.Covers(v), q.Covers(v)
			covers = covers && (inA || !inB)
			overlap = overlap || inA && inB
		}
		if got := p.Covers(b); got && !covers {
			t.Errorf("seed %d: Covers(%q, %q), but some value fits only the second", seed, a, b)
		} else if got {
			covered++
		}
		// Overlap may be true without a value in common here: it may have more than six
		// letters.
		if got := p.Overlaps(&q); !got && overlap {
			t.Errorf("seed %d: Overlap(%q, %q) is false, but some value fits both", seed, a, b)
		} else if got {
			overlapped++
		}
	}
	if covered < 100 || overlapped < 100 || overlapped == 3000 {
		t.Errorf("%d covered, %d overlapped: the patterns prove little", covered, overlapped)
	}
	for _, tt := range []struct {
		wide, narrow    string
		covers, overlap bool
	}{
		{"*", "a*b", true, true},
		{"a*", "ab*", true, true},
		{"ab*", "a*", false, true},
		{"a*", "*b", false, true},
		{"a*", "b*", false, false},
		{"*a", "*b", false, false},
		{"*x*", "*axb*", true, true},
	} {
		p, q := NewPattern(tt.wide), NewPattern(tt.narrow)
		if got := p.Covers(tt.narrow); got != tt.covers {
			t.Errorf("Covers(%q, %q) = %v", tt.wide, tt.narrow, got)
		}
		if got := p.Overlaps(&q); got != tt.overlap {
			t.Errorf("Overlap(%q, %q) = %v", tt.wide, tt.narrow, got)
		}
	}
}
