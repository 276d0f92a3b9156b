package packed

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// counting are the policies that keep a few numbers for each log.
var counting = []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter}

// takeState decides a group of one check on the bytes of a log of any policy.
func takeState(log []byte, clock int64, c *window.Check, d *window.Decision) []byte {
	var s State
	s.Look(log, clock, c)
	return takeLooked(&s, c, d)
}

// takeLooked is takeState for a log that the state shows.
func takeLooked(s *State, c *window.Check, d *window.Decision) []byte {
	var group window.Verdict
	room := s.Room(c)
	group.Add(c.Mode, room)
	switch {
	case c.Mode == window.Refund:
		s.Refund(c)
	case c.Mode.Charged(group.Allowed(), room):
		s.Charge(c)
	}
	s.Answer(c, room, d)
	return s.Log()
}

// A naiveCount is a log of one of the other policies in exact arithmetic. It says what remains
// of a limit now, and changes it. Waits are found by asking at later times.
type naiveCount interface {
	// at makes the log that of a later time. given is the store's clock, which may be behind.
	at(clock, given int64, c *window.Check)
	// free returns how much fits, below zero if there is debt, of the limit of the check.
	free(c *window.Check) int64
	empty(c *window.Check) bool
	charge(c *window.Check)
	refund(c *window.Check)
	copyOf() naiveCount
}

func newNaiveCount(p window.Policy) naiveCount {
	switch p {
	case window.TokenBucket:
		return &naiveBucket{}
	case window.SlidingCounter:
		return &naiveCounter{hits: map[int64]int64{}}
	default:
		return &naivePeriod{}
	}
}

type naiveBucket struct {
	there  bool
	clock  int64
	tokens *big.Rat
}

func rat(n uint64) *big.Rat { return new(big.Rat).SetInt(new(big.Int).SetUint64(n)) }

// naiveMaxDebt is one limit, or as much as a log can hold besides the limit.
func naiveMaxDebt(c *window.Check) uint64 { return min(c.Limit.Hits, 1<<53-1-c.Limit.Hits) }

// naiveCost is as much of a cost as makes the debt the largest.
func naiveCost(c *window.Check, n naiveCount) uint64 {
	return min(c.Cost, uint64(max(n.free(c)+int64(naiveMaxDebt(c)), 0)))
}

func (n *naiveBucket) at(clock, _ int64, c *window.Check) {
	burst := rat(c.Limit.Hits)
	if !n.there {
		n.tokens, n.clock = burst, clock
		return
	}
	if least := new(big.Rat).Neg(rat(naiveMaxDebt(c))); n.tokens.Cmp(least) < 0 {
		n.tokens = least
	}
	passed := new(big.Rat).SetFrac(big.NewInt(clock-n.clock), big.NewInt(c.Limit.Window.Microseconds()))
	n.tokens = new(big.Rat).Add(n.tokens, passed.Mul(passed, rat(uint64(c.Limit.Rate))))
	n.clock = clock
	if n.tokens.Cmp(burst) > 0 {
		n.tokens = burst
	}
}

func (n *naiveBucket) floor() *big.Int {
	q, _ := new(big.Int).DivMod(n.tokens.Num(), n.tokens.Denom(), new(big.Int))
	return q
}
func (n *naiveBucket) free(*window.Check) int64   { return n.floor().Int64() }
func (n *naiveBucket) empty(c *window.Check) bool { return n.tokens.Cmp(rat(c.Limit.Hits)) == 0 }
func (n *naiveBucket) charge(c *window.Check) {
	cost := new(big.Int).SetUint64(c.Cost)
	if most := new(big.Int).Add(n.floor(), rat(naiveMaxDebt(c)).Num()); n.floor().Cmp(cost) < 0 && cost.Cmp(most) > 0 {
		cost = most
	}
	if cost.Sign() > 0 {
		n.there = true
		n.tokens = new(big.Rat).Sub(n.tokens, new(big.Rat).SetInt(cost))
	}
}

