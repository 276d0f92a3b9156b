package simulate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// shrink returns the run of a smaller plan that breaks the same promise. It tries to leave out
// faults, callers, and the end, until nothing can be left out or the tries are used up.
func shrink(t *testing.T, w *world, m mutants, tries int) *world {
	best := w
	breaksIt := func(p *plan) bool {
		if tries--; tries < 0 {
			return false
		}
		got := run(t, p, m)
		if len(got.broken) == 0 || promiseOf(got) != promiseOf(w) {
			return false
		}
		best = got
		return true
	}
	for smaller := true; smaller && tries > 0; {
		smaller = false
		for _, p := range best.plan.smaller() {
			if breaksIt(p) {
				smaller = true
				break
			}
		}
	}
	return best
}

// promiseOf returns the first promise that a run breaks.
func promiseOf(w *world) string {
	promise, _, _ := strings.Cut(w.broken[0], "\n")
	return promise
}

// clone returns a copy that shares nothing.
func (p *plan) clone() *plan {
	c := *p
	c.Keys, c.Faults = slices.Clone(p.Keys), slices.Clone(p.Faults)
	return &c
}

// smaller returns plans that are a little smaller, the smallest first.
func (p *plan) smaller() (all []*plan) {
	add := func(change func(*plan)) {
		c := p.clone()
		change(c)
		all = append(all, c)
	}
	callers := 0
	for i := range p.Keys {
		callers += p.Keys[i].Callers
	}
	for i := range p.Keys {
		if n := p.Keys[i].Callers; n > 0 && n < callers {
			add(func(c *plan) { // this key alone
				for j := range c.Keys {
					if j != i {
						c.Keys[j].Callers = 0
					}
				}
			})
		}
	}
	for _, part := range []time.Duration{2, 4, 8} {
		if cut := p.Length - p.Length/part; cut > time.Second {
			add(func(c *plan) {
				c.Length = cut
				c.Faults = slices.DeleteFunc(c.Faults, func(f fault) bool { return f.At+f.For > cut })
			})
		}
	}
	for i := range p.Faults {
		add(func(c *plan) { c.Faults = slices.Delete(c.Faults, i, i+1) })
	}
	for i := range p.Keys {
		if n := p.Keys[i].Callers; n > 1 || n > 0 && n < callers {
			add(func(c *plan) { c.Keys[i].Callers = n / 2 })
			add(func(c *plan) { c.Keys[i].Callers = n - 1 })
		}
		if p.Keys[i].Callers > 0 {
			add(func(c *plan) { c.Keys[i].Think *= 2 })
		}
	}
	if last := p.Instances - 1; last > 0 && !slices.ContainsFunc(p.Faults, func(f fault) bool {
		return (f.Kind == faultPause || f.Kind == faultCrash) && f.Who == last || f.Kind == faultCut && f.Size == last
	}) {
		add(func(c *plan) { c.Instances = last })
	}
	return all
}
