package redisstore

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// mostMoved is how many bytes of rings one call may move: what take.lua allows, and
// one ring of 10,000 slots with which it passes that.
const mostMoved = 256<<10 + 131 + 9*10_000

// TestRingsThatMoveTogether charges 256 logs together that have the same size all the
// time. It proves that a few of them move in each call, both when they grow and when
// they shrink, that all move before they are full, and that the answers are those of
// package window.
func TestRingsThatMoveTogether(t *testing.T) {
	const (
		logs  = 256
		full  = 8202 // slots of a ring that has no room left
		begin = full - full/16 - 10
	)
	r := newRig(t)
	clock := int64(1_000_000_000_000)
	c := window.Check{Limit: window.Limit{Hits: 10_000, Window: time.Hour}, Cost: 1}
	var log []byte // as package window has it
	var want window.Decision
	for range begin {
		clock++
		log = reference.Take(log, clock, &c, &want)
	}
	var q request
	var keys []string
	for i := range logs {
		own := c
		own.Key = fmt.Sprint("log", i)
		q.asks = append(q.asks, ask{Check: &own})
		keys = append(keys, string(script.AppendKey(nil, "", own.Log())))
		if err := r.client.Set(t.Context(), keys[i], log, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}

	// charge charges all logs at each microsecond until all have moved. It returns
	// how many calls that took.
	charge := func() (calls int) {
		sizes := r.lengths(keys)
		moved := make(map[string]bool)
		for ; len(moved) < logs; calls++ {
			if calls == full/16 {
				t.Fatalf("after %d calls only %d of %d rings have moved", calls, len(moved), logs)
			}
			clock++
			log = reference.Take(log, clock, &c, &want)
			for i, a := range r.run(clock, q) {
				if a.decision != want {
					t.Fatalf("log %d: got %+v, want %+v", i, a.decision, want)
				}
			}
			before, bytes := sizes, 0
			sizes = r.lengths(keys)
			for i, size := range sizes {
				if size != before[i] {
					moved[keys[i]] = true
					bytes += size
				}
			}
			if bytes > mostMoved {
				t.Fatalf("one call moved %d bytes, want at most %d", bytes, mostMoved)
			}
		}
		return calls
	}
	if calls := charge(); calls < logs*len(log)/mostMoved {
		t.Errorf("all rings grew in %d calls", calls)
	}
	clock += c.Limit.Window.Microseconds() - 2000 // the newest 1,000 or so are left
	if calls := charge(); calls < 2 {
		t.Errorf("all rings shrank in %d call", calls)
	}
}

// fullRings plants rings that have no room left for another slot and returns one check
// of each, their keys, and the bytes of each.
func (r *rig) fullRings(clock int64, rings int) (checks []window.Check, keys []string, log []byte) {
	r.t.Helper()
	const slots = 8202
	c := window.Check{Limit: window.Limit{Hits: 10_000, Window: time.Hour}, Cost: 1}
	var d window.Decision
	for i := range slots {
		log = reference.Take(log, clock-slots+int64(i), &c, &d)
	}
	for i := range rings {
		own := c
		own.Key = fmt.Sprint("ring", i)
		checks = append(checks, own)
		keys = append(keys, string(script.AppendKey(nil, "", own.Log())))
		if err := r.client.Set(r.t.Context(), keys[i], log, time.Hour).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	return checks, keys, log
}

// putOff is the answer to every check of a group that is put off.
var putOff = answer{outcome: 3, decision: window.Decision{Remaining: 1}}

// TestFullRingsThatAreChargedTogether charges rings that are full already in one call.
// It proves that no call moves more than a few of them, that a group which is put off
// charges nothing, and that the next calls get on with it until the group is charged.
func TestFullRingsThatAreChargedTogether(t *testing.T) {
	const rings = 20
	group := func(modes ...window.Mode) func([]window.Check) []request {
		return func(checks []window.Check) []request {
			var q request
			for i := range checks {
				checks[i].Mode = modes[min(i, len(modes)-1)]
				q.asks = append(q.asks, ask{Check: &checks[i]})
			}
			return []request{q}
		}
	}
	each := func(mode window.Mode) func([]window.Check) []request {
		return func(checks []window.Check) (all []request) {
			for i := range checks {
				checks[i].Mode = mode
				all = append(all, one(&checks[i]))
			}
			return all
		}
	}
	for name, ask := range map[string]func([]window.Check) []request{
		"one request":                  group(window.Enforce),
		"one of observed limits":       group(window.Observe),
		"one of alternatives":          group(window.Any),
		"one that always charges":      group(window.Always),
		"one that always charges some": group(window.Always, window.Always, window.Enforce),
		"one that refunds and charges": group(window.Refund, window.Always, window.Enforce),
		"one that always charges more than the limits": func(checks []window.Check) []request {
			for i := range checks {
				checks[i].Limit.Hits = 8202 // as many as each log holds
			}
			return group(window.Always)(checks)
		},
		"each in a request":                     each(window.Enforce),
		"each in a request that always charges": each(window.Always),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			clock := int64(1_000_000_000_000)
			checks, keys, log := r.fullRings(clock, rings)
			requests := ask(checks)
			sizes := r.lengths(keys)
			calls := 0
			for ; len(requests) > 0; calls++ {
				if calls == rings {
					t.Fatalf("%d calls have not charged %d full rings", calls, rings)
				}
				clock++
				answers := r.run(clock, requests...)
				before, moved := sizes, 0
				sizes = r.lengths(keys)
				for i, size := range sizes {
					if size != before[i] {
						moved += size
					}
				}
				if moved > mostMoved || moved == 0 {
					t.Errorf("call %d moved %d bytes, want some, and at most %d", calls, moved, mostMoved)
				}
				var left []request
				for _, q := range requests {
					own := answers[:len(q.asks)]
					answers = answers[len(own):]
					off := own[0] == putOff
					for i, a := range q.asks {
						c := *a.Check
						value, err := r.client.Get(t.Context(), string(script.AppendKey(nil, "", c.Log()))).Bytes()
						if err != nil {
							t.Fatal(err)
						}
						var want, got window.Decision
						asks := window.Check{Key: c.Key, Limit: c.Limit, Mode: window.Observe}
						charged := log
						if !off {
							charged = reference.Take(append([]byte(nil), log...), clock, &c, &want)
							if own[i].decision != want {
								t.Errorf("call %d, %s: got %+v, want %+v", calls, c.Key, own[i].decision, want)
							}
						} else if own[i] != putOff {
							t.Errorf("call %d, %s: got %+v, others of the group are put off", calls, c.Key, own[i])
						}
						// What later calls see of the log is what was charged, and no more.
						reference.Take(append([]byte(nil), charged...), clock, &asks, &want)
						reference.Take(value, clock, &asks, &got)
						if got != want {
							t.Errorf("call %d, %s: the log says %+v, want %+v", calls, c.Key, got, want)
						}
					}
					if off {
						left = append(left, q)
					}
				}
				requests = left
			}
			if least := rings * len(log) / mostMoved; calls < least {
				t.Errorf("all were charged in %d calls, want at least %d", calls, least)
			}
		})
	}
}

