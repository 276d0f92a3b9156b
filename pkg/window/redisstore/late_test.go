package redisstore

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
)

// TestDeadlines has the edges: a group is in time at its deadline and too late a
// microsecond after it, and without one it is never too late.
func TestDeadlines(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name     string
		deadline int64
		late     bool
	}{
		{"none", 0, false},
		{"a microsecond", 1, true},
		{"one microsecond too late", start - 1, true},
		{"exactly", start, false},
		{"one microsecond to spare", start + 1, false},
	} {
		for _, n := range []int{1, 2, 3} {
			prefix := fmt.Sprintf("%s %d:", tt.name, n)
			q := request{deadline: tt.deadline}
			for i := range n {
				q.asks = append(q.asks, ask{Check: ten(fmt.Sprint(prefix, i), 5, 2)})
			}
			before := r.changes()
			got := r.run(start, q)
			for i := range got {
				want := answer{1, window.Decision{Allowed: true, Remaining: 3, UnitAfter: 10 * time.Second, ResetAfter: 10 * time.Second}}
				if tt.late {
					want = late
				}
				if got[i] != want {
					t.Errorf("%s, check %d of %d: got %+v, want %+v", tt.name, i, n, got[i], want)
				}
			}
			if wrote := r.changes() != before; wrote == tt.late {
				t.Errorf("%s, %d checks: something was written: %t", tt.name, n, wrote)
			}
		}
	}
}

// ten is a check of a window of ten seconds.
func ten(key string, hits, cost uint64) *window.Check {
	return &window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: 10 * time.Second}, Cost: cost}
}

func inMode(m window.Mode, c *window.Check) *window.Check {
	c.Mode = m
	return c
}

