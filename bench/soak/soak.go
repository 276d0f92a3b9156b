package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/test/process"
)

// settling is how long a service may take to come to rest.
const settling = 20 * time.Second

// soak runs the whole test, writes a line in each interval, and returns the failures.
func soak(ctx context.Context, o options, out io.Writer) (failures []string, err error) {
	failed := process.Run(ctx, func(t process.TB) {
		var s *service
		if s, err = start(t, o); err == nil {
			failures, err = s.soak(t.Context(), o, out)
		}
	})
	return failures, errors.Join(failed, err)
}

func (s *service) soak(ctx context.Context, o options, out io.Writer) (failures []string, err error) {
	l := &load{ends: s.ends, tally: newTally()}
	if err := l.prime(ctx); err != nil {
		return nil, err
	}
	before, err := s.rest(ctx, metrics.State{})
	if err != nil {
		return nil, err
	}

	during, cancel := context.WithTimeout(ctx, o.lasts)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.run(during, o.rate) }()
	states, err := s.watch(during, o, l, out)
	cancel()
	if err := errors.Join(err, <-ended, ctx.Err()); err != nil {
		return nil, err
	}

	after, err := s.rest(ctx, before)
	if err != nil {
		return nil, err
	}
	l.tally.write(out)
	fmt.Fprintf(out, "Before the clients came and after they had gone: goroutines %.0f, %.0f; open files %.0f, %.0f; heap %.1f, %.1f MB; resident %.1f, %.1f MB.\n\n",
		before.Goroutines, after.Goroutines, before.Files, after.Files, before.Heap/1e6, after.Heap/1e6, before.Resident/1e6, after.Resident/1e6)
	failures = append(l.tally.failures(), grown(states)...)
	failures = append(failures, remains(before, after)...)
	if n := l.open.Load(); n != 0 {
		failures = append(failures, fmt.Sprintf("%d connections of clients are still open", n))
	}
	if code, err := s.Stop(); err != nil || code != 0 {
		failures = append(failures, fmt.Sprintf("exit code after SIGTERM is %d, want 0: %v", code, err))
	}
	return append(failures, s.complaints()...), nil
}

// prime uses up the limit of usedUp, and makes each call once at each address.
func (l *load) prime(ctx context.Context) error {
	for _, e := range l.ends {
		conn, err := l.client(e, "first")
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = usedUp().ask(ctx, conn) // allowed the first time
		for _, q := range []*call{usedUp(), apiKeyCheck(), healthCheck()} {
			if err := q.ask(ctx, conn); err != nil {
				return fmt.Errorf("%s at %s: %w", q.kind, e.address, err)
			}
		}
	}
	return nil
}

// rest waits until a service has no more goroutines and open files than before, or
// for settling. It returns the last state.
func (s *service) rest(ctx context.Context, before metrics.State) (metrics.State, error) {
	return metrics.Settle(ctx, s.Admin(), settling, func(now metrics.State) bool {
		return before == (metrics.State{}) || len(remains(before, now)) == 0
	})
}

// watch writes a line in each interval until ctx ends.
func (s *service) watch(ctx context.Context, o options, l *load, out io.Writer) (states []metrics.State, err error) {
	figures.Head(out, "| after | limits | checks | health checks | given up | failed | connections made | open | open files | goroutines | live heap MB | resident MB | collections |")
	ticks := time.NewTicker(o.every)
	defer ticks.Stop()
	began, last := time.Now(), totals{}
	var first metrics.State
	for {
		select {
		case <-ctx.Done():
			return states, nil
		case <-ticks.C:
		}
		open := l.open.Load()
		now, err := metrics.AtRest(ctx, s.Admin())
		if ctx.Err() != nil {
			return states, nil
		}
		if err != nil {
			return states, err
		}
		if len(states) == 0 {
			first = now
		}
		states = append(states, now)
		sum := l.tally.totals()
		fmt.Fprintf(out, "| %v | %d | %d | %d | %d | %s | %d | %d | %.0f | %.0f | %.1f | %.1f | %.0f |\n", time.Since(began).Round(time.Second),
			sum.limits-last.limits, sum.checks-last.checks, sum.health-last.health, sum.givenUp-last.givenUp, list(difference(sum.failed, last.failed)),
			sum.opened-last.opened, open, now.Files, now.Goroutines, now.Heap/1e6, now.Resident/1e6, now.Collections-first.Collections)
		last = sum
	}
}

// difference returns the counts since before.
func difference(now, before map[string]int) map[string]int {
	d := make(map[string]int)
	for name, n := range now {
		if n > before[name] {
			d[name] = n - before[name]
		}
	}
	return d
}

// write writes the sums.
func (t *tally) write(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(w, "\nAnswered: %s. Failed: %s. Given up by their callers: %s. Connections: %s.\n\n",
		list(t.calls), list(t.failed), list(t.givenUp), list(t.opened))
}

// failures returns the calls that failed and should not have.
func (t *tally) failures() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for _, name := range sorted(t.failed) {
		all = append(all, fmt.Sprintf("%d calls: %s", t.failed[name], name))
	}
	for _, e := range t.examples {
		all = append(all, "such as "+e)
	}
	if t.calls[limitCall] == 0 || t.calls[checkCall] == 0 {
		all = append(all, "there were no calls")
	}
	return all
}
