package packed

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

var update = flag.Bool("update", false, "write testdata/vectors.jsonl.gz and testdata/one-key.txt again; only commit what you understand")

// vectorsFile holds histories with every answer and the bytes after every write, for
// other implementations of the policies: one JSON object a line, gzipped.
const vectorsFile = "testdata/vectors.jsonl.gz"

// vectorsMost bounds the file, in bytes.
const vectorsMost = 400_000

// A vector is one history on one log, which is empty at first. All times are
// microseconds.
type vector struct {
	Name   string       `json:"name"`
	Policy string       `json:"policy,omitempty"` // sliding if missing
	Window int64        `json:"window"`
	Steps  []vectorStep `json:"steps"`
}

// policy returns the policy of the history.
func (v *vector) policy() window.Policy {
	for p := window.Sliding; p <= window.InFlight; p++ {
		if p.String() == v.Policy {
			return p
		}
	}
	return window.Sliding
}

type vectorStep struct {
	Clock     int64  `json:"t"`           // in the file, since the step before
	Mode      string `json:"m,omitempty"` // enforce if missing
	Cost      uint64 `json:"c"`
	Limit     uint64 `json:"l"`
	Precision int64  `json:"p,omitempty"`
	Ahead     int64  `json:"a,omitempty"` // by how much later than now a charge is recorded
	Rate      uint32 `json:"q,omitempty"` // of a token bucket
	// Start, end and next of a calendar, in seconds.
	Period *[3]int64 `json:"s,omitempty"`
	// In flight: the stream, and the hold if it is not the window. The mode "end" is
	// State.End: Deny is for how long, and the outcome is 1 if the stream held something.
	Stream window.StreamID `json:"i,omitempty"`
	Hold   int64           `json:"h,omitempty"`
	Deny   int64           `json:"d,omitempty"`

	Outcome   int    `json:"o"` // 0 denied, 1 allowed, 2 never
	Remaining uint64 `json:"n"`
	Retry     int64  `json:"r,omitempty"`
	Unit      int64  `json:"u,omitempty"`
	Reset     int64  `json:"e,omitempty"`
	// Digest is of the log's bytes after this step and after each step since the last digest:
	// the first 8 bytes of a SHA-256 of the length of each log as decimal digits, a colon and
	// the log. A log that was removed has no bytes. What only Redis writes is zero: bytes 13 to
	// 17 of a sliding window's log, the mark and the expiry, and byte 8 of the others. Every
	// digestEvery-th step has a digest, and the last one.
	Digest string `json:"b,omitempty"`
	// Value is the log's bytes in hexadecimal, of every valueEvery-th step from the first one, up
	// to vectorBytes: to see where a translation differs.
	Value string `json:"v,omitempty"`

	after []byte // the log, until seal
}

const digestEvery, valueEvery, vectorBytes = 8, 64, 144

// seal tells the logs and the clocks of a history as the file does.
func (v *vector) seal() {
	digest, clock := sha256.New(), int64(0)
	for i := range v.Steps {
		s := &v.Steps[i]
		fmt.Fprintf(digest, "%d:%s", len(s.after), s.after)
		if (i+1)%digestEvery == 0 || i == len(v.Steps)-1 {
			s.Digest = hex.EncodeToString(digest.Sum(nil)[:8])
			digest.Reset()
		}
		if i%valueEvery == 0 && len(s.after) <= vectorBytes {
			s.Value = hex.EncodeToString(s.after)
		}
		s.Clock, clock, s.after = s.Clock-clock, s.Clock, nil
	}
}

// compare compares the steps that a replay of v made with v, which is as in the file.
func (v *vector) compare(t *testing.T, made []vectorStep) {
	t.Helper()
	got := vector{Steps: made}
	got.seal()
	for i, s := range v.Steps {
		if !reflect.DeepEqual(got.Steps[i], s) {
			t.Fatalf("%s, step %d, or one of the %d before if only the digest differs: got\n%+v, want\n%+v", v.Name, i, digestEvery-1, got.Steps[i], s)
		}
	}
}

