package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/test/random"
)

// counting are the policies that keep a few numbers instead of a log.
var counting = []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter}

// takeState decides a group of one check on the bytes of a value, as package window does.
func takeState(value []byte, clock int64, c *window.Check) (after []byte, d window.Decision, corrupt bool) {
	var s packed.State
	s.Look(value, clock, c)
	corrupt = s.Corrupt()
	room, cut := s.Room(c), false
	if c.Mode == window.Refund {
		s.Refund(c)
	} else {
		var group window.Verdict
		group.Add(c.Mode, room)
		if c.Mode.Charged(group.Allowed(), room) {
			cut = s.Recordable(c) < c.Cost
			s.Charge(c)
		}
	}
	s.Answer(c, room, &d)
	d.Cut = cut
	return s.Log(), d, corrupt
}

// A countersRandom makes random checks of one policy on one log.
type countersRandom struct {
	*rand.Rand
	policy window.Policy
	win    time.Duration
	anchor int64 // of the calendar, in seconds
}

func newCountersRandom(r *rand.Rand, p window.Policy) *countersRandom {
	windows := []time.Duration{10 * time.Millisecond, time.Second, 7777777 * time.Microsecond, time.Hour, 7 * 24 * time.Hour, window.MaxWindow - 7*time.Microsecond, window.MaxWindow}
	cr := &countersRandom{Rand: r, policy: p, win: windows[r.IntN(len(windows))]}
	if p == window.Calendar {
		cr.win = []time.Duration{time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour}[r.IntN(4)]
		cr.anchor = r.Int64N(int64(cr.win / time.Second))
	}
	return cr
}

// check returns a check for a store whose clock is at clock.
func (r *countersRandom) check(clock int64) *window.Check {
	costs := []uint64{0, 1, 1, 1, 2, 5, 30, uint64(r.Uint32()), 5_000_000_000, 1<<53 - r.Uint64N(3), r.Uint64N(1 << 53), 1<<53 + 1, math.MaxUint64}
	c := &window.Check{
		Key:   "k",
		Limit: window.Limit{Hits: []uint64{1, 3, 20, 100, 1000, uint64(r.Uint32()), 4294967294, 4294967296, r.Uint64N(1 << 53), 1 << 52, window.MaxHits - 1, window.MaxHits}[r.IntN(12)], Window: r.win, Policy: r.policy},
		Cost:  costs[r.IntN(len(costs))],
	}
	if r.IntN(2) == 0 {
		c.Mode = window.Mode(r.IntN(5))
	}
	if c.Mode.Unconditional() && r.IntN(8) == 0 {
		c.Limit.Hits = 0
	}
	switch r.policy {
	case window.TokenBucket:
		c.Limit.Rate = []uint32{1, 3, 7, 10, 600, math.MaxUint32, 1 + r.Uint32()>>r.IntN(32)}[r.IntN(7)]
		for c.Limit.Valid() != nil { // a burst that takes too long to come back
			c.Limit.Hits = 1 + c.Limit.Hits/2
			c.Limit.Rate = uint32(min(1+2*uint64(c.Limit.Rate), math.MaxUint32))
		}
	case window.Calendar:
		length := int64(r.win / time.Second)
		if r.IntN(20) == 0 {
			r.anchor = r.Int64N(length)
		}
		now := clock/1e6 + []int64{0, 0, 0, 59, -59}[r.IntN(5)]
		start := (now-r.anchor)/length*length + r.anchor
		c.Period = window.Period{Start: start, End: start + length, Next: start + 2*length}
	}
	return c
}

// advance moves the clock on, by little or much, and sometimes back.
func (r *countersRandom) advance(clock int64) int64 {
	micros := r.win.Microseconds()
	switch r.IntN(8) {
	case 0:
		return clock
	case 1:
		return clock + 1
	case 2:
		return clock + r.Int64N(micros)
	case 3:
		return clock + r.Int64N(4*micros)
	case 4:
		return clock/micros*micros + micros - r.Int64N(3)
	case 5:
		return max(clock-r.Int64N(2*micros), start)
	default:
		return clock + r.Int64N(1+micros/10)
	}
}

