package redisstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/ending"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	second = int64(1_000_000)
	// start is when the logs of these tests begin.
	start = 1_750_000_000 * second
)

// planted puts bytes under a check's key and asks it. There must be no error, and
// never more than the limit to spend. If the bytes are a log, or certainly are not a log,
// all must be as package window has it.
func planted(r *rig, value []byte, clock int64, c *window.Check, ahead time.Duration) {
	r.t.Helper()
	ctx := r.t.Context()
	key := string(script.AppendKey(nil, "", c.Log()))
	if err := r.client.Set(ctx, key, value, 0).Err(); err != nil {
		r.t.Fatal(err)
	}
	got := r.take(clock, c, ahead)
	if got.decision.Remaining > c.Limit.Hits {
		r.t.Fatalf("%x, %+v at %d: remaining %d", value, *c, clock, got.decision.Remaining)
	}

	var v packed.View
	v.Look(value, clock, c.Limit.Window)
	corrupt := v.Corrupt()
	_, err := packed.Decode(value)
	// A ring that is longer or shorter than it says shows in Redis only where it
	// is read there: for Always, maybe after it was judged.
	maybe := corrupt && len(value) > 135 && value[0]&^2 == 0x91 && (!got.corrupt || c.Mode == window.Always)
	switch {
	case maybe, !corrupt && err != nil && len(value) > 0:
		// It looks like a log. What it says may be wrong, but what is there after a
		// charge must be looked at without an error again.
		r.take(clock, c, ahead)
		return
	case corrupt != got.corrupt:
		r.t.Fatalf("%x, %+v at %d: corrupt %t, want %t", value, *c, clock, got.corrupt, corrupt)
	}
	before := value
	if corrupt {
		before = nil
	}
	var want window.Decision
	after := reference.TakeAhead(append([]byte(nil), before...), clock, c, ahead, &want)
	if diff := cmp.Diff(want, got.decision); diff != "" {
		r.t.Fatalf("%x, %+v at %d: (-want +got)\n%s", value, *c, clock, diff)
	}
	if len(after) == 0 {
		after = nil
	}
	wrote := got.log != nil && !bytes.Equal(got.log, value)
	if wrote {
		copy(after[atExpiry:atExpiry+5], got.log[atExpiry:]) // Redis's own
	}
	if len(value) > 0 && !bytes.Equal(after, got.log) {
		r.t.Fatalf("%x, %+v at %d: the log is\n%x, want\n%x", value, *c, clock, got.log, after)
	}
}

// randomLog makes a log with a past.
func randomLog(r *rand.Rand, win time.Duration, clock *int64) []byte {
	var log []byte
	hits := []int{1, 5, 13, 14, 20, 40, 200}[r.IntN(7)]
	step := max(win.Microseconds()/int64(hits)/int64(1+r.IntN(3)), 1)
	for range 1 + r.IntN(2*hits) {
		*clock += r.Int64N(step) * int64(r.IntN(3))
		c := randomCheck(r, win)
		c.Limit.Hits, c.Cost = 1000, uint64(1+r.IntN(3))
		ahead := time.Duration(0)
		if r.IntN(8) == 0 {
			ahead = min(win/8, time.Second)
		}
		var d window.Decision
		log = reference.TakeAhead(log, *clock, c, ahead, &d)
	}
	return log
}

func randomCheck(r *rand.Rand, win time.Duration) *window.Check {
	c := &window.Check{
		Key:   "k",
		Limit: window.Limit{Hits: []uint64{1, 3, 20, 100, 1000, 4294967294}[r.IntN(6)], Window: win},
		Cost:  []uint64{0, 1, 1, 1, 2, 5, 30, 5_000_000_000}[r.IntN(8)],
	}
	if r.IntN(3) == 0 {
		c.Mode = window.Mode(r.IntN(5))
	}
	if r.IntN(4) == 0 {
		c.Precision = win / time.Duration(1+r.IntN(100))
	}
	return c
}