// clocks returns the clock of each step.
func (v *vector) clocks() []int64 {
	all, clock := make([]int64, len(v.Steps)), int64(0)
	for i := range v.Steps {
		clock += v.Steps[i].Clock
		all[i] = clock
	}
	return all
}

// newVectorStep tells a step that was made.
func newVectorStep(clock int64, c *window.Check, ahead time.Duration, d window.Decision, after []byte) vectorStep {
	s := vectorStep{
		Clock: clock, Cost: c.Cost, Limit: c.Limit.Hits, Precision: c.Precision.Microseconds(), Ahead: ahead.Microseconds(),
		Remaining: d.Remaining, Retry: d.RetryAfter.Microseconds(), Unit: d.UnitAfter.Microseconds(), Reset: d.ResetAfter.Microseconds(),
		Rate: c.Limit.Rate, after: bytes.Clone(after),
	}
	if p := c.Period; p != (window.Period{}) {
		s.Period = &[3]int64{p.Start, p.End, p.Next}
	}
	if c.Mode != window.Enforce {
		s.Mode = c.Mode.String()
	}
	switch {
	case d.Allowed:
		s.Outcome = 1
	case d.Never:
		s.Outcome = 2
	}
	return s
}

// check returns what a step asks.
func (s vectorStep) check(p window.Policy, win int64) *window.Check {
	c := &window.Check{
		Limit:     window.Limit{Hits: s.Limit, Window: time.Duration(win) * time.Microsecond, Policy: p, Rate: s.Rate},
		Cost:      s.Cost,
		Precision: time.Duration(s.Precision) * time.Microsecond,
	}
	for m := window.Enforce; m <= window.Refund; m++ {
		if m.String() == s.Mode {
			c.Mode = m
		}
	}
	if s.Period != nil {
		c.Period = window.Period{Start: s.Period[0], End: s.Period[1], Next: s.Period[2]}
	}
	if c.Stream = s.Stream; s.Hold > 0 {
		c.Limit.Window = time.Duration(s.Hold) * time.Microsecond
	}
	return c
}

// TestVectors replays the file. With -update it is made anew from the random
// generators, at a fixed seed, compared with the naive log like all of theirs.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	f, err := os.Open(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > vectorsMost {
		t.Errorf("%s: %v, or larger than it should be", vectorsFile, err)
	}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	met := make(map[string]int)
	for dec := json.NewDecoder(z); ; {
		var v vector
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch v.policy() {
		case window.Sliding:
			replay(t, &v, met)
		case window.InFlight:
			replayHolds(t, &v, met)
		default:
			replayPolicy(t, &v, met)
		}
	}
	t.Logf("%v", met)
	for _, what := range []string{"enforce", "always", "refund", "denied", "never", "held", "held nothing", "tombstone", "clock back", "expired", "brief room", "brief denial", "hole", "last"} {
		if what = "in_flight " + what; met[what] == 0 {
			t.Errorf("no vector has %q", what)
		}
	}
	for _, p := range counting {
		for _, what := range []string{"enforce", "any", "observe", "always", "refund", "denied", "never", "debt", "clock back"} {
			if what = p.String() + " " + what; met[what] == 0 {
				t.Errorf("no vector has %q", what)
			}
		}
	}
	for _, what := range []string{
		"small", "ring", "grown", "shrunk", "small again", "moved", "clock back", "denied", "never", "merged",
		"ms", "precision", "enforce", "any", "observe", "always", "refund", "debt", "sum wraps", "time wraps", "ahead",
	} {
		if met[what] == 0 {
			t.Errorf("no vector has %q", what)
		}
	}
}

