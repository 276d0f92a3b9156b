package redisstore

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
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
		log = window.Take(log, clock, &c, &want)
	}
	var q request
	var keys []string
	for i := range logs {
		own := c
		own.Key = fmt.Sprint("log", i)
		q.asks = append(q.asks, ask{Check: &own})
		keys = append(keys, string(appendKey(nil, "", own.Log())))
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
			log = window.Take(log, clock, &c, &want)
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

// TestDebtIsBounded proves that the script rounds the times of debt as package window
// does, once a log has 10,000 slots.
func TestDebtIsBounded(t *testing.T) {
	r := newRig(t)
	for _, win := range []time.Duration{time.Second, 7*24*time.Hour + 1234567*time.Microsecond} {
		clock := int64(1_000_000_000_000)
		unit := unitOf(win)
		c := window.Check{Key: "debt", Limit: window.Limit{Hits: 10, Window: win}, Cost: 1, Mode: window.Always}
		var log []byte
		var want window.Decision
		for range window.ExactHits - 5 {
			clock += unit
			log = window.Take(log, clock, &c, &want)
		}
		key := string(appendKey(nil, "", c.Log()))
		if err := r.client.Set(t.Context(), key, log, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			clock += max(win.Microseconds()/window.ExactHits/7, 1)
			log = window.Take(log, clock, &c, &want)
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