// TestCounters proves that the script decides, answers and writes what package window does,
// byte by byte, for every policy that counts without a log: in long histories, and with
// values that are damaged.
func TestCounters(t *testing.T) {
	r := newRig(t)
	rnd := random.Rand(t, 1)
	met := make(map[string]int)
	const untouched = 200 * 365 * 24 * time.Hour // an expiry that the script does not set
	for steps, all := 0, random.Steps(t, 6000, 40_000); steps < all; {
		cr := newCountersRandom(rnd, counting[rnd.IntN(len(counting))])
		clock := start + rnd.Int64N(1_000_000*second)
		var value []byte
		expires, planted := int64(0), false // of the key, by the script's clock
		r.client.FlushDB(t.Context())
		for range 1 + rnd.IntN(60) {
			steps++
			clock = cr.advance(clock)
			c := cr.check(clock)
			if c.Limit.Policy == window.Calendar && !c.Period.Covers(clock) {
				continue
			}
			if rnd.IntN(30) == 0 && len(value) > 0 {
				value = damage(rnd, value)
				if rnd.IntN(2) == 0 && len(value) > 0 {
					value[0] = 0xa0 + byte(cr.policy)
				}
				if err := r.client.Set(t.Context(), KeyName("", c.Log()), value, 0).Err(); err != nil {
					t.Fatal(err)
				}
				planted = true
			}
			r.client.PExpire(t.Context(), KeyName("", c.Log()), untouched)
			if len(value) > 8 {
				value[8] = 0 // the mark, which only Redis has
			}
			after, want, corrupt := takeState(bytes.Clone(value), clock, c)
			got := r.take(clock, c, 0)
			what := fmt.Sprintf("step %d: %x, %+v at %d", steps, value, *c, clock)
			if diff := cmp.Diff(want, got.decision); diff != "" || corrupt != got.corrupt && len(value) > 0 {
				t.Fatalf("%s: corrupt %t, want %t (-want +got)\n%s", what, got.corrupt, corrupt, diff)
			}
			if len(got.log) > 8 {
				got.log[8] = 0
			}
			if !bytes.Equal(after, got.log) {
				t.Fatalf("%s: the value is\n%x, want\n%x", what, got.log, after)
			}
			changed := after != nil && !bytes.Equal(after, value)
			if got.ttl < untouched/2 {
				expires, planted = clock+got.ttl.Microseconds(), false
			}
			if left := time.Duration(expires-clock) * time.Microsecond; changed && !planted && left <= want.ResetAfter && want.ResetAfter > 0 {
				t.Fatalf("%s: the key expires in %v, and counts for %v", what, left, want.ResetAfter)
			}
			if changed {
				met[cr.policy.String()+" "+c.Mode.String()]++
			}
			if corrupt {
				met[cr.policy.String()+" corrupt"]++
			}
			value = after
		}
	}
	t.Log(met)
	for _, p := range counting {
		for _, what := range []string{"enforce", "any", "observe", "always", "refund", "corrupt"} {
			if met[p.String()+" "+what] == 0 {
				t.Errorf("%v: no step with %q", p, what)
			}
		}
	}
}

// TestPeriodContradicts proves that a group is refused as a whole if the periods of one of
// its checks contradict the server's clock, and that other groups of the call are decided.
func TestPeriodContradicts(t *testing.T) {
	r := newRig(t)
	const hour = int64(3600)
	noon := start / second / hour * hour
	calendar := func(period int64) *window.Check {
		return &window.Check{
			Key: "k", Limit: window.Limit{Hits: 5, Window: time.Hour, Policy: window.Calendar}, Cost: 1,
			Period: window.Period{Start: noon + period*hour, End: noon + (period+1)*hour, Next: noon + (period+2)*hour},
		}
	}
	report := &window.Check{Key: "report", Limit: window.Limit{Hits: 5, Window: time.Hour}, Cost: 1, Mode: window.Always}
	other := &window.Check{Key: "other", Limit: window.Limit{Hits: 5, Window: time.Hour, Policy: window.Fixed}, Cost: 1}
	refused := answer{outcome: 3, decision: window.Decision{Remaining: 2}}
	for _, tt := range []struct {
		name   string
		clock  int64 // seconds after noon
		period int64
		covers bool
	}{
		{"in it", 1800, 0, true},
		{"in the next", hour + 1800, 0, true},
		{"after the next", 2 * hour, 0, false},
		{"the last microsecond of the next", 2*hour - 1, 0, true},
		{"a minute before it", -60, 0, true},
		{"more than a minute before it", -61, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.client.FlushDB(t.Context())
			c := calendar(tt.period)
			clock := (noon + tt.clock) * second
			if got := c.Period.Covers(clock); got != tt.covers {
				t.Fatalf("Covers is %t, want %t", got, tt.covers)
			}
			dated := ask{Check: c, flags: script.Dated}
			group := request{asks: []ask{{Check: report, flags: script.Dated}, {Check: c}, {Check: &window.Check{Key: "x", Limit: report.Limit, Cost: 1}}}}
			got := r.run(clock, request{asks: []ask{dated}}, one(other), group)
			alone := r.run(clock, request{asks: []ask{dated}})
			if !tt.covers {
				want := []answer{refused, got[1], refused, refused, refused}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if alone[0] != refused {
					t.Errorf("alone: got %+v, want %+v", alone[0], refused)
				}
			}
			if got[1].outcome != script.OutcomeAllowed {
				t.Errorf("the other group: %+v, want allowed", got[1])
			}
			keys := r.client.Exists(t.Context(), KeyName("", c.Log()), KeyName("", report.Log()), "x:3600000000").Val()
			if want := map[bool]int64{true: 3, false: 0}[tt.covers]; keys != want {
				t.Errorf("%d logs are there, want %d", keys, want)
			}
		})
	}

	s := New(r.client, Options{})
	defer s.Close()
	c := calendar(0) // years ago
	_, err := s.Take(t.Context(), window.MayWait, []window.Check{*report, *c}, make([]window.Decision, 2))
	if !errors.Is(err, window.ErrPeriod) || failure.Of(err) != failure.Period {
		t.Errorf("got error %v of class %q, want %v of class %q", err, failure.Of(err), window.ErrPeriod, failure.Period)
	}
}