// TestLate lets every part of a batch come too late, in all combinations, and
// compares with a batch of only the others, sent without any deadline: the same
// answers, each in its place, and the same bytes. All groups ask the same logs, so
// one that is decided though it is late shows in those that follow.
func TestLate(t *testing.T) {
	r := newRig(t)
	// Each call makes the checks anew, under keys with a prefix.
	batches := map[string]func(p string) []request{
		"single checks": func(p string) []request {
			return []request{
				one(ten(p+"a", 9, 2)), one(ten(p+"a", 9, 9)), one(inMode(window.Always, ten(p+"a", 9, 8))),
				one(inMode(window.Refund, ten(p+"a", 9, 3))), one(ten(p+"b", 9, 9)),
			}
		},
		"groups": func(p string) []request {
			return []request{
				{asks: []ask{{Check: inMode(window.Refund, ten(p+"ring", 50, 7))}, {Check: inMode(window.Always, ten(p+"a", 9, 4))}, {Check: ten(p+"ring", 50, 3)}}},
				one(ten(p+"a", 9, 2)),
				{asks: []ask{{Check: ten(p+"ring", 50, 1)}, {Check: ten(p+"a", 9, 9)}}}, // a denies if anything was charged
				{asks: []ask{{Check: inMode(window.Any, ten(p+"full", 40, 1))}, {Check: inMode(window.Any, ten(p+"ring", 50, 4))}}},
				{asks: []ask{{Check: inMode(window.Always, ten(p+"full", 40, 1))}, {Check: ten(p+"ring", 50, 1)}}},
			}
		},
		"what is no log": func(p string) []request {
			return []request{
				one(ten(p+"corrupt", 9, 1)),
				{asks: []ask{{Check: ten(p+"a", 9, 1)}, {Check: ten(p+"corrupt", 9, 1)}}},
				{asks: []ask{{Check: ten(p+"corrupt", 9, 1)}, {Check: ten(p+"list", 9, 1)}}},
				one(ten(p+"list", 9, 9)),
			}
		},
	}
	var ring []byte
	for i := range 40 {
		var d window.Decision
		ring = reference.Take(ring, start-40+int64(i), ten("", 40, 1), &d)
	}
	plant := func(prefix string) {
		for name, value := range map[string][]byte{"ring": ring, "full": ring, "corrupt": []byte("text")} {
			if err := r.client.Set(t.Context(), prefix+name+":10000000", value, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, batch := range batches {
		n := len(batch(""))
		for mask := range 1 << n { // the groups that come too late
			with, without := fmt.Sprintf("%s %b with:", name, mask), fmt.Sprintf("%s %b without:", name, mask)
			plant(with)
			plant(without)
			all, others := batch(with), []request(nil)
			for i, q := range batch(without) {
				if mask>>i&1 == 0 {
					others = append(others, q)
					all[i].deadline = []int64{0, start, start + 5}[i%3]
				} else {
					all[i].deadline = start - 1 - int64(i)
				}
			}
			var want []answer
			if len(others) > 0 {
				want = r.run(start, others...)
			}
			for i, at := 0, 0; i < n; i++ {
				if mask>>i&1 == 1 {
					want = append(want[:at:at], append(make([]answer, len(all[i].asks)), want[at:]...)...)
					for j := range all[i].asks {
						want[at+j] = late
					}
				}
				at += len(all[i].asks)
			}
			before := r.changes()
			got := r.run(start, all...)
			if mask == 1<<n-1 && r.changes() != before {
				t.Errorf("%s, all late: something was written", name)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Fatalf("%s, late %b: (-want +got)\n%s", name, mask, diff)
			}
			if diff := cmp.Diff(r.logs(without), r.logs(with)); diff != "" {
				t.Fatalf("%s, late %b: the logs differ: (-want +got)\n%s", name, mask, diff)
			}
		}
	}
}

// TestVectorsAmongLate replays the vectors on two logs at once, among groups that
// come too late and would change both.
func TestVectorsAmongLate(t *testing.T) {
	r := newRig(t)
	rnd := random.Rand(t, 0)
	lates, histories := 0, 0
	readVectors(t, func(v *vector) {
		histories++
		if histories%4 != 0 || v.Policy == window.InFlight.String() { // each takes long, and ends have no deadline
			return
		}
		logs := [2]told{{sha256.New()}, {sha256.New()}}
		keys := [2]string{fmt.Sprintf("a%d", histories), fmt.Sprintf("b%d", histories)}
		for i := range v.Steps {
			s := &v.Steps[i]
			var (
				requests []request
				at       []int // of the steps among the checks
				n        int
			)
			addLate := func() {
				if s.Clock < 2 {
					return // 0 is no deadline
				}
				for range rnd.IntN(3) {
					q := request{deadline: 1 + rnd.Int64N(s.Clock-1)}
					for range 1 + rnd.IntN(3) {
						c := s.check(keys[rnd.IntN(2)], v)
						c.Mode = window.Mode(rnd.IntN(5))
						c.Cost = uint64(1 + rnd.IntN(5))
						q.asks = append(q.asks, ask{Check: c, flags: asks})
					}
					requests = append(requests, q)
					n += len(q.asks)
					lates++
				}
			}
			flags := byte(rnd.IntN(4)) * reserves // they change no decision and no log
			for _, key := range keys {
				addLate()
				at = append(at, n)
				q := request{asks: []ask{{Check: s.check(key, v), ahead: s.ahead(), flags: flags}}}
				q.deadline = []int64{0, s.Clock, s.Clock + 1}[rnd.IntN(3)]
				requests = append(requests, q)
				n++
			}
			addLate()
			got := r.run(s.Clock, requests...)
			for j := range got {
				want := late
				if j == at[0] || j == at[1] {
					if got[j].decision.Remaining == 0 || !got[j].decision.Allowed {
						got[j].outcome &^= unsettled // not what this is about
						got[j].decision.Cut = false
					}
					want = answer{byte(s.Outcome), s.decision()}
				}
				if got[j] != want {
					t.Fatalf("%s %s, step %d, check %d of %d, steps at %d: got %+v, want %+v", v.Name, keys[0], i, j, n, at, got[j], want)
				}
			}
			for j, key := range keys {
				value, _ := r.client.Get(t.Context(), string(script.AppendKey(nil, "", s.check(key, v).Log()))).Bytes()
				if problem := logs[j].compare(s, value); problem != "" {
					t.Fatalf("%s %s, step %d: %s", v.Name, key, i, problem)
				}
			}
		}
	})
	if lates < 1000 {
		t.Errorf("%d groups came too late, want more", lates)
	}
}