func (n *naiveBucket) refund(c *window.Check) {
	if c.Cost == 0 || n.empty(c) {
		return
	}
	n.there = true
	if n.tokens = new(big.Rat).Add(n.tokens, rat(c.Cost)); n.tokens.Cmp(rat(c.Limit.Hits)) > 0 {
		n.tokens = rat(c.Limit.Hits)
	}
}
func (n *naiveBucket) copyOf() naiveCount { m := *n; return &m }

type naivePeriod struct {
	used, end, next int64
}

func (n *naivePeriod) at(clock, given int64, c *window.Check) {
	n.next = c.Limit.Window.Microseconds()
	for n.next <= clock {
		n.next += c.Limit.Window.Microseconds() * max(1, (clock-n.next)/c.Limit.Window.Microseconds())
	}
	if p := c.Period; p != (window.Period{}) {
		for _, end := range []int64{p.Start, p.End, p.Next} {
			n.next = end * 1e6
			if n.next > given {
				break
			}
		}
	}
	if n.end <= clock {
		n.used, n.end = 0, n.next
	}
}
func (n *naivePeriod) free(c *window.Check) int64 { return int64(c.Limit.Hits) - n.used }
func (n *naivePeriod) empty(*window.Check) bool   { return n.used == 0 }
func (n *naivePeriod) charge(c *window.Check) {
	if cost := naiveCost(c, n); cost > 0 {
		n.used, n.end = n.used+int64(cost), max(n.end, n.next)
	}
}

func (n *naivePeriod) refund(c *window.Check) {
	if give := min(c.Cost, uint64(n.used)); give > 0 {
		n.used, n.end = n.used-int64(give), max(n.end, n.next)
	}
}
func (n *naivePeriod) copyOf() naiveCount { m := *n; return &m }

type naiveCounter struct {
	clock, win int64
	hits       map[int64]int64 // by the number of the window
}

func (n *naiveCounter) at(clock, _ int64, c *window.Check) {
	n.clock, n.win = clock, c.Limit.Window.Microseconds()
}
func (n *naiveCounter) now() int64 { return n.clock / n.win }
func (n *naiveCounter) free(c *window.Check) int64 {
	share := new(big.Rat).SetFrac(big.NewInt((n.now()+1)*n.win-n.clock), big.NewInt(n.win))
	share.Mul(share, new(big.Rat).SetInt64(n.hits[n.now()-1]))
	up, rest := new(big.Int).DivMod(share.Num(), share.Denom(), new(big.Int))
	used := up.Int64() + n.hits[n.now()]
	if rest.Sign() > 0 {
		used++
	}
	return int64(c.Limit.Hits) - used
}
func (n *naiveCounter) empty(*window.Check) bool { return n.hits[n.now()]+n.hits[n.now()-1] == 0 }
func (n *naiveCounter) charge(c *window.Check) {
	n.hits[n.now()] += int64(naiveCost(c, n))
}

func (n *naiveCounter) refund(c *window.Check) {
	give := c.Cost
	for _, i := range []int64{n.now(), n.now() - 1} {
		some := min(give, uint64(n.hits[i]))
		n.hits[i] -= int64(some)
		give -= some
	}
}
func (n *naiveCounter) copyOf() naiveCount { m := *n; return &m }

