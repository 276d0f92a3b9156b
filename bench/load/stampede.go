package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/traffic"
)

// jitter is the retry_jitter of the second of two equal bursts. The first has none.
const jitter = "50%"

// nightly returns customers whose jobs begin within a moment, as those of cron do. Each job asks
// for more than its limit, waits for Retry-After, comes back once, and ends.
func nightly(n int, unit time.Duration, seed uint64) ([]tier, []*customer) {
	tiers := []tier{{"nightly", 100, []limit{{2, unit}}}}
	b := &behaviour{name: "nightly job", retry: returns}
	start := logNormal{100 * time.Millisecond, 0.5}
	all := make([]*customer, n)
	for i := range all {
		r := source(seed, uint64(i))
		all[i] = &customer{id: i, tier: &tiers[0], behaviour: b}
		all[i].callers = []*caller{{customer: all[i], random: r, first: start.draw(r), busy: never, wants: -1}}
	}
	return tiers, all
}

// A stampede is when the customers of a burst came back.
type stampede struct {
	jitter            string
	back              []time.Duration // since the beginning, sorted
	shortest, longest time.Duration   // Retry-After of the denials in the burst
	again             int             // of those who came back were denied again
}

// stampedeOf reads the calls of nightly jobs.
func stampedeOf(jitter string, all []*customer) stampede {
	s := stampede{jitter: jitter, shortest: never}
	for _, c := range all {
		for _, a := range c.calls {
			switch {
			case a.try == 0 && !a.allowed:
				s.shortest, s.longest = min(s.shortest, a.retryAfter), max(s.longest, a.retryAfter)
			case a.try > 0:
				s.back = append(s.back, a.sent)
				if !a.allowed {
					s.again++
				}
			}
		}
	}
	slices.Sort(s.back)
	return s
}

// fullest returns how many came back in the fullest second, wherever it begins.
func (s *stampede) fullest() int {
	spans := make([]traffic.Span, len(s.back))
	for i, at := range s.back {
		spans[i] = traffic.Span{From: at, To: at}
	}
	return traffic.MostInWindow(spans, time.Second)
}

// bursts are two equal bursts, the second with jitter.
type bursts struct{ without, with stampede }

// mean returns how many would come back in a second if all came back evenly, in the time in which
// some came back after one of the two bursts.
func (b *bursts) mean(s *stampede) float64 {
	first := min(b.without.back[0], b.with.back[0])
	last := max(b.without.back[len(b.without.back)-1], b.with.back[len(b.with.back)-1])
	return float64(len(s.back)) / max(1, (last-first).Seconds())
}

// failures returns what is wrong.
func (b *bursts) failures(customers int) (found []string) {
	for _, s := range []*stampede{&b.without, &b.with} {
		if len(s.back) < customers {
			return []string{fmt.Sprintf("retry_jitter %s: %d of %d came back", s.jitter, len(s.back), customers)}
		}
	}
	if b.with.shortest < b.without.shortest {
		found = append(found, fmt.Sprintf("with retry_jitter a wait is %v, and without it none is below %v", b.with.shortest, b.without.shortest))
	}
	return found
}

// write writes both as a Markdown table.
func (b *bursts) write(w io.Writer) {
	figures.Head(w, "| `retry_jitter` | came back | `Retry-After` | fullest second | mean | peak to mean | denied again |")
	for _, s := range []*stampede{&b.without, &b.with} {
		fmt.Fprintf(w, "| %s | %d | %v to %v | %d | %.0f | %.1f | %d |\n", s.jitter, len(s.back), s.shortest, s.longest,
			s.fullest(), b.mean(s), float64(s.fullest())/b.mean(s), s.again)
	}
	fmt.Fprintln(w)
}