// TestKeyNames proves that the names of the logs of all policies are different, and can be
// parsed.
func TestKeyNames(t *testing.T) {
	names := make(map[string]window.LogID)
	for p := window.Sliding; p <= window.InFlight; p++ {
		for _, key := range []string{"k", "k:b10", "k:h", "{a:1}:c:3600000000", "\x00:"} {
			id := window.Check{Key: key, Limit: window.Limit{Window: time.Hour, Policy: p}}.Log()
			name := KeyName("", id)
			if other, ok := names[name]; ok {
				t.Errorf("%+v and %+v are both called %q", id, other, name)
			}
			names[name] = id
			if got, ok := ParseKeyName(name); !ok || got != id {
				t.Errorf("%q: got %+v, %t, want %+v", name, got, ok, id)
			}
		}
	}
	for _, name := range []string{"", "k", ":10", "k:", "k:b", "k:x10", "k:h10", "k:-1", "k:+1", "k:b-1", "k:b+1", "k:bb1", "k:0", "k:1 reset", "k:99999999999999999999"} {
		if got, ok := ParseKeyName(name); ok {
			t.Errorf("%q: got %+v, want no log", name, got)
		}
	}
}

// TestRestores proves that a charge is given back in its own period alone, so that it takes
// nothing from those who have charged since.
func TestRestores(t *testing.T) {
	r := newRig(t)
	const hour = 3600 * second
	begin := start / hour * hour
	for _, tt := range []struct {
		policy window.Policy
		wait   int64 // from the charge until it is given back, in microseconds
		others int64 // from the charge until others charge 2
		left   uint64
	}{
		{window.TokenBucket, 0, 0, 8},
		{window.TokenBucket, hour, hour, 10}, // full anyway
		{window.Fixed, 0, 0, 8},
		{window.Fixed, hour, hour, 8}, // nothing is given back
		{window.Fixed, hour, 0, 10},
		{window.Calendar, 0, 0, 8},
		{window.Calendar, hour, hour, 8},
		{window.SlidingCounter, 0, 0, 8},
		{window.SlidingCounter, hour, hour, 8},         // from the previous window
		{window.SlidingCounter, 2 * hour, 2 * hour, 8}, // nothing
	} {
		t.Run(fmt.Sprint(tt.policy, tt.wait, tt.others), func(t *testing.T) {
			r.client.FlushDB(t.Context())
			check := func(cost uint64) *window.Check {
				c := &window.Check{Key: "k", Limit: window.Limit{Hits: 10, Window: time.Hour, Policy: tt.policy}, Cost: cost}
				switch tt.policy {
				case window.TokenBucket:
					c.Limit.Rate = 10
				case window.Calendar:
					c.Period = window.Period{Start: begin / second, End: (begin + hour) / second, Next: (begin + 2*hour) / second}
				}
				return c
			}
			c := check(5)
			got := r.run(begin, one(c))[0]
			p := subRequest{check: c, decision: &got.decision}
			p.charged("", begin, true)
			r.run(begin+tt.others, one(check(2)))

			refund := check(5)
			refund.Mode = window.Refund
			keys, argv := arguments([]request{{asks: []ask{{Check: refund, flags: script.Restores}}}})
			packed := []byte(argv[0])
			if tt.policy != window.TokenBucket {
				script.PutRestores(packed[script.InstantBytes:], p.charge.periodEnd)
			}
			cmd := r.evalsha(r.script, begin+tt.wait, keys, []string{string(packed)})
			if err := r.client.Process(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
			if got := r.answers(cmd, begin+tt.wait, 1)[0]; got.outcome != script.OutcomeAllowed {
				t.Errorf("the answer is %+v, want allowed", got)
			}
			if got := r.run(begin+tt.wait, one(check(0)))[0]; got.decision.Remaining != tt.left {
				t.Errorf("%d hits remain, want %d", got.decision.Remaining, tt.left)
			}
		})
	}
}
