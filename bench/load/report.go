package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/traffic"
)

// A report is what a run has shown.
type report struct {
	store      string
	behaviours []behaved
	limits     []limited
	failures   []string
}

// behaved is the customers of one behaviour.
type behaved struct {
	name                                               string
	customers, sent, allowed, denied, wrongly, retries int
	waited, present                                    time.Duration // of all callers
}

// limited is one limit of a tier.
type limited struct {
	tier                     string
	limit                    limit
	customers, most, reached int // most: in one window for certain; reached: customers who got the whole limit
}

// reportOf judges the calls of a run.
func reportOf(store string, p population, all []*customer) *report {
	r := &report{store: store}
	kinds := slices.SortedStableFunc(slices.Values(all), func(a, b *customer) int { return int(a.behaviour.retry - b.behaviour.retry) })
	for i, c := range kinds {
		if i == 0 || c.behaviour != kinds[i-1].behaviour {
			r.behaviours = append(r.behaviours, behaved{name: c.behaviour.name})
		}
		r.behaviours[len(r.behaviours)-1].add(c)
		r.failures = append(r.failures, above(c)...)
	}
	for i := range r.behaviours {
		if b := &r.behaviours[i]; b.wrongly > 0 {
			r.fail("%s: %d requests within the limits were denied", b.name, b.wrongly)
		}
	}
	for i := range p.tiers {
		for _, l := range p.tiers[i].limits {
			row := limited{tier: p.tiers[i].name, limit: l}
			for _, c := range all {
				if c.tier.name == row.tier {
					row.add(c)
				}
			}
			r.limits = append(r.limits, row)
		}
	}
	return r
}

func (r *report) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (b *behaved) add(c *customer) {
	b.customers++
	b.sent += len(c.calls)
	b.wrongly += len(wrongly(c))
	for _, a := range c.calls {
		if a.allowed {
			b.allowed++
		} else {
			b.denied++
		}
		if a.try > 0 {
			b.retries++
		}
	}
	b.waited += c.waited
	if n := len(c.calls); n > 0 {
		b.present += c.calls[n-1].answered * time.Duration(len(c.callers))
	}
}

func (l *limited) add(c *customer) {
	l.customers++
	most := traffic.MostInWindow(c.allowed(), l.limit.window-clockSlack)
	l.most = max(l.most, most)
	if most >= l.limit.hits {
		l.reached++
	}
}

// write writes the tables as Markdown.
func (r *report) write(w io.Writer) {
	figures.Head(w, "| "+r.store+" | customers | sent | allowed | denied | denied within limits | retries | waiting |")
	for _, b := range r.behaviours {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %.0f %% |\n", b.name, b.customers, b.sent, b.allowed, b.denied, b.wrongly, b.retries,
			100*float64(b.waited)/float64(max(1, b.present)))
	}
	fmt.Fprintln(w)
	figures.Head(w, "| "+r.store+": tier | limit | customers | reached it | most in a window, for certain |")
	for _, l := range r.limits {
		fmt.Fprintf(w, "| %s | %d in %v | %d | %d | %d |\n", l.tier, l.limit.hits, l.limit.window, l.customers, l.reached, l.most)
	}
	fmt.Fprintln(w)
}