// damage changes a value a little, or a lot.
func damage(r *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	b = append([]byte(nil), b...)
	switch r.IntN(6) {
	case 0:
		return b
	case 1:
		return b[:r.IntN(len(b)+1)]
	case 2:
		return append(b, make([]byte, 1+r.IntN(20))...)
	case 3:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0] = 0x90 + byte(r.IntN(4))
	case 4: // the header is the most delicate part
		b[r.IntN(min(len(b), 42))] = byte(r.Uint32())
	default:
		for range 1 + r.IntN(3) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
	}
	return b
}

// TestPlanted plants logs, damaged logs and noise.
func TestPlanted(t *testing.T) {
	r := newRig(t)
	rnd := random.Rand(t, 0)
	for range 6000 {
		win := []time.Duration{10 * time.Millisecond, 10 * time.Second, 6 * 24 * time.Hour, 7 * 24 * time.Hour, 400 * 24 * time.Hour}[rnd.IntN(5)]
		clock := start
		log := damage(rnd, randomLog(rnd, win, &clock))
		clock += []int64{0, 1, -second, win.Microseconds() / 2, win.Microseconds(), 1000 * second}[rnd.IntN(6)]
		ahead := time.Duration(0)
		if rnd.IntN(4) == 0 {
			ahead = time.Duration(rnd.Int64N(min(win, window.MaxAhead).Microseconds())) * time.Microsecond
		}
		planted(r, log, clock, randomCheck(rnd, win), ahead)
	}
}

// TestShapes lets logs of many lengths lose all but a few slots, by time and by a
// refund, so that every change of shape is met at its edge.
func TestShapes(t *testing.T) {
	r := newRig(t)
	const win = 10 * time.Second
	ask := func(hits, cost uint64, m window.Mode) *window.Check {
		return &window.Check{Key: "k", Limit: window.Limit{Hits: hits, Window: win}, Cost: cost, Mode: m}
	}
	for _, fill := range []int{1, 6, 7, 12, 13, 14, 15, 20, 21, 22, 30, 31, 32, 60, 100} {
		for keep := range min(fill, 30) + 1 {
			var log []byte
			for i := range fill {
				var d window.Decision
				log = reference.Take(log, start+int64(i), ask(1000, 1, window.Enforce), &d)
			}
			at := start + win.Microseconds() + int64(fill-keep) - 1 // all but keep have expired
			for _, limit := range []uint64{uint64(keep) + 1, uint64(keep) + 2, 1000} {
				planted(r, log, at, ask(limit, 1, window.Enforce), 0)
			}
			planted(r, log, at, ask(uint64(keep), 1, window.Always), 0) // debt: more slots than the limit
			planted(r, log, start+int64(fill), ask(1000, uint64(fill-keep), window.Refund), 0)
			planted(r, log, at, ask(1000, 1, window.Refund), 0)
		}
	}
}

// TestPrecisionBoundsShapes fills logs whose precision bounds their slots, and
// compares the room that they have.
func TestPrecisionBoundsShapes(t *testing.T) {
	r := newRig(t)
	const win = 10 * time.Second
	for parts := 12; parts < 40; parts++ {
		c := &window.Check{Key: "k", Limit: window.Limit{Hits: 1000, Window: win}, Cost: 1, Precision: win / time.Duration(parts)}
		var log []byte
		for i := range parts + 3 {
			at := start + int64(i)*c.Precision.Microseconds()
			planted(r, log, at, c, 0)
			var d window.Decision
			log = reference.Take(log, at, c, &d)
		}
	}
}

// randomHolds makes a log of requests in flight with a past, of streams from 1 on.
func randomHolds(r *rand.Rand, clock *int64) []byte {
	var s packed.State
	var log []byte
	most := []int{1, 5, 31, 32, 33, 34, 60}[r.IntN(7)]
	for i := range most {
		*clock += r.Int64N(second / 10)
		s.Look(log, *clock, flight(window.StreamID(i+1), 1000, 1+r.Uint64N(2)))
		if r.IntN(40) == 0 {
			s.End(10 * time.Second)
		} else {
			s.Charge(flight(window.StreamID(i+1), 1000, 1+r.Uint64N(2)))
		}
		log = s.Log()
	}
	return log
}

