package memstore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// TestConcurrent lets 32 callers meet on a bounded store while its sweeper runs
// and snapshots are taken: known keys, alone and in groups over several shards in
// any order, among ever new ones. The bounds hold at any time, and no window of a
// known key holds more than its limit.
func TestConcurrent(t *testing.T) {
	const (
		callers = 32
		each    = 600
		known   = 6
		limit   = 40
		size    = 2 << 20 // two shards
		tick    = win / 2000
	)
	var clock atomic.Int64
	s := New(Options{
		Clock:         func() time.Duration { return time.Duration(clock.Load()) },
		SweepInterval: time.Millisecond,
		MaxBytes:      size,
	})
	defer s.Close()

	type charge struct{ from, to time.Duration } // the store's clock was between the two
	var (
		mu      sync.Mutex
		charges [known][]charge
		wg      sync.WaitGroup
		begin   = make(chan struct{})
		ended   = make(chan struct{})
	)
	for n := range callers {
		wg.Go(func() {
			<-begin
			for i := range each {
				from := time.Duration(clock.Add(int64(tick)))
				a, b := (n+i)%known, (n*7+i/3)%known
				group := []window.Check{check(fmt.Sprint("known", a), limit, 1)}
				if i%3 == 0 && a != b {
					group = append(group, check(fmt.Sprint("known", b), limit, 1))
				}
				// A new one with the least share of all.
				group = append(group, check(fmt.Sprint("new", n, i), 1000, 1))
				d := make([]window.Decision, len(group))
				_, err := s.Take(t.Context(), window.MayWait, group, d)
				to := time.Duration(clock.Load())
				if errors.Is(err, ErrFull) {
					continue
				}
				if err != nil {
					t.Errorf("got error %v", err)
					return
				}
				if !reference.Allowed(d) {
					continue
				}
				mu.Lock()
				charges[a] = append(charges[a], charge{from, to})
				if len(group) == 3 {
					charges[b] = append(charges[b], charge{from, to})
				}
				mu.Unlock()
			}
		})
	}
	var watchers sync.WaitGroup
	watchers.Go(func() {
		for done := false; !done; {
			select {
			case <-ended:
				done = true // once more, when all is quiet
			default:
			}
			if st := s.Stats(); st.Bytes > size {
				t.Errorf("got %+v, want at most %d bytes", st, size)
			}
			var b bytes.Buffer
			if _, err := s.Save(&b); err != nil {
				t.Errorf("Save: %v", err)
			}
			loaded, _, err := Load(&b, Options{SweepInterval: -1})
			if err != nil {
				t.Errorf("Load: %v", err)
				continue
			}
			loaded.Close()
		}
	})
	close(begin)
	wg.Wait()
	close(ended)
	watchers.Wait()
	s.Close()

	verify(t, s)
	for k, all := range charges {
		for _, last := range all {
			sum := 0
			for _, c := range all {
				if c.from > last.to-win && c.to <= last.to {
					sum++
				}
			}
			if sum > limit {
				t.Errorf("key %d: the window that ends at %v holds at least %d, limit %d", k, last.to, sum, limit)
				break
			}
		}
		if len(all) < limit {
			t.Errorf("key %d: %d were allowed in all, want at least the limit of %d", k, len(all), limit)
		}
	}
}

// TestConcurrentFull lets callers compete for room in a store that is always full, with
// groups over many shards. No call blocks for ever, and a group is charged whole or not at
// all.
func TestConcurrentFull(t *testing.T) {
	const (
		callers = 32
		each    = 300
	)
	var clock atomic.Int64
	s := New(Options{
		Clock:         func() time.Duration { return time.Duration(clock.Load()) },
		SweepInterval: time.Millisecond,
		MaxBytes:      2 << 20, // two shards
	})
	defer s.Close()
	var (
		wg               sync.WaitGroup
		refused, charged atomic.Int64
	)
	for n := range callers {
		wg.Go(func() {
			for i := range each {
				clock.Add(int64(win / 10_000))
				// Four keys of this caller alone: all new, each at its limit at once.
				group := make([]window.Check, 4)
				for k := range group {
					group[k] = check(fmt.Sprint(n, i, (k+n)%4), 1, 1)
				}
				d := make([]window.Decision, len(group))
				switch _, err := s.Take(t.Context(), window.MayWait, group, d); {
				case errors.Is(err, ErrFull):
					refused.Add(1)
					for _, c := range group {
						c.Cost = 0
						if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:1]); err != nil || !d[0].Allowed {
							t.Errorf("a key of a refused group: got %+v, error %v, want nothing charged", d[0], err)
						}
					}
				case err != nil || !reference.Allowed(d):
					t.Errorf("got %+v, error %v, want allowed", d, err)
				default:
					charged.Add(1)
				}
			}
		})
	}
	wg.Wait()
	s.Close()
	verify(t, s)
	if charged.Load() < 200 || refused.Load() < 200 || s.Stats().Evicted != 0 {
		t.Errorf("%d charged, %d refused, %+v: want some of each, and none evicted", charged.Load(), refused.Load(), s.Stats())
	}
}
