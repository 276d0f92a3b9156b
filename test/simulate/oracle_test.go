package simulate

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	second = time.Second
	half   = second / 2
)

// newTrial returns a world without a run, and a key of it on the first of n servers.
func newTrial(instances, n int, limit window.Limit) (*world, *key) {
	w := &world{plan: &plan{Length: 10 * second, Instances: instances}}
	for i := range n {
		w.servers = append(w.servers, newServer(w, i))
	}
	k := newKey(&keySpec{Limit: limit, Joins: -1, Costs: 1})
	k.owners = []owner{{-counted, w.servers[0]}}
	return w, k
}

// passed returns a request of a key at each moment. The store, or an instance without it, has admitted it.
func passed(k *key, byStore bool, at ...time.Duration) (all []*op) {
	for _, t := range at {
		all = append(all, &op{keys: []*key{k}, cost: 1, begin: t, end: t + time.Millisecond, answer: allowed, byStore: []bool{byStore}})
	}
	return all
}

// TestAResetInBetween: a reset empties a log at some moment between its begin and its end. What passes before and after
// that, and meanwhile, exceeds no limit. What passes before its begin, or after its end, may.
func TestAResetInBetween(t *testing.T) {
	for _, tt := range []struct {
		name   string
		passes []time.Duration
		broken bool
	}{
		{"before, and meanwhile", []time.Duration{1 * second, 2 * second, 4 * second, 5 * second}, false},
		{"meanwhile, and after", []time.Duration{4 * second, 5 * second, 7 * second, 8 * second}, false},
		{"before", []time.Duration{1 * second, 2 * second, 2 * second}, true},
		{"after", []time.Duration{7 * second, 7 * second, 8 * second}, true},
	} {
		w, k := newTrial(1, 1, window.Limit{Hits: 2, Window: total})
		k.resets = []reset{{begun: 3 * second, at: 6 * second}}
		if w.judgeWindows(k, passed(k, true, tt.passes...)); (len(w.broken) > 0) != tt.broken {
			t.Errorf("%s: %q", tt.name, w.broken)
		}
	}
}

// TestAMovedLog: a log that has moved to a server whose clock is behind may expire there before this clock has caught
// up, or later by as much too early. What passes before the move, or after it, exceeds no limit otherwise.
func TestAMovedLog(t *testing.T) {
	const moved = 3 * second
	for _, tt := range []struct {
		name   string
		ahead  time.Duration // the clock of the second server, of that of the first one
		passes []time.Duration
		broken bool
	}{
		{"behind: before, and after", -second, []time.Duration{1 * second, 2 * second, 4 * second, 5 * second}, false},
		{"behind: before", -second, []time.Duration{1 * second, 2 * second, 2 * second}, true},
		{"behind: after", -second, []time.Duration{4 * second, 5 * second, 6 * second}, true},
		{"behind: after, in all but a second of a window", -second, []time.Duration{4 * second, 5 * second, 4*second + total - half}, false},
		{"the same: before, and after", 0, []time.Duration{1 * second, 2 * second, 4 * second}, true},
		{"ahead: before, and after", second, []time.Duration{1 * second, 2 * second, 4 * second}, true},
	} {
		w, k := newTrial(1, 2, window.Limit{Hits: 2, Window: total})
		w.servers[1].clocks[0].offset = tt.ahead
		k.owners = append(k.owners, owner{moved, w.servers[1]})
		if w.judgeWindows(k, passed(k, true, tt.passes...)); (len(w.broken) > 0) != tt.broken {
			t.Errorf("%s: %q", tt.name, w.broken)
		}
	}
}