// replay compares one history with the log and counts what it meets.
func replay(t *testing.T, v *vector, met map[string]int) {
	t.Helper()
	var (
		log    []byte
		made   []vectorStep
		clocks = v.clocks()
	)
	defer func() { v.compare(t, made) }()
	for i, s := range v.Steps {
		before := append([]byte(nil), log...)
		c := s.check(window.Sliding, v.Window)
		var d window.Decision
		ahead := time.Duration(s.Ahead) * time.Microsecond
		log = takeAhead(log, clocks[i], c, ahead, &d)
		made = append(made, newVectorStep(clocks[i], c, ahead, d, log))
		met["steps"]++
		met[c.Mode.String()]++
		if i > 0 && s.Clock < 0 {
			met["clock back"]++
		}
		if s.Outcome != 1 {
			met[[]string{"denied", "", "never"}[s.Outcome]]++
		}
		if !bytes.Equal(before, log) {
			meetWrite(before, log, c, met)
			if ahead > 0 && c.Mode != window.Refund {
				met["ahead"]++
			}
		}
	}
}

// replayPolicy is replay for the other policies.
func replayPolicy(t *testing.T, v *vector, met map[string]int) {
	t.Helper()
	var (
		log    []byte
		made   []vectorStep
		clocks = v.clocks()
	)
	defer func() { v.compare(t, made) }()
	for i, s := range v.Steps {
		before := bytes.Clone(log)
		c := s.check(v.policy(), v.Window)
		var d window.Decision
		log = takeState(log, clocks[i], c, &d)
		made = append(made, newVectorStep(clocks[i], c, 0, d, log))
		changed := !bytes.Equal(before, log)
		for what, yes := range map[string]bool{
			c.Mode.String(): changed, "steps": true, "denied": s.Outcome == 0, "never": s.Outcome == 2,
			"clock back": i > 0 && s.Clock < 0,
			"debt":       changed && c.Mode == window.Always && s.Outcome == 0,
		} {
			if yes {
				met[v.Policy+" "+what]++
			}
		}
	}
}

// modeEnd is the mode of a step that ends a stream.
const modeEnd = "end"

// newHoldStep makes a step of a log in flight, and returns the log afterwards.
func newHoldStep(log []byte, s vectorStep, win int64) (vectorStep, []byte) {
	return playHoldStep(log, s, win, (*State).Look)
}

// playHoldStep is newHoldStep with State.Look or lookNew.
func playHoldStep(log []byte, s vectorStep, win int64, look func(*State, []byte, int64, *window.Check)) (vectorStep, []byte) {
	var (
		c     = s.check(window.InFlight, win)
		d     window.Decision
		state State
	)
	s.Digest, s.Value = "", "" // of the file
	look(&state, log, s.Clock, c)
	if s.Mode != modeEnd {
		log = takeLooked(&state, c, &d)
		made := newVectorStep(s.Clock, c, 0, d, log)
		made.Stream, made.Hold = s.Stream, s.Hold
		return made, log
	}
	s.Outcome = 0
	if state.End(time.Duration(s.Deny) * time.Microsecond) {
		s.Outcome = 1
	}
	log = state.Log()
	s.after = bytes.Clone(log)
	return s, log
}

// replayHolds is replay for logs in flight.
func replayHolds(t *testing.T, v *vector, met map[string]int) {
	t.Helper()
	var (
		log    []byte
		made   = make([]vectorStep, len(v.Steps))
		clocks = v.clocks()
	)
	defer func() { v.compare(t, made) }()
	for i, s := range v.Steps {
		before, back := bytes.Clone(log), i > 0 && s.Clock < 0
		s.Clock = clocks[i]
		made[i], log = newHoldStep(log, s, v.Window)
		ends, changed := s.Mode == modeEnd, !bytes.Equal(before, log)
		was, _ := Decode(before)
		isNew := !ends && !slices.ContainsFunc(was.Holds, func(h Hold) bool { return h.Stream == s.Stream })
		if isNew {
			again, after := playHoldStep(bytes.Clone(before), s, v.Window, lookNew)
			if !reflect.DeepEqual(again, made[i]) || !bytes.Equal(after, log) {
				t.Fatalf("%s, step %d, known to hold nothing: got\n%+v, want\n%+v", v.Name, i, again, made[i])
			}
		}
		for what, yes := range map[string]bool{
			s.check(window.InFlight, v.Window).Mode.String(): !ends && changed, "steps": true,
			"denied": !ends && s.Outcome == 0, "never": s.Outcome == 2,
			"held": ends && s.Outcome == 1, "held nothing": ends && s.Outcome == 0,
			"tombstone":  ends && s.Outcome == 0 && changed && s.Deny > 0,
			"clock back": back && changed,
			"brief room": isNew && len(was.Holds) > briefHolds && s.Outcome == 1, "brief denial": isNew && len(was.Holds) > briefHolds && s.Outcome == 0,
			"hole": changed && len(log) > atHolds+len(was.Holds)*holdBytes, "last": changed && ends && len(log) == len(before) && len(log) > atHolds && len(was.Holds) > briefHolds,
			"expired": changed && len(was.Holds) > 0 && was.Holds[0].Ends.Microseconds() <= s.Clock,
		} {
			if yes {
				met["in_flight "+what]++
			}
		}
	}
}

