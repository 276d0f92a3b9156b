package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/test/random"
)

// groupOf returns a group of checks.
func groupOf(checks ...window.Check) *script.Group {
	g := new(script.Group)
	g.Reset()
	g.AddAll("", checks, make([]window.Decision, len(checks)))
	return g
}

// runGroups runs groups as one call, and returns the answers and the values.
func (r *rig) runGroups(clock int64, groups []*script.Group) ([]answer, []any) {
	r.t.Helper()
	var keys []string
	var names []any
	var checks []byte
	for _, g := range groups {
		for _, key := range g.Keys {
			keys, names = append(keys, key), append(names, key)
		}
		checks = append(checks, g.Packed...)
	}
	script.MarkRepeats(checks, names)
	argv := []string{string(append(script.AppendInstant(nil, 0), checks...)), "", "streams:"}
	cmd := r.evalsha(r.script, clock, keys, argv)
	if err := r.client.Process(r.t.Context(), cmd); err != nil {
		r.t.Fatalf("%q at %d: %v", keys, clock, err)
	}
	values, err := r.client.MGet(r.t.Context(), keys...).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return r.answers(cmd, clock, len(keys)), values
}

// TestBusyLogs: groups of one call that have the same logs are decided, charged and answered as if each had come alone. The
// values are the same too, but calls of more than four checks move rings early. Costs 2 s.
func TestBusyLogs(t *testing.T) {
	together := newRig(t)
	alone := *together
	alone.client = redis.NewClient(&redis.Options{Addr: together.client.Options().Addr, DB: 1})
	t.Cleanup(func() { alone.client.Close() })
	rnd := random.Rand(t, 0)
	windows := []time.Duration{time.Minute, time.Hour, 7 * 24 * time.Hour} // no key expires during its history
	for history := range 300 {
		clock := start
		var checks [3]window.Check
		for i := range checks {
			c := &checks[i]
			c.Key = fmt.Sprint(history, "/", i)
			c.Limit = window.Limit{Hits: []uint64{3, 20, 60, 1000, 4294967294}[rnd.IntN(5)], Window: windows[rnd.IntN(len(windows))]}
			switch rnd.IntN(6) {
			case 0:
				c.Limit.Policy, c.Limit.Rate = window.TokenBucket, uint32(min(c.Limit.Hits, 1000))
			case 1:
				c.Budget, c.Limit.Hits = &window.Budget{Hold: time.Minute}, 20
			case 2:
				c.Precision = c.Limit.Window / 10000
			}
		}
		group := func(of []int) *script.Group {
			var all []window.Check
			for _, i := range of {
				c := checks[i]
				c.Cost = []uint64{0, 1, 1, 1, 1, 2, 7}[rnd.IntN(7)]
				switch rnd.IntN(6) {
				case 0:
					c.Mode = []window.Mode{window.Any, window.Observe}[rnd.IntN(2)]
				case 1:
					c.Limit.Hits = max(c.Limit.Hits/2, 1)
					c.Limit.Rate = min(c.Limit.Rate, uint32(min(c.Limit.Hits, 1000)))
				}
				if c.Budget != nil {
					c.Stream = window.StreamID(1 + rnd.IntN(20))
				}
				all = append(all, c)
			}
			if len(all) == 1 && rnd.IntN(3) == 0 {
				all[0].Mode, all[0].Budget, all[0].Stream = window.Always, nil, 0
				if rnd.IntN(3) == 0 {
					all[0].Mode, all[0].Cost = window.Refund, all[0].Cost*100
				}
			}
			g := new(script.Group)
			g.Reset()
			if rnd.IntN(5) == 0 {
				g.Flags = []byte{reserves, asks}[rnd.IntN(2)]
			}
			if rnd.IntN(8) == 0 {
				g.Ahead = 1_000_000
			}
			g.AddAll("", all, make([]window.Decision, len(all)))
			return g
		}
		most := []int{4, 30}[history%2]
		for range 12 {
			clock += []int64{0, 1, 500, 100_000, second, -second, 1000 * second}[rnd.IntN(7)]
			var groups []*script.Group
			for checks := 0; len(groups) < 12; {
				of := rnd.Perm(3)[:1+rnd.IntN(3)*rnd.IntN(2)]
				if checks += len(of); checks > most {
					break
				}
				groups = append(groups, group(of))
			}
			got, values := together.runGroups(clock, groups)
			var want []answer
			after := make(map[string]any)
			for i := range groups {
				answers, values := alone.runGroups(clock, groups[i:i+1])
				want = append(want, answers...)
				for j, key := range groups[i].Keys {
					after[key] = values[j]
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("history %d at %d, limits %+v: together\n%+v, alone\n%+v", history, clock, checks, got, want)
			}
			for _, g := range groups {
				for _, key := range g.Keys {
					if value := values[0]; most == 4 && value != after[key] {
						t.Fatalf("history %d at %d: together %q is\n%x, alone\n%x", history, clock, key, value, after[key])
					}
					values = values[1:]
				}
			}
		}
	}
}

// TestRefundOfABusyLog: a group gives back all that a log has, and charges it.
func TestRefundOfABusyLog(t *testing.T) {
	r := newRig(t)
	c := window.Check{Key: "k", Limit: window.Limit{Hits: 20, Window: time.Hour}, Cost: 5}
	refund := c
	refund.Mode, refund.Cost = window.Refund, 10
	got, _ := r.runGroups(start, []*script.Group{groupOf(c), groupOf(refund, c), groupOf(c)})
	if last := got[len(got)-1]; last.outcome != script.OutcomeAllowed || last.decision.Remaining != 10 {
		t.Errorf("after a charge, a refund and two charges: got %+v, want 10 remaining", last)
	}
}

// TestBusyLogOfABudget: while rules change, a log is charged without a budget, and then with one.
func TestBusyLogOfABudget(t *testing.T) {
	r := newRig(t)
	c := window.Check{Key: "k", Limit: window.Limit{Hits: 20, Window: time.Hour}, Cost: 8}
	reserve := func(stream window.StreamID, cost uint64) *script.Group {
		c := c
		c.Budget, c.Stream, c.Cost = &window.Budget{Hold: time.Minute}, stream, cost
		return groupOf(c)
	}
	r.runGroups(start, []*script.Group{reserve(1, 10)})
	got, _ := r.runGroups(start, []*script.Group{groupOf(c), reserve(2, 5), groupOf(c)})
	if d := got[2].decision; d.Allowed || d.Remaining != 2 || d.RetryAfter != time.Hour {
		t.Errorf("5 of 20, of which 10 are reserved and 8 are spent: got %+v", got[2])
	}
}

// TestBusyFullRing: requests for one ring that must move in a later call are all put off.
func TestBusyFullRing(t *testing.T) {
	const rings = 20
	r := newRig(t)
	clock := int64(1_000_000_000_000)
	checks, _, _ := r.fullRings(clock, rings)
	var requests []request
	for i := range rings + 1 {
		requests = append(requests, one(&checks[min(i, rings-1)]))
	}
	for i, got := range r.run(clock+1, requests...)[rings-1:] {
		if got != putOff {
			t.Errorf("request %d for the last ring: got %+v, want %+v", i, got, putOff)
		}
	}
}