// TestCallsThatWait: a call that has waited in a frozen server must be refused, unless that clock was set back or the
// deadline is by a clock that is ahead, of the server that had the slot before.
func TestCallsThatWait(t *testing.T) {
	const now = 8 * second
	for _, tt := range []struct {
		name         string
		moved, ahead time.Duration
		setBack      bool
		inTime       bool
	}{
		{"nothing", 0, 0, false, false},
		{"from a clock ahead", now - second, second, false, true},
		{"from a clock behind", now - second, -second, false, false},
		{"from the same clock", now - second, 0, false, false},
		{"from a clock ahead, long ago", now - setBack - second, second, false, false},
		{"set back", 0, 0, true, true},
	} {
		w, k := newTrial(1, 2, window.Limit{Hits: 2, Window: second})
		s := w.servers[0]
		if tt.moved > 0 {
			s.clocks[0].offset = tt.ahead
			s = w.servers[1]
			k.owners = append(k.owners, owner{tt.moved, s})
		}
		if tt.setBack {
			s.clocks = append(s.clocks, clockAt{now - second, -second})
		}
		if got := k.seemsInTime(s, now); got != tt.inTime {
			t.Errorf("%s: in time is %t", tt.name, got)
		}
	}
}

// TestWithoutTheStore: each of three instances admits one request without the store, in each window of a limit of one.
// Around a boundary, one more passes.
func TestWithoutTheStore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		passes []time.Duration
		broken bool
	}{
		{"two windows", []time.Duration{0, 0, 0, second, second, second}, false},
		{"one window", []time.Duration{0, 0, half, half, half}, true},
	} {
		w, k := newTrial(3, 1, window.Limit{Hits: 1, Window: second})
		if w.judgeWindows(k, passed(k, false, tt.passes...)); (len(w.broken) > 0) != tt.broken {
			t.Errorf("%s: %q", tt.name, w.broken)
		}
	}
}

// TestInTime: a request has an answer within the store's timeout. One whose tier must be read, or whose lease may be denied, may
// take as long as Envoy waits.
func TestInTime(t *testing.T) {
	const more = 2 * time.Millisecond
	for _, tt := range []struct {
		name   string
		tiers  bool
		lease  time.Duration
		took   time.Duration
		broken bool
	}{
		{"late", false, 0, storeTimeout + more, true},
		{"with a tier", true, 0, storeTimeout + more, false},
		{"with a tier, and late", true, 0, envoyTimeout + more, true},
		{"with a lease", false, second, storeTimeout + more, false},
		{"with a lease, and late", false, second, envoyTimeout + more, true},
	} {
		w, k := newTrial(1, 1, window.Limit{Hits: 1, Window: second})
		k.Tiers, k.Lease.Length = tt.tiers, tt.lease
		w.ops = []*op{{keys: []*key{k}, instance: new(instance), end: tt.took}}
		if w.judgeTimes(); (len(w.broken) > 0) != tt.broken {
			t.Errorf("%s: %q", tt.name, w.broken)
		}
	}
}

// TestRetries: a caller that waits for Retry-After passes. A denial that is repeated from memory does not know of a
// request that took the quota at another instance, nor of a clock that was set back.
func TestRetries(t *testing.T) {
	const memory = 0 // how long a denial from memory takes
	for _, tt := range []struct {
		name         string
		took         time.Duration // by the first denial
		other, clock bool          // what has happened before: the request that passes is at another instance; the clock was set back
		broken       bool
	}{
		{"from memory: another instance", memory, true, false, false},
		{"from memory: the same instance", memory, false, false, true},
		{"from memory: the clock", memory, false, true, false},
		{"by the store: another instance", time.Millisecond, true, false, true},
		{"by the store: the clock", time.Millisecond, false, true, true},
	} {
		w, k := newTrial(2, 1, window.Limit{Hits: 2, Window: total})
		k.Patient = true
		one, other := new(instance), new(instance)
		all := passed(k, true, 1*second, 1*second+half, 2*second)
		for _, o := range all {
			o.instance, o.caller = one, "caller"
		}
		if tt.other {
			all[0].instance = other
		}
		if tt.clock {
			w.servers[0].clocks = append(w.servers[0].clocks, clockAt{1*second + half/2, -half})
		}
		first := all[1]
		first.answer, first.retryAfter, first.end = denied, half/2, first.begin+tt.took
		all[2].answer, all[2].retryAfter = denied, half
		if w.judgeRetries(k, all); (len(w.broken) > 0) != tt.broken {
			t.Errorf("%s: %q", tt.name, w.broken)
		}
	}
}