// firstTime returns the first time from now on at which done, by bisection. Whatever waits
// for time only stays done.
func firstTime(n naiveCount, now int64, c *window.Check, done func(naiveCount) bool) int64 {
	at := func(clock int64) bool {
		m := n.copyOf()
		m.at(clock, clock, c)
		return done(m)
	}
	if at(now) {
		return now
	}
	low, high := now, now+1
	for !at(high) {
		low, high = high, now+2*(high-now)
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; at(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// naiveAnswer is what the contract says about a check.
func naiveAnswer(n naiveCount, given, now int64, c *window.Check) (d window.Decision) {
	need := int64(max(c.Cost, 1))
	d.Allowed = c.Mode == window.Refund || max(c.Cost, 1) <= c.Limit.Hits && n.free(c) >= need
	switch {
	case c.Mode == window.Refund:
		n.refund(c)
	case c.Mode == window.Always, d.Allowed:
		n.charge(c)
	}
	wait := func(done func(naiveCount) bool) time.Duration {
		return time.Duration(firstTime(n, now, c, done)-given) * time.Microsecond
	}
	d.Remaining = uint64(max(n.free(c), 0))
	d.Never = !d.Allowed && uint64(need) > c.Limit.Hits
	if n.empty(c) {
		return d
	}
	d.ResetAfter = wait(func(m naiveCount) bool { return m.empty(c) })
	if c.Limit.Hits > 0 {
		d.UnitAfter = wait(func(m naiveCount) bool { return m.free(c) > int64(d.Remaining) })
	}
	if !d.Allowed && !d.Never {
		d.RetryAfter = wait(func(m naiveCount) bool { return m.free(c) >= need })
	}
	return d
}

// A policyHistory makes the steps of one history on one log.
type policyHistory struct {
	r      *rand.Rand
	policy window.Policy
	win    int64
	burst  uint64
	rate   uint32
	clock  int64
	latest int64
	anchor int64 // seconds, of a calendar
}

var historyWindows = []time.Duration{10 * time.Millisecond, time.Second, 7*time.Second + 3*time.Microsecond, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 400 * 24 * time.Hour}

func newPolicyHistory(r *rand.Rand, p window.Policy) *policyHistory {
	h := &policyHistory{r: r, policy: p, clock: r.Int64N(3e15)}
	if r.IntN(4) == 0 {
		h.clock = r.Int64N(3e7)
	}
	h.win = historyWindows[r.IntN(len(historyWindows))].Microseconds()
	if p == window.Calendar {
		h.win = []int64{3600e6, 24 * 3600e6, 30 * 24 * 3600e6}[r.IntN(3)]
		h.anchor = r.Int64N(h.win / 1e6)
	}
	for h.limit(); ; h.limit() {
		if (window.Limit{Hits: h.burst, Window: time.Duration(h.win) * time.Microsecond, Policy: p, Rate: h.rate}).Valid() == nil {
			return h
		}
	}
}

// limit chooses another limit.
func (h *policyHistory) limit() {
	h.burst = []uint64{0, 1, 2, 3, 7, 10, 20, 30, 50, 100, 12345, math.MaxUint32 - 1, math.MaxUint32 + 1, 500_000e6, 1 << 52, 1<<53 - 1}[h.r.IntN(16)]
	if h.policy == window.TokenBucket {
		h.rate = []uint32{1, 3, 7, 10, 11, 1000, 99991, math.MaxUint32}[h.r.IntN(8)]
	}
}

// step returns the next check and its clock.
func (h *policyHistory) step() (int64, *window.Check) {
	r := h.r
	if r.IntN(12) == 0 {
		burst, rate := h.burst, h.rate
		if h.limit(); (window.Limit{Hits: h.burst, Window: time.Duration(h.win) * time.Microsecond, Policy: h.policy, Rate: h.rate}).Valid() != nil {
			h.burst, h.rate = burst, rate
		}
	}
	pace := h.win
	if h.policy == window.TokenBucket {
		pace = max(1, h.win/int64(h.rate))
	}
	switch r.IntN(10) {
	case 0:
		h.clock += r.Int64N(3 * h.win)
	case 1:
		h.clock = max(h.clock-r.Int64N(min(h.clock, h.win/2)+1), h.latest-h.win/2)
	case 2: // to an edge
		h.clock += h.win - h.clock%h.win - r.Int64N(2)
	case 3, 4:
		h.clock += r.Int64N(h.win)
	case 5, 6, 7:
		h.clock += r.Int64N(2*pace + 1)
	default:
	}
	h.latest = max(h.latest, h.clock)
	c := &window.Check{
		Key:   "k",
		Limit: window.Limit{Hits: h.burst, Window: time.Duration(h.win) * time.Microsecond, Policy: h.policy, Rate: h.rate},
		Cost:  []uint64{0, 1, 1, 1, 2, 3, 5, 10, h.burst / 3, h.burst / 2, h.burst, h.burst + 1, r.Uint64N(1 << 33), r.Uint64N(1 << 54), math.MaxUint64}[r.IntN(15)],
		Mode:  []window.Mode{window.Enforce, window.Enforce, window.Enforce, window.Any, window.Observe, window.Always, window.Refund}[r.IntN(7)],
	}
	if c.Mode == window.Always && r.IntN(3) > 0 {
		c.Cost = min(c.Cost, h.burst+3)
	}
	if h.policy == window.Calendar {
		if r.IntN(40) == 0 {
			h.anchor = r.Int64N(h.win / 1e6)
		}
		c.Period = h.period(h.clock)
		if r.IntN(10) == 0 { // the caller's clock is a little ahead, or a period behind
			c.Period = h.period(h.clock + 50e6)
			if late := h.period(max(h.clock-h.win, 0)); late.Covers(h.clock) && r.IntN(2) == 0 {
				c.Period = late
			}
		}
	}
	return h.clock, c
}

// period returns the period at a time: all have the length of the window.
func (h *policyHistory) period(clock int64) window.Period {
	length := h.win / 1e6
	start := (clock/1e6-h.anchor+2*length)/length*length + h.anchor - 2*length
	if start < 0 {
		return window.Period{End: start + length, Next: start + 2*length}
	}
	return window.Period{Start: start, End: start + length, Next: start + 2*length}
}

// TestPolicies compares every policy but Sliding with exact arithmetic.
func TestPolicies(t *testing.T) {
	for _, p := range counting {
		t.Run(p.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(20, uint64(p)))
			for range random.Steps(t, 15, 100) {
				comparePolicy(t, newPolicyHistory(r, p), 60, nil)
			}
		})
	}
}

// comparePolicy makes steps of a history and calls each for every one of them.
func comparePolicy(t *testing.T, h *policyHistory, steps int, each func(clock int64, c *window.Check, d window.Decision, before, after []byte)) {
	t.Helper()
	var (
		log   []byte
		last  int64 // the clock of the last write
		naive = newNaiveCount(h.policy)
		told  string
	)
	for range steps {
		clock, c := h.step()
		if _, ok := window.WithoutLog(c); ok {
			continue
		}
		told += fmt.Sprintf("%d %v cost %d of %d, rate %d / %v %v\n", clock, c.Mode, c.Cost, c.Limit.Hits, c.Limit.Rate, c.Limit.Window, c.Period)
		if err := window.Validate([]window.Check{*c}, make([]window.Decision, 1)); err != nil {
			t.Fatalf("%s%v", told, err)
		}
		before := bytes.Clone(log)
		var got window.Decision
		log = takeState(log, clock, c, &got)
		now := max(clock, last)
		unwritten := naive.copyOf()
		naive.at(now, clock, c)
		want := naiveAnswer(naive, clock, now, c)
		if got != want {
			t.Fatalf("%sgot  %+v\nwant %+v\nbefore %x\nafter  %x", told, got, want, before, log)
		}
		if bytes.Equal(before, log) {
			naive = unwritten // only writes count
		} else {
			last = now
		}
		compareDecoded(t, log, clock, c)
		if each != nil {
			each(clock, c, got, before, log)
		}
	}
}

// AskReading returns what package inspect answers to a check of cost 0, and what it says is used.
var AskReading func(log []byte, clock int64, c *window.Check) (answer window.Decision, used uint64)

// compareDecoded checks that what Decode says is what a check sees.
func compareDecoded(t *testing.T, log []byte, clock int64, c *window.Check) {
	t.Helper()
	if len(log) == 0 {
		return
	}
	contents, err := Decode(log)
	if err != nil || !Is(log, c.Log()) {
		t.Fatalf("%x: got %+v, error %v", log, contents, err)
	}
	answer, exact := AskReading(log, clock, c)
	ask := *c
	ask.Mode, ask.Cost = window.Enforce, 0
	var want window.Decision
	if d, ok := window.WithoutLog(&ask); ok {
		want = d
	} else {
		takeState(log, clock, &ask, &want)
	}
	if answer != want {
		t.Fatalf("Ask = %+v, want %+v", answer, want)
	}
	used, last := Weigh(log, clock, c.Log(), c.Limit.Hits)
	if used < exact && c.Limit.Policy != window.TokenBucket {
		t.Fatalf("Weigh = %d, less than the %d that are used", used, exact)
	}
	if last != contents.Clock.Microseconds() && used > 0 {
		t.Fatalf("Weigh says the last charge was at %d, want %v", last, contents.Clock)
	}
}