func flight(stream window.StreamID, most, cost uint64) *window.Check {
	return &window.Check{
		Key: "k", Cost: cost, Stream: stream,
		Limit: window.Limit{Hits: most, Window: 10 * time.Second, Policy: window.InFlight},
	}
}

// damageHolds changes a log of requests in flight a little, or a lot.
func damageHolds(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	slots := (len(b) - 58) / 21
	slot := func(i int) []byte { return b[58+21*i:][:21] }
	switch r.IntN(10) {
	case 0: // any byte of the header
		b[r.IntN(58)] += byte(1 + r.IntN(255))
	case 1: // a low byte of it, by a little
		b[[]int{7, 15, 25, 27, 29, 31, 38, 44, 50, 57}[r.IntN(10)]] += byte(r.IntN(5) - 2)
	case 2: // a wrong sum and a wrong rest
		sum := binary.BigEndian.Uint32(b[12:]) + []uint32{1, 2, 1000, ^uint32(0)}[r.IntN(4)]
		binary.BigEndian.PutUint32(b[12:], sum)
		binary.BigEndian.PutUint32(b[35:], sum)
	case 3: // a wrong cost
		slot(r.IntN(slots))[20]++
	case 4: // an end
		slot(r.IntN(slots))[8+r.IntN(6)] += byte(1 + r.IntN(255))
	case 5: // a hole that is not counted
		clear(slot(r.IntN(slots))[:8])
	case 6:
		return damage(r, b)
	}
	return b
}