// TestDeniedFullRings proves that a group which is denied writes nothing, however many
// of its rings are full.
func TestDeniedFullRings(t *testing.T) {
	r := newRig(t)
	clock := int64(1_000_000_000_000)
	checks, _, _ := r.fullRings(clock, 20)
	checks[7].Limit.Hits = 100
	var q request
	for i := range checks {
		q.asks = append(q.asks, ask{Check: &checks[i]})
	}
	before := r.changes()
	for i, a := range r.run(clock, q) {
		if a == putOff || a.decision.Allowed == (i == 7) {
			t.Errorf("check %d: got %+v", i, a)
		}
	}
	if after := r.changes(); after != before {
		t.Errorf("a denial made %s changes, before it were %s", after, before)
	}
}

// TestPutOff proves that the store asks again for a request that the script puts off,
// so that the caller does not learn of it.
func TestPutOff(t *testing.T) {
	r := newRig(t)
	now, err := r.client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	checks, _, _ := r.fullRings(now.UnixMicro(), 20)
	s := New(r.client, Options{Timeout: 10 * time.Second})
	defer s.Close()
	decisions := make([]window.Decision, len(checks))
	if _, err := s.Take(t.Context(), window.MayWait, checks, decisions); err != nil {
		t.Fatal(err)
	}
	for i, d := range decisions {
		if want := checks[i].Limit.Hits - 8203; !d.Allowed || d.Remaining != want {
			t.Errorf("ring %d: got %+v, want it allowed and %d left", i, d, want)
		}
	}
}

// TestDebtIsBounded proves that the script rounds the times of debt as package window
// does, once a log has 10,000 slots.
func TestDebtIsBounded(t *testing.T) {
	r := newRig(t)
	for _, win := range []time.Duration{time.Second, 7*24*time.Hour + 1234567*time.Microsecond} {
		clock := int64(1_000_000_000_000)
		unit := packed.Unit(win).Microseconds()
		c := window.Check{Key: "debt", Limit: window.Limit{Hits: 9000, Window: win}, Cost: 1, Mode: window.Always}
		var log []byte
		var want window.Decision
		for range window.ExactHits - 5 {
			clock += unit
			log = reference.Take(log, clock, &c, &want)
		}
		key := string(script.AppendKey(nil, "", c.Log()))
		if err := r.client.Set(t.Context(), key, log, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			clock += max(win.Microseconds()/window.ExactHits/7, 1)
			log = reference.Take(log, clock, &c, &want)
			got := r.take(clock, &c, 0)
			if got.decision != want || !bytes.Equal(withoutExpiry(got.log), withoutExpiry(log)) {
				t.Fatalf("window %v, charge %d: got %+v and %d bytes, want %+v and %d bytes", win, i, got.decision, len(got.log), want, len(log))
			}
		}
	}
}

// lengths returns the bytes of the values under keys.
func (r *rig) lengths(keys []string) []int {
	r.t.Helper()
	var cmds []*redis.IntCmd
	_, err := r.client.Pipelined(r.t.Context(), func(p redis.Pipeliner) error {
		for _, key := range keys {
			cmds = append(cmds, p.StrLen(r.t.Context(), key))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	sizes := make([]int, len(keys))
	for i, cmd := range cmds {
		sizes[i] = int(cmd.Val())
	}
	return sizes
}