// holdHistory makes a history of a log in flight: few streams, which charge, give back, end
// before and after their charges, and expire.
func holdHistory(r *rand.Rand, steps int) vector {
	v := vector{Name: "holds", Policy: window.InFlight.String(), Window: []int64{1e6, 10e6, 300e6}[r.IntN(3)]}
	var (
		log     []byte
		clock   = r.Int64N(3e15)
		limits  = []uint64{1, 2, 3, 5, 20, 100}
		usual   = limits[r.IntN(len(limits))]
		streams = 1 + r.Int64N(int64(2*usual))
		first   = r.Uint64N(1<<63) + 1
	)
	for range steps {
		switch r.IntN(10) {
		case 0:
			clock = max(clock-r.Int64N(v.Window), 0)
		case 1:
			clock += v.Window + r.Int64N(3) - 1
		default:
			clock += []int64{0, 1, 999, r.Int64N(v.Window), r.Int64N(v.Window / 20)}[r.IntN(5)]
		}
		s := vectorStep{Clock: clock, Stream: window.StreamID(first + r.Uint64N(uint64(streams))), Limit: usual}
		if r.IntN(3) == 0 {
			s.Mode, s.Deny = modeEnd, []int64{0, 0, 1, 1000, 2e6, r.Int64N(v.Window)}[r.IntN(6)]
		} else {
			s.Mode = []string{"", "", "", "any", "observe", "always", "refund"}[r.IntN(7)]
			s.Cost = []uint64{0, 1, 1, 1, 2, usual, usual + 1}[r.IntN(7)]
			if r.IntN(4) == 0 {
				s.Limit = limits[r.IntN(len(limits))]
			}
			if r.IntN(4) == 0 {
				s.Hold = []int64{1e6, 1_000_001, 5e6, 86_400e6}[r.IntN(4)]
			}
			if r.IntN(50) == 0 {
				s.Mode, s.Cost = "always", []uint64{1 << 24, 1 << 32, 1<<24 - 1}[r.IntN(3)]
			}
		}
		s, log = newHoldStep(log, s, v.Window)
		v.Steps = append(v.Steps, s)
	}
	return v
}

