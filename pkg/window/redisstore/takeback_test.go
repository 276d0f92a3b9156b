package redisstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
)

// A back is what is to be taken back from one log, and what came of it.
type back struct {
	id   window.LogID
	at   int64 // microseconds
	cost uint64

	taken uint64
	reset time.Duration
}

// backRig is a rig for takeback.lua.
type backRig struct {
	*rig
	back script.Script
}

func newBackRig(t testing.TB) *backRig {
	t.Helper()
	r := &backRig{newRig(t), withTime(t, script.TakeBack.Text, "ARGV[#ARGV]")}
	if err := r.client.ScriptLoad(t.Context(), r.back.Text).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// takeBack calls the script. The instants must be whole units.
func (r *backRig) takeBack(clock int64, backs ...back) []back {
	r.t.Helper()
	var keys []string
	var args []byte
	for _, b := range backs {
		unit := packed.Unit(b.id.Window).Microseconds()
		keys = append(keys, string(script.AppendKey(nil, "", b.id)))
		args = binary.BigEndian.AppendUint16(args, uint16(unit))
		args = append(args, binary.BigEndian.AppendUint64(nil, uint64(b.id.Window.Microseconds()))[2:]...)
		args = script.AppendInstant(args, b.at/unit)
		args = append(args, binary.BigEndian.AppendUint64(nil, b.cost)[3:]...)
	}
	cmd := r.evalsha(r.back, clock, keys, []string{string(args)})
	if err := r.client.Process(r.t.Context(), cmd); err != nil {
		r.t.Fatalf("%+v at %d: %v", backs, clock, err)
	}
	reply, err := cmd.Text()
	if err != nil || len(reply) != 12*len(backs) {
		r.t.Fatalf("the reply to %d is %q (%d bytes), %v", len(backs), reply, len(reply), err)
	}
	for i := range backs {
		text := reply[12*i:]
		backs[i].taken = number(text[:5])
		backs[i].reset = time.Duration(number(text[5:12])) * time.Microsecond
	}
	return backs
}

// plant puts a value under a log's key, for an hour.
func (r *rig) plant(id window.LogID, value []byte) {
	r.t.Helper()
	if err := r.client.Set(r.t.Context(), string(script.AppendKey(nil, "", id)), value, time.Hour).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// compare takes back and compares with package window: what is told, all bytes but
// none of the expiry, and that the key lives as long as before.
func (r *backRig) compare(value []byte, clock int64, b back) (taken uint64) {
	r.t.Helper()
	r.plant(b.id, value)
	got := r.takeBack(clock, b)[0]
	left, taken, reset := reference.TakeBack(value, clock, b.id.Window, b.at, b.cost)
	if got.taken != taken || got.reset != reset {
		r.t.Fatalf("%x, %+v at %d: got %d taken, empty in %v, want %d, %v", value, b, clock, got.taken, got.reset, taken, reset)
	}
	key := string(script.AppendKey(nil, "", b.id))
	after, err := r.client.Get(r.t.Context(), key).Bytes()
	if err != nil || !bytes.Equal(after, left) {
		r.t.Fatalf("%x, %+v at %d: the log is\n%x, %v, want\n%x", value, b, clock, after, err, left)
	}
	if ttl := r.client.PTTL(r.t.Context(), key).Val(); ttl < 50*time.Minute {
		r.t.Fatalf("%+v at %d: the key lives for %v, want the hour that it had", b, clock, ttl)
	}
	return taken
}

// instant chooses what to ask a log for: an instant of an entry, most of them near
// the newest, and a cost.
func instant(rnd *rand.Rand, log []byte, id window.LogID, clock int64) back {
	b := back{id: id, at: clock, cost: uint64(rnd.IntN(4))}
	c, err := packed.Decode(log)
	if n := len(c.Entries); err == nil && n > 0 && rnd.IntN(10) > 0 {
		e := c.Entries[n-1-[]int{0, rnd.IntN(min(n, 3)), rnd.IntN(n), min(n-1, 64), min(n-1, 65)}[rnd.IntN(5)]]
		b.at = e.At.Microseconds()
		b.cost = []uint64{uint64(e.Cost), uint64(e.Cost), 1, uint64(e.Cost) + 1, 1<<40 - 1}[rnd.IntN(5)]
	}
	unit := packed.Unit(id.Window).Microseconds()
	if b.at += unit * []int64{0, 0, 0, 0, 1, -1}[rnd.IntN(6)]; b.at < 0 {
		b.at = 0
	}
	b.at -= b.at % unit
	return b
}

// TestTakeBackLikeGo takes back from random logs, damaged logs and noise, and
// compares with package window.
func TestTakeBackLikeGo(t *testing.T) {
	r := newBackRig(t)
	rnd := random.Rand(t, 0)
	took := 0
	for i := range 6000 {
		win := []time.Duration{10 * time.Millisecond, 10 * time.Second, 6 * 24 * time.Hour, 7 * 24 * time.Hour, 400 * 24 * time.Hour}[rnd.IntN(5)]
		clock := []int64{start, 1<<40 - 5*second, 2 * win.Microseconds()}[rnd.IntN(3)]
		log := randomLog(rnd, win, &clock)
		b := instant(rnd, log, window.LogID{Key: "k", Window: win}, clock)
		b.at -= b.at % packed.Unit(win).Microseconds()
		if i%3 == 0 {
			log = damage(rnd, log)
		}
		clock += []int64{0, 0, 1, -second, win.Microseconds() / 2, win.Microseconds() - 1, win.Microseconds(), 1000 * second}[rnd.IntN(8)]
		if r.compare(log, max(clock, 0), b) > 0 {
			took++
		}
	}
	if took < 1500 {
		t.Errorf("something was taken back %d times only", took)
	}
}

// TestTakeBackShapes takes slot after slot from logs of many lengths until nothing
// is left.
func TestTakeBackShapes(t *testing.T) {
	r := newBackRig(t)
	c := ten("k", 1000, 3)
	for _, fill := range []int{1, 6, 7, 13, 14, 15, 40, 66} {
		for _, turn := range []int{0, 5, 11} { // so many have expired before
			for _, order := range []func(n int) int{
				func(n int) int { return n - 1 },
				func(n int) int { return max(n-65, 0) },
				func(n int) int { return n / 2 },
			} {
				var d window.Decision
				var log []byte
				for i := range turn {
					log = reference.Take(log, start+int64(i), c, &d)
				}
				clock := start + 10*second + int64(turn)
				for range fill {
					clock++
					log = reference.Take(log, clock, c, &d)
				}
				for n := fill; n > 0; n-- {
					contents, err := packed.Decode(log)
					if err != nil {
						t.Fatal(err)
					}
					all := contents.Entries
					b := back{id: c.Log(), at: all[len(all)-n+order(n)].At.Microseconds(), cost: 3}
					b.cost = 1
					if r.compare(log, clock, b) != 1 {
						t.Fatalf("%d slots after %d: nothing was taken from slot %d of %d", fill, turn, order(n), n)
					}
					b.cost = 3
					r.compare(log, clock, b)
					log, _, _ = reference.TakeBack(log, clock, b.id.Window, b.at, b.cost)
				}
			}
		}
	}
}

// TestTakeBackBounds meets the bounds of what is too much work.
func TestTakeBackBounds(t *testing.T) {
	r := newBackRig(t)
	c := &window.Check{Key: "k", Limit: window.Limit{Hits: 100_000, Window: time.Hour}, Cost: 1}
	var log []byte
	sizes := make(map[bool]int)
	for i := range 16_000 {
		var d window.Decision
		before := len(log)
		log = reference.Take(log, start+int64(i), c, &d)
		if len(log) == before || i < 1000 {
			continue
		}
		took := r.compare(log, start+int64(i), back{id: c.Log(), at: start + int64(i), cost: 1})
		if want := uint64(1); len(log) <= 128<<10 && took != want {
			t.Errorf("a log of %d bytes: %d taken, want %d", len(log), took, want)
		}
		sizes[len(log) > 128<<10]++
	}
	if sizes[true] == 0 || sizes[false] == 0 {
		t.Errorf("logs of up to 128 kB and above: %v, want both", sizes)
	}
	// The newest slot and 64 before it are looked at.
	var near []byte
	for i := range int64(70) {
		near = reference.Take(near, start+i, c, new(window.Decision))
	}
	for before, want := range map[int64]uint64{64: 1, 65: 0} {
		if took := r.compare(near, start+69, back{id: c.Log(), at: start + 69 - before, cost: 1}); took != want {
			t.Errorf("%d slots before the newest: %d taken, want %d", before, took, want)
		}
	}
	// A ring of exactly 128 kB, and one with room for a slot more.
	for capacity, want := range map[int]uint64{14_549: 1, 14_550: 0} {
		ring := make([]byte, 131+9*capacity)
		copy(ring, log[:131])
		copy(ring[131:], log[131:])
		binary.BigEndian.PutUint32(ring[31:], 1000)
		binary.BigEndian.PutUint32(ring[35:], uint32(capacity))
		copy(ring[18:], ring[131+9*1000:][:9]) // the newest
		if took := r.compare(ring, start+15_999, back{id: c.Log(), at: start + 1000, cost: 1}); took != want {
			t.Errorf("a ring of %d bytes: %d taken, want %d", len(ring), took, want)
		}
	}
}

// TestTakeBackSeveral takes back from several keys with one call. Some of the values are
// not logs.
func TestTakeBackSeveral(t *testing.T) {
	r := newBackRig(t)
	ctx := t.Context()
	charged := func(key string, cost uint64) back {
		t.Helper()
		c := ten(key, 9, cost)
		if got := r.take(start, c, 0).decision; !got.Allowed {
			t.Fatalf("%s: %+v", key, got)
		}
		return back{id: c.Log(), at: start, cost: cost}
	}
	a, b := charged("a", 2), charged("b", 3)
	none := back{id: ten("none", 9, 1).Log(), at: start, cost: 1}
	list := back{id: ten("list", 9, 1).Log(), at: start, cost: 1}
	hash := back{id: ten("hash", 9, 1).Log(), at: start, cost: 1}
	text := back{id: ten("text", 9, 1).Log(), at: start, cost: 1}
	other := b
	other.id.Window = 7 * 24 * time.Hour
	if err := client(r.client.RPush(ctx, "list:10000000", "x"), r.client.HSet(ctx, "hash:10000000", "x", "y"),
		r.client.Set(ctx, "text:10000000", "0123456789abcdefghijklmnopq", 0), r.client.Rename(ctx, "b:10000000", "b:604800000000"),
		r.client.Copy(ctx, "b:604800000000", "b:10000000", 0, false)); err != nil {
		t.Fatal(err)
	}
	part := a
	part.cost = 1
	got := r.takeBack(start+1, part, list, none, other, b, text, part, hash, part)
	left := 10*time.Second - time.Microsecond
	for i, want := range []back{{taken: 1, reset: left}, {}, {}, {}, {taken: 3}, {}, {taken: 1}, {}, {}} {
		if got[i].taken != want.taken || got[i].reset != want.reset {
			t.Errorf("%d: got %+v, want %d taken, empty in %v", i, got[i], want.taken, want.reset)
		}
	}
	before := r.changes()
	r.takeBack(start+1, part, list, none, other, b, text, part, hash, part)
	if after := r.changes(); after != before {
		t.Errorf("changes: %s, want %s: nothing was taken", after, before)
	}
	types := fmt.Sprint(r.client.Type(ctx, "list:10000000").Val(), r.client.Type(ctx, "hash:10000000").Val(), r.client.Get(ctx, "text:10000000").Val())
	if types != "listhash0123456789abcdefghijklmnopq" {
		t.Errorf("what was there: %s", types)
	}
}

// client returns the first error of some commands.
func client(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// TestTakeBackErrors proves that what the server refuses is an error, not an
// answer, and that nothing was taken then.
func TestTakeBackErrors(t *testing.T) {
	r := newBackRig(t)
	ctx := t.Context()
	c := ten("k", 9, 2)
	r.take(start, c, 0)
	if err := r.client.Do(ctx, "ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-getrange").Err(); err != nil {
		t.Fatal(err)
	}
	poor := redis.NewClient(&redis.Options{Addr: r.client.Options().Addr, Username: "poor", Password: "pw", MaxRetries: -1})
	t.Cleanup(func() { poor.Close() })
	packed := append([]byte{0, 1, 0, 0, 0, 0x98, 0x96, 0x80}, script.AppendInstant(nil, start)...)
	packed = append(packed, 0, 0, 0, 0, 2)
	cmd := r.evalsha(r.back, start, []string{"k:10000000"}, []string{string(packed)})
	if err := poor.Process(ctx, cmd); err == nil {
		t.Errorf("a command that is not permitted: got %v, want an error", cmd.Val())
	}
	if got := r.take(start, c, 0).decision.Remaining; got != 5 {
		t.Errorf("remaining: got %d, want 5", got)
	}
}

// TestTakeBackCorrupt proves that what only looks like a log at first sight stays
// as it is.
func TestTakeBackCorrupt(t *testing.T) {
	r := newBackRig(t)
	c := ten("k", 50, 1)
	var ring []byte
	for i := range 40 {
		var d window.Decision
		ring = reference.Take(ring, start+int64(i), c, &d)
	}
	changed := func(at int, b ...byte) []byte {
		out := append([]byte(nil), ring...)
		copy(out[at:], b)
		return out
	}
	b := back{id: c.Log(), at: start + 39, cost: 1}
	if r.compare(ring, start+50, b) != 1 {
		t.Fatal("nothing was taken from the ring itself")
	}
	for name, value := range map[string][]byte{
		"an unknown kind":                       changed(0, 0xa1),
		"a ring of milliseconds":                changed(0, 0x93),
		"a small log by its kind":               changed(0, 0x90),
		"a clock that is too far":               changed(1, 0xff),
		"a head outside":                        changed(27, 0, 0, 1),
		"more slots than the capacity":          changed(31, 0, 0, 1),
		"no slots":                              changed(31, 0, 0, 0, 0),
		"a capacity that is not there":          changed(35, 0xff),
		"copies used up":                        changed(39, 10),
		"no copies":                             changed(40, 0),
		"more copies than there is room for":    changed(40, 12),
		"more copies than slots":                changed(31, 0, 0, 0, 3),
		"cut off in its header":                 ring[:130],
		"cut off after its header":              ring[:131],
		"cut off in its circle":                 ring[:200],
		"longer than it says":                   append(changed(0), 1),
		"a small log with a part of a slot":     changed(0, 0x90)[:30],
		"a small log with a slot too many":      changed(0, 0x90)[:18+9*14],
		"shorter than any header":               ring[:17],
		"nothing of which anything can be said": {},
	} {
		if taken := r.compare(value, start+50, b); taken != 0 {
			t.Errorf("%s: %d taken", name, taken)
		}
	}
}

// TestTakeBackFromTheFuture: nothing is taken back from a log whose clock is ahead by more than a day.
func TestTakeBackFromTheFuture(t *testing.T) {
	r := &backRig{newRig(t), script.New(script.TakeBack.Text)}
	if err := r.client.ScriptLoad(t.Context(), r.back.Text).Err(); err != nil {
		t.Fatal(err)
	}
	c := &window.Check{Key: "k", Cost: 1, Limit: window.Limit{Hits: 5, Window: 10 * time.Second}}
	for ahead, want := range map[time.Duration]uint64{23 * time.Hour: 1, 25 * time.Hour: 0} {
		at := time.Now().Add(ahead).UnixMicro()
		var d window.Decision
		r.plant(c.Log(), reference.Take(nil, at, c, &d))
		if got := r.takeBack(0, back{id: c.Log(), at: at, cost: 1}); got[0].taken != want {
			t.Errorf("%v ahead: %d hits were taken, want %d", ahead, got[0].taken, want)
		}
	}
}