// TestEndedHoldAmongOthers plants a hold that has ended behind one that has not. The script finds
// no wait that is negative, which would fail the call.
func TestEndedHoldAmongOthers(t *testing.T) {
	r := newRig(t)
	c := flight(1, 40, 1)
	key := string(script.AppendKey(nil, "", c.Log()))
	for i := range 40 {
		if got := r.takeNoting(start, flight(window.StreamID(1+i), 40, 1), 0, ""); !got.decision.Allowed {
			t.Fatalf("stream %d is denied", i)
		}
	}
	value, err := r.client.Get(t.Context(), key).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	const second = 58 + 21 // of the slots: a stream of 8 bytes, then the end
	copy(value[second+8:second+14], make([]byte, 6))
	if err := r.client.Set(t.Context(), key, value, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	c = flight(100, 39, 1)
	var state packed.State
	state.LookHold(value, start, c, packed.NoHold)
	var want window.Decision
	state.Answer(c, state.Room(c), &want)
	want.Unsettled = false
	if got := r.takeNoting(start, c, 0, "s100{"); got.decision != want || want.Allowed || want.RetryAfter <= 0 || want.UnitAfter <= 0 {
		t.Errorf("got %+v, want %+v, a denial with waits", got.decision, want)
	}
}

// TestPlantedHolds plants logs of requests in flight, and damaged ones. The script must find the
// same corrupt as package window, and decide and write the same, whether or not it is known that
// the stream holds nothing.
func TestPlantedHolds(t *testing.T) {
	r := newRig(t)
	rnd := rand.New(rand.NewPCG(8, 3))
	corrupt, believed := 0, 0
	for i := range 10000 {
		clock := start
		value := damageHolds(rnd, randomHolds(rnd, &clock))
		clock += []int64{0, 1, -second, second, 9 * second, 10 * second}[rnd.IntN(6)]
		sum := uint64(0)
		if len(value) >= 58 {
			sum = binary.BigEndian.Uint64(value[8:]) & (1<<56 - 1)
		}
		c := flight(window.StreamID(1+rnd.IntN(70)), []uint64{1, 20, max(sum, 1), sum + 1, sum + 2}[rnd.IntN(5)], []uint64{0, 1, 1, 2, 3}[rnd.IntN(5)])
		c.Limit.Window = []time.Duration{10 * time.Second, 10 * time.Second, time.Second}[rnd.IntN(3)]
		c.Mode = []window.Mode{window.Enforce, window.Enforce, window.Observe, window.Always, window.Refund}[rnd.IntN(5)]
		if c.Limit.Hits > window.MaxInFlight {
			c.Limit.Hits = 5
		}
		streams := ""
		var state packed.State
		// A value that is corrupt may show only when Always is answered: after its charge.
		if c.Mode != window.Always && rnd.IntN(2) == 0 && !bytes.Contains(value, binary.BigEndian.AppendUint64(nil, uint64(c.Stream))) {
			streams = fmt.Sprintf("s%d{", i)
			state.LookHold(bytes.Clone(value), clock, c, packed.NoHold)
		} else {
			state.Look(bytes.Clone(value), clock, c)
		}
		key := string(script.AppendKey(nil, "", c.Log()))
		if err := r.client.Set(t.Context(), key, value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		got := r.takeNoting(clock, c, 0, streams)
		want := seen{corrupt: state.Corrupt()}
		var verdict window.Verdict
		room := state.Room(c)
		verdict.Add(c.Mode, room)
		if c.Mode == window.Refund {
			state.Refund(c)
		} else if c.Mode.Charged(verdict.Allowed(), room) {
			state.Charge(c)
		}
		state.Answer(c, room, &want.decision)
		want.log, want.decision.Unsettled = state.Log(), false
		_, err := packed.Decode(value)
		if err != nil && c.Mode >= window.Always && !want.corrupt {
			continue // the script reads what it has recorded once more, and it may be corrupt then
		}
		if got.decision.Allowed {
			got.decision.RetryAfter = 0 // says whether the call made a hold
		}
		if got.corrupt != want.corrupt || got.decision != want.decision || !bytes.Equal(got.log, want.log) {
			t.Fatalf("%x, %+v at %d, noted %q:\ngot  %+v\nwant %+v", value, *c, clock, streams, got, want)
		}
		if err != nil && got.corrupt {
			corrupt++
		} else if err != nil {
			believed++
		} else if got.corrupt {
			t.Fatalf("%x is a log, and was removed", value)
		}
	}
	if corrupt < 500 || believed == 0 {
		t.Errorf("%d values were corrupt, and %d were believed that are not a log", corrupt, believed)
	}
}

// TestWrongSumInFlight plants a sum that contradicts the holds. A small log is corrupt. A large one is believed until it
// is written as a whole, because most of its holds have gone.
func TestWrongSumInFlight(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.Redis(t)})
	defer client.Close()
	corrupt := 0
	s := NewWithClock(t, client, Options{Corrupt: func(time.Duration) { corrupt++ }}, "clock")
	defer s.Close()
	key := string(script.AppendKey(nil, "", flight(1, 1, 1).Log()))
	take := func(stream window.StreamID, cost uint64) window.Decision {
		t.Helper()
		var d [1]window.Decision
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{*flight(stream, 200, cost)}, d[:]); err != nil || !d[0].Allowed {
			t.Fatalf("%+v, error %v", d, err)
		}
		return d[0]
	}
	for holds, small := range map[window.StreamID]bool{32: true, 100: false} {
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Set(t.Context(), "clock", start, 0).Err(); err != nil {
			t.Fatal(err)
		}
		corrupt = 0
		for i := range holds {
			take(1+i, 1)
		}
		for _, at := range []int64{12, 35} { // the sum and the rest
			if err := client.SetRange(t.Context(), key, at, string([]byte{0, 0, 0, 150})).Err(); err != nil {
				t.Fatal(err)
			}
		}
		want, removed := uint64(50), 0
		if small {
			want, removed = 200, 1
		}
		if got := take(1000, 0).Remaining; got != want || corrupt != removed {
			t.Errorf("%d holds: %d places are free, %d corrupt values, want %d and %d", holds, got, corrupt, want, removed)
		}
		for i := range holds - 20 {
			if _, err := s.End(t.Context(), window.Ending{Stream: 1 + i}); err != nil {
				t.Fatal(err)
			}
		}
		if !small {
			want = 180
		}
		if got := take(1000, 0).Remaining; got != want || corrupt != removed {
			t.Errorf("%d holds, 20 are left: %d places are free, %d corrupt values, want %d and %d", holds, got, corrupt, want, removed)
		}
	}
}