// crowdedHistory makes a history of a large log. Streams come
// until the limit is full. Then they come and end, and some of the holds expire. At last all streams end, the later ones
// first, the earlier ones first, or in any order.
func crowdedHistory(r *rand.Rand) vector {
	v := vector{Name: "crowded", Policy: window.InFlight.String(), Window: 10e6}
	var (
		log   []byte
		clock = r.Int64N(3e15)
		limit = briefHolds + 2 + []uint64{r.Uint64N(12), 100}[r.IntN(2)]
		next  = window.StreamID(r.Uint64N(1<<63) + 1)
		first = next
	)
	for i := range limit + 60 {
		s := vectorStep{Clock: clock, Limit: limit, Cost: 1}
		clock += r.Int64N(v.Window / 20)
		if next++; i < limit {
			s.Stream = next
		} else {
			s.Stream = []window.StreamID{next, next, first + window.StreamID(r.Int64N(int64(next-first)))}[r.IntN(3)]
			s.Cost = []uint64{0, 1, 1, 1, 2, 3, limit + 1}[r.IntN(7)]
			s.Mode = []string{"", "", "", "", "observe", "always", modeEnd, modeEnd}[r.IntN(8)]
			s.Limit = []uint64{limit, limit, limit - 1, limit + 1}[r.IntN(4)]
			if s.Hold = []int64{0, 0, 0, 20e6, 5e6}[r.IntN(5)]; s.Mode == modeEnd {
				s = vectorStep{Clock: s.Clock, Limit: limit, Stream: s.Stream, Mode: modeEnd, Deny: []int64{0, 2e6}[r.IntN(2)]}
			}
		}
		s, log = newHoldStep(log, s, v.Window)
		v.Steps = append(v.Steps, s)
	}
	all, _ := Decode(log)
	order := r.IntN(3)
	for i := range all.Holds {
		at := []int{i, len(all.Holds) - 1 - i, r.IntN(len(all.Holds))}[order]
		s, after := newHoldStep(log, vectorStep{Clock: clock, Limit: limit, Stream: all.Holds[at].Stream, Mode: modeEnd}, v.Window)
		log = after
		v.Steps = append(v.Steps, s)
	}
	return v
}

// meetWrite counts what a write was.
func meetWrite(before, after []byte, c *window.Check, met map[string]int) {
	is, err := Decode(after)
	if err != nil {
		met["not a log"]++
		return
	}
	was, err := Decode(before)
	count := func(what string, yes bool) {
		if yes {
			met[what]++
		}
	}
	count("ring", is.Ring)
	count("small", !is.Ring)
	count("ms", is.Unit == time.Millisecond)
	count("precision", c.Precision > 0)
	count("debt", is.Used() > c.Limit.Hits)
	if err != nil {
		return
	}
	count("small again", was.Ring && !is.Ring)
	count("grown", is.Ring && is.Capacity > was.Capacity)
	count("shrunk", was.Ring && is.Ring && is.Capacity < was.Capacity)
	count("moved", is.Ring && after[atHead+3] != before[atHead+3])
	count("merged", len(is.Entries) == len(was.Entries) && is.Used() > was.Used())
	count("sum wraps", is.Base < was.Base)
	count("time wraps", int64(was.Clock/was.Unit)>>40 != int64(is.Clock/is.Unit)>>40)
}

func writeVectors(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(z)
	r := rand.New(rand.NewPCG(5, 4))
	for _, kind := range []struct {
		name  string
		h     history
		steps int
	}{{"dense", dense, 3000}, {"rings", rings, 13_000}, {"dense, ahead", ahead(dense), 1000}, {"rings, ahead", ahead(rings), 2000}} {
		for made := 0; made < kind.steps; {
			v := vector{Name: kind.name}
			kind.h(r, func(win time.Duration) *pair {
				p := newPair(t, win)
				v.Window = win.Microseconds()
				p.after = func(clock int64, c *window.Check, ahead time.Duration, d window.Decision, log []byte) {
					whole := *c
					whole.Precision = time.Duration(ceilMicros(c.Precision)) * time.Microsecond
					v.Steps = append(v.Steps, newVectorStep(clock, &whole, ahead, d, log))
				}
				return p
			})
			made += len(v.Steps)
			v.seal()
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range counting {
		for made := 0; made < 1500; {
			h := newPolicyHistory(r, p)
			v := vector{Name: p.String(), Policy: p.String(), Window: h.win}
			comparePolicy(t, h, 60, func(clock int64, c *window.Check, d window.Decision, _, after []byte) {
				v.Steps = append(v.Steps, newVectorStep(clock, c, 0, d, after))
			})
			made += len(v.Steps)
			v.seal()
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	own := rand.New(rand.NewPCG(5, 20)) // the other vectors stay as they are
	for range 30 {
		v := holdHistory(own, 60)
		v.seal()
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	for range 7 {
		v := crowdedHistory(own)
		v.seal()
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(vectorsFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorsFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