// TestLastHoldEnds ends the last two holds of a large log, the last one at the end: the one before leaves a hole, which
// must not be the last slot.
func TestLastHoldEnds(t *testing.T) {
	r := newRig(t)
	for stream := range int64(40) {
		r.take(start+stream*1000, flight(window.StreamID(1+stream), 100, 1), 0)
	}
	r.drop(start+second, flight(39, 100, 1), 0)
	contents, err := packed.Decode(r.drop(start+second, flight(40, 100, 1), 0).log)
	if err != nil || len(contents.Holds) != 38 {
		t.Errorf("%+v, error %v, want 38 holds", contents, err)
	}
}

// TestEndAfterTheNote ends a stream on a cluster after its check was noted, and before it is
// decided. Although nothing was known of the stream, the end in the log denies the check.
func TestEndAfterTheNote(t *testing.T) {
	r := newRig(t)
	for stream := window.StreamID(1); stream <= 40; stream++ {
		r.take(start, flight(stream, 100, 1), 0)
	}
	late := flight(99, 100, 1)
	r.drop(start, late, 10*time.Second)
	r.take(start+second, flight(41, 100, 1), 0) // it ends last
	got := r.takeNoting(start+second, late, ending.NewStream*time.Microsecond, "")
	if d := got.decision; d.Allowed || d.Remaining != 59 || d.RetryAfter != 9*time.Second {
		t.Errorf("after the end: %+v", d)
	}
}

// fuzzVariable tells the fuzzer's worker processes the server's address. They
// must not start one: it would outlive them and hold the fuzzer's pipes open.
const fuzzVariable = "REDISSTORE_FUZZ"

// FuzzPlanted is TestPlanted for bytes of the fuzzer's choice.
func FuzzPlanted(f *testing.F) {
	addr := os.Getenv(fuzzVariable)
	if addr == "" {
		addr = servers.Redis(f)
		f.Setenv(fuzzVariable, addr)
	}
	r := newRigOn(f, addr)
	key := fmt.Sprint(os.Getpid()) // the workers share the server
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		win := []time.Duration{10 * time.Second, 7 * 24 * time.Hour}[i%2]
		clock := start
		log := randomLog(rnd, win, &clock)
		c := randomCheck(rnd, win)
		f.Add(log, clock, i%2 == 1, c.Limit.Hits, c.Cost, uint8(c.Mode), c.Precision.Microseconds(), uint32(i%3))
	}
	f.Fuzz(func(t *testing.T, value []byte, clock int64, long bool, hits, cost uint64, mode uint8, precision int64, ahead uint32) {
		c := &window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: 10 * time.Second}, Cost: cost, Mode: window.Mode(mode)}
		if long {
			c.Limit.Window = 7 * 24 * time.Hour
		}
		if precision >= 0 && precision <= c.Limit.Window.Microseconds() {
			c.Precision = time.Duration(precision) * time.Microsecond
		}
		if clock < 0 || clock > 1<<52 || window.Validate([]window.Check{*c}, make([]window.Decision, 1)) != nil {
			return
		}
		planted(&rig{t: t, client: r.client, script: r.script}, value, clock, c, time.Duration(ahead)*time.Microsecond)
	})
}

// TestKey pins the names of keys, which a rolling upgrade has to find again.
func TestKey(t *testing.T) {
	for _, tt := range []struct {
		prefix, key string
		win         time.Duration
		want        string
	}{
		{"", "k", 10 * time.Second, "k:10000000"},
		{"p:", "{tag}:k\x00\xff", 400 * 24 * time.Hour, "p:{tag}:k\x00\xff:34560000000000"},
	} {
		if got := string(script.AppendKey(nil, tt.prefix, window.LogID{Key: tt.key, Window: tt.win})); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// replying is a Client whose every reply is the same.
type replying struct{ reply any }

func (r replying) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.(interface{ SetVal(any) }).SetVal(r.reply)
	return nil
}

// TestStrictReply proves that a reply of another shape is an error that says what
// was expected.
func TestStrictReply(t *testing.T) {
	const (
		good  = "\x01\x00\x00\x00\x00\x00\x00\x02" + "\x00\x00\x00\x00\x00\x00\x03" + "\x00\x00\x00\x00\x00\x00\x04" + "\x00\x00\x00\x00\x00\x01\x05"
		clock = "\x00\x00\x00\x00\x00\x00\x09"
	)
	decision := window.Decision{Allowed: true, Remaining: 2, RetryAfter: 3 * time.Microsecond, UnitAfter: 4 * time.Microsecond, ResetAfter: 261 * time.Microsecond}
	for _, tt := range []struct {
		name    string
		reply   any
		corrupt int
		want    string // of the error; empty: none
	}{
		{"good", good + good + clock, 0, ""},
		{"corrupt", "\x05" + good[1:] + good + clock, 1, ""},
		{"nil", nil, 0, "reply is <nil>, want a string of 65 bytes"},
		{"an integer", int64(1), 0, "reply is int64"},
		{"a list", []any{good, good}, 0, "reply is []interface {}"},
		{"empty", "", 0, "reply has 0 bytes, want 65"},
		{"too short", good + good, 0, "reply has 58 bytes"},
		{"too long", good + good + clock + "x", 0, "reply has 66 bytes"},
		{"one of two is late", good + "\x03" + good[1:] + clock, 0, "reply to check 1: the outcome is 3"},
		{"an unknown outcome", good + "\x20" + good[1:] + clock, 0, "reply to check 1: the outcome is 32"},
		{"an unknown corrupt outcome", "\x07" + good[1:] + good + clock, 0, "reply to check 0: the outcome is 7"},
		{"unsettled, but never", good + "\x0a" + good[1:] + clock, 0, "reply to check 1: the outcome is 10"},
		{"a wait without end", good + good[:8] + "\xff" + good[9:] + clock, 0, "reply to check 1: a wait of "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			corrupt := 0
			s := New(replying{tt.reply}, Options{Corrupt: func(time.Duration) { corrupt++ }})
			defer s.Close()
			got := make([]window.Decision, 2)
			limit := window.Limit{Hits: 3, Window: time.Second}
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{{Key: "a", Limit: limit}, {Key: "b", Limit: limit}}, got)
			if tt.want != "" {
				if err == nil || !bytes.Contains([]byte(err.Error()), []byte(tt.want)) || failure.Of(err) != failure.Reply {
					t.Errorf("got error %v, want one of class %s with %q", err, failure.Reply, tt.want)
				}
				return
			}
			if diff := cmp.Diff([]window.Decision{decision, decision}, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got)\n%s", err, diff)
			}
			if corrupt != tt.corrupt {
				t.Errorf("told of %d corrupt values, want %d", corrupt, tt.corrupt)
			}
		})
	}
}

// FuzzReply proves that no reply can make the store panic.
func FuzzReply(f *testing.F) {
	f.Add("x", uint8(1))
	f.Add(fmt.Sprintf("%065d", 0), uint8(2))
	f.Fuzz(func(t *testing.T, reply string, n uint8) {
		s := New(replying{reply}, Options{})
		defer s.Close()
		checks := make([]window.Check, n)
		for i := range checks {
			checks[i] = window.Check{Key: fmt.Sprint(i), Limit: window.Limit{Hits: 1, Window: time.Second}}
		}
		_, _ = s.Take(t.Context(), window.MayWait, checks, make([]window.Decision, n))
	})
}
