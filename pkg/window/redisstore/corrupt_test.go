package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/servers"
)

// logOf returns the bytes of a log with hits of cost 1, a millisecond apart, the
// last of them at the epoch.
func logOf(t testing.TB, hits int, l window.Limit) []byte {
	t.Helper()
	var log []byte
	c := window.Check{Key: "k", Limit: l, Cost: 1}
	for i := range hits {
		var d window.Decision
		log = reference.Take(log, (epoch - time.Duration(hits-1-i)*time.Millisecond).Microseconds(), &c, &d)
	}
	return log
}

// TestCorrupt proves that a value which is not a log is removed, reported, and
// then no different from none, whatever becomes of the group.
func TestCorrupt(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	const (
		key  = "p:secret-subject:10000000"
		good = "p:good:10000000"
	)
	limit := window.Limit{Hits: 50, Window: win}
	ring := logOf(t, 40, limit)
	changed := func(at int, b byte) []byte {
		out := append([]byte(nil), ring...)
		out[at] = b
		return out
	}
	set := func(value []byte) func(context.Context) error {
		return func(ctx context.Context) error { return client.Set(ctx, key, value, 0).Err() }
	}
	for _, tt := range []struct {
		name string
		put  func(context.Context) error
	}{
		{"a number", set([]byte("7"))},
		{"text as long as a log", set([]byte("0123456789abcdefghijklmnopq"))},
		{"an unknown kind", set(append([]byte{0xa0}, logOf(t, 2, limit)[1:]...))},
		{"text as long as a ring's header", set(make([]byte, 135))},
		{"a list", func(ctx context.Context) error { return client.RPush(ctx, key, "a").Err() }},
		{"a hash", func(ctx context.Context) error { return client.HSet(ctx, key, "a", "b").Err() }},
		{"a sorted set, as before", func(ctx context.Context) error {
			return client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "0000000000000002:2"}).Err()
		}},
		{"a log of another unit", set(logOf(t, 2, window.Limit{Hits: 50, Window: 7 * 24 * time.Hour}))},
		{"a ring of another unit", set(logOf(t, 40, window.Limit{Hits: 50, Window: 7 * 24 * time.Hour}))},
		{"a header cut off", set(logOf(t, 2, limit)[:17])},
		{"a slot cut off", set(logOf(t, 2, limit)[:30])},
		{"a small log with too many slots", set(append(logOf(t, 13, limit), make([]byte, 9)...))},
		{"a ring without a circle", set(ring[:131])},
		{"a clock that is too far", set(changed(1, 0xff))},
		{"a head outside", set(changed(29, 1))},
		{"more slots than the capacity", set(changed(33, 1))},
		{"no copies", set(changed(40, 0))},
		{"copies used up", set(changed(39, 10))},
		{"more copies than there is room for", set(changed(40, 12))},
		{"more copies than slots", func(ctx context.Context) error {
			out := changed(34, 3)
			return client.Set(ctx, key, out, 0).Err()
		}},
	} {
		for _, denied := range []bool{false, true} {
			name := tt.name
			if denied {
				name += ", in a denied group"
			}
			t.Run(name, func(t *testing.T) {
				ctx := t.Context()
				var told []time.Duration
				s := redisstore.NewWithClock(t, client, redisstore.Options{
					Prefix: "p:", Corrupt: func(win time.Duration) { told = append(told, win) },
				}, "clock")
				client.FlushDB(ctx)
				setClock(t, client, "clock", 0)
				if err := tt.put(ctx); err != nil {
					t.Fatal(err)
				}
				limits := uint64(5)
				if denied {
					limits = 1
				}
				checks := []window.Check{check("secret-subject", 5, 2), check("good", limits, 2), check("secret-subject", 5, 1)}
				got := take(t, s, checks...)
				left := uint64(2)
				if denied {
					left = 5
				}
				want := window.Decision{Allowed: true, Remaining: left}
				if !denied {
					want.UnitAfter, want.ResetAfter = win, win
				}
				if diff := cmp.Diff([]window.Decision{want, want}, []window.Decision{got[0], got[2]}); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if diff := cmp.Diff([]time.Duration{win}, told); diff != "" {
					t.Errorf("told of: (-want +got)\n%s", diff)
				}
				value, err := client.Get(ctx, key).Bytes()
				if denied {
					if n := client.Exists(ctx, key, good).Val(); n != 0 {
						t.Errorf("%d keys are there after a denied group, want none", n)
					}
				} else if _, decodeErr := packed.Decode(value); err != nil || decodeErr != nil {
					t.Errorf("the value after it: %v, %v", err, decodeErr)
				}
				// It is told once.
				if got := take(t, s, check("secret-subject", 5, 1))[0]; !got.Allowed || got.Remaining != left-1 {
					t.Errorf("the next call: got %+v, want %d to remain", got, left-1)
				}
				if len(told) != 1 {
					t.Errorf("told of %d values, want 1", len(told))
				}
			})
		}
	}
}

// TestCutRing proves that a ring whose circle is cut off or too long is found out
// where it is read or written, and thrown away then.
func TestCutRing(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	const key = "k:10000000"
	limit := window.Limit{Hits: 50, Window: win}
	full := logOf(t, 40, window.Limit{Hits: 40, Window: win}) // with no room to spare
	vast := append([]byte(nil), full...)
	copy(vast[31:39], "\xff\xff\xff\xff\xff\xff\xff\xff") // count and capacity
	shrunk := append(logOf(t, 40, limit)[:140], 0)
	for _, tt := range []struct {
		name  string
		value []byte
		at    time.Duration
		c     window.Check
		want  window.Decision
	}{
		{"charge, cut off", shrunk, 0, check("k", 50, 1), window.Decision{Allowed: true, Remaining: 49, UnitAfter: win, ResetAfter: win}},
		{"charge, too long", append(logOf(t, 40, limit), 1), 0, check("k", 50, 1), window.Decision{Allowed: true, Remaining: 49, UnitAfter: win, ResetAfter: win}},
		// The first 20 have expired, so the circle is read.
		{"look", shrunk, win - 20*time.Millisecond, check("k", 50, 0), window.Decision{Allowed: true, Remaining: 50}},
		// The copies are used up, so the next ones are read.
		{"charge, copies used up", shrunk, win - 29*time.Millisecond, check("k", 50, 1), window.Decision{Allowed: true, Remaining: 49, UnitAfter: win, ResetAfter: win}},
		{"wait", shrunk, 0, check("k", 40, 30), window.Decision{Allowed: true, Remaining: 10, UnitAfter: win, ResetAfter: win}},
		{"wait for one", shrunk, 0, check("k", 20, 1), window.Decision{Allowed: true, Remaining: 19, UnitAfter: win, ResetAfter: win}},
		{"refund", shrunk, 0, refunding(check("k", 50, 20)), window.Decision{Allowed: true, Remaining: 50}},
		{"refund of less", append(logOf(t, 40, limit), 1), 0, refunding(check("k", 50, 2)), window.Decision{Allowed: true, Remaining: 50}},
		{"shrink", shrunk, win - 8*time.Millisecond, check("k", 50, 1), window.Decision{Allowed: true, Remaining: 49, UnitAfter: win, ResetAfter: win}},
		{"grow", full[:140], time.Millisecond, check("k", 50, 1), window.Decision{Allowed: true, Remaining: 49, UnitAfter: win, ResetAfter: win}},
		{"a circle of 38 GB that is not there", vast, time.Millisecond, check("k", window.Unlimited-1, 1), window.Decision{Allowed: true, Remaining: window.Unlimited - 2, UnitAfter: win, ResetAfter: win}},
		{"report", shrunk, 0, reporting(check("k", 30, 35)), window.Decision{Never: true, UnitAfter: win, ResetAfter: win}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := 0
			s := redisstore.NewWithClock(t, client, redisstore.Options{Corrupt: func(time.Duration) { told++ }}, "clock")
			if err := client.Set(t.Context(), key, tt.value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			setClock(t, client, "clock", tt.at)
			if diff := cmp.Diff(tt.want, take(t, s, tt.c)[0]); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if told != 1 {
				t.Errorf("told of %d values, want 1", told)
			}
			if value, err := client.Get(t.Context(), key).Bytes(); err == nil {
				if _, err := packed.Decode(value); err != nil {
					t.Errorf("what is there now: %v", err)
				}
			}
		})
	}
}

func refunding(c window.Check) window.Check {
	c.Mode = window.Refund
	return c
}

func reporting(c window.Check) window.Check {
	c.Mode = window.Always
	return c
}

// TestCorruptStreams: a value under the name of a stream that says nothing of a stream is as none.
// The stream begins and ends, and gives its place back. A place that it had before ends with its
// hold, and the end is no error.
func TestCorruptStreams(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	const key = "p:{0000000000000007}:s"
	good := "\xa6\x00\x01\xa2\x08\xaa\x04\x1a\x00\x00\x00\x03p:x"
	until := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(time.Hour).UnixMilli()))
	open := "\xa6" + string(until[1:])
	set := func(value string) func(context.Context) error {
		return func(ctx context.Context) error { return client.Set(ctx, key, value, 0).Err() }
	}
	for name, put := range map[string]func(context.Context) error{
		"nothing":               set(""),
		"text":                  set("text that is longer than a header"),
		"a header cut off":      set(good[:7]),
		"another kind":          set("\xa8" + good[1:]),
		"a time too far":        set(good[:1] + "\xff" + good[2:]),
		"a length cut off":      set(good[:10]),
		"a length too large":    set(good[:8] + "\xff\xff\xff\xff" + good[12:]),
		"a name cut off":        set(good[:14]),
		"something behind":      set(good + "x"),
		"too many logs":         set(open + strings.Repeat("\x00\x00\x00\x01x", 193)),
		"many empty names":      set(open + strings.Repeat("\x00\x00\x00\x00", 1<<18-2)),
		"decades ahead":         set("\xa6\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x03p:x"),
		"a log that is missing": set(good),
		"the value of a limit":  set("\xa1\x06`\xf1\xd8\x10\xa3\x19\x00\x01\x00\x00\x00\x08\x00\x00\x00\x00\x06\x99\x00\x00\x00x"),
		"a list":                func(ctx context.Context) error { return client.RPush(ctx, key, "a").Err() },
		"a hash":                func(ctx context.Context) error { return client.HSet(ctx, key, "a", "b").Err() },
	} {
		for _, begun := range []bool{false, true} {
			s := redisstore.New(client, redisstore.Options{Prefix: "p:"})
			client.FlushDB(t.Context())
			begin := func() {
				if d := take(t, s, window.Check{Key: "k", Cost: 1, Stream: 7, Limit: window.Limit{Hits: 1, Window: time.Minute, Policy: window.InFlight}}); !d[0].Allowed {
					t.Errorf("%s: got %+v, want allowed", name, d)
				}
			}
			if begun {
				begin()
			}
			client.Del(t.Context(), key)
			if err := put(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !begun {
				begin()
			}
			settled, err := s.End(t.Context(), window.Ending{Stream: 7})
			if err != nil || settled.Released == begun {
				t.Errorf("%s: the end: %+v, error %v", name, settled, err)
			}
			if n := client.Exists(t.Context(), key).Val(); n != 0 {
				t.Errorf("%s: the value is still there", name)
			}
			s.Close()
		}
	}
}

const day = 24 * time.Hour

// TestPlantedClock plants values of every policy whose clock is ahead of that of the server. Up to
// a day ahead they count. Later they are corrupt, and the key lives for its window and a day at most.
func TestPlantedClock(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	for _, policy := range []window.Policy{window.Sliding, window.TokenBucket, window.Fixed, window.SlidingCounter, window.InFlight} {
		for _, ahead := range []time.Duration{23 * time.Hour, 25 * time.Hour, 365 * 80 * day} {
			t.Run(fmt.Sprint(policy, " ", ahead), func(t *testing.T) {
				client.FlushDB(t.Context())
				corrupt := 0
				s := redisstore.New(client, redisstore.Options{Corrupt: func(time.Duration) { corrupt++ }})
				defer s.Close()
				c := window.Check{Key: "k", Cost: 1, Limit: window.Limit{Hits: 5, Window: time.Minute, Policy: policy}}
				switch policy {
				case window.InFlight:
					c.Stream = 7
				case window.TokenBucket:
					c.Limit.Rate = 5
				}
				value := valueOf(&c, time.Now().Add(ahead), 5)
				key := redisstore.KeyName("", c.Log())
				if err := client.Set(t.Context(), key, value, 0).Err(); err != nil {
					t.Fatal(err)
				}
				c.Stream *= 2
				want := 0
				if ahead > day {
					want = 1
				}
				if d := take(t, s, c)[0]; d.Allowed != (want == 1) || corrupt != want {
					t.Errorf("allowed %t, %d values are corrupt, want %t and %d", d.Allowed, corrupt, want == 1, want)
				}
				if life := client.PTTL(t.Context(), key).Val(); want == 1 && (life <= 0 || life > day+2*time.Minute) {
					t.Errorf("the key lives for %v", life)
				}
			})
		}
	}
}

// valueOf returns a value in which streams or hits use up so much of a limit.
func valueOf(c *window.Check, at time.Time, hits int) []byte {
	if c.Stream != 0 {
		var s packed.State
		var value []byte
		for i := range hits {
			one := *c
			one.Stream += window.StreamID(i)
			s.Look(value, at.UnixMicro(), &one)
			s.Charge(&one)
			value = append([]byte(nil), s.Log()...)
		}
		return value
	}
	one := *c
	one.Cost = uint64(hits)
	if c.Limit.Policy == window.Sliding {
		var d window.Decision
		return reference.Take(nil, at.UnixMicro(), &one, &d)
	}
	var s packed.State
	s.Look(nil, at.UnixMicro(), &one)
	s.Charge(&one)
	return s.Log()
}

// TestPlantedLife plants values that count, and say that they do so for decades. A charge gives
// the key the life of its window, and a day.
func TestPlantedLife(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	const week = 7 * day
	s := redisstore.New(client, redisstore.Options{})
	defer s.Close()
	c := window.Check{Key: "k", Cost: 1, Limit: window.Limit{Hits: 5, Window: week}}
	key := redisstore.KeyName("", c.Log())
	for name, change := range map[string]func(log []byte){
		"the newest slot": func(log []byte) { log[18] += 0x40 },
		"the expiry":      func(log []byte) { binary.BigEndian.PutUint32(log[14:], 0xffffffff) },
	} {
		log := valueOf(&c, time.Now(), 1)
		change(log)
		if err := client.Set(t.Context(), key, log, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if d := take(t, s, c)[0]; !d.Allowed || d.Remaining != 3 {
			t.Errorf("%s: %+v, want a charge to a log with one", name, d)
		}
		if life := client.PTTL(t.Context(), key).Val(); life <= 0 || life > week+week/3+day {
			t.Errorf("%s: the key lives for %v", name, life)
		}
	}
}

// TestPlantedOnceRecord: an idempotency record that says it lives for decades is corrupt, and covers no charge.
func TestPlantedOnceRecord(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{})
	defer s.Close()
	c := window.Check{Key: "{k}", Cost: 1, Limit: window.Limit{Hits: 5, Window: time.Minute}}
	c.Once = window.Once{ID: 1, For: time.Hour, Repeats: 1}
	take(t, s, c)
	for _, key := range client.Keys(t.Context(), "*").Val() {
		if value, _ := client.Get(t.Context(), key).Bytes(); len(value) == 13 && value[0] == 168 {
			client.SetRange(t.Context(), key, 1, "\x0f")
		}
	}
	if d := take(t, s, c)[0]; d.Repeated || d.Remaining != 3 {
		t.Errorf("got %+v, want a charge", d)
	}
}

// TestPlantedClockOfAStream: an end changes no log that is decades ahead, and takes nothing back
// from one.
func TestPlantedClockOfAStream(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{Prefix: "p:"})
	defer s.Close()
	c := window.Check{Key: "k", Cost: 1, Stream: 7, Limit: window.Limit{Hits: 5, Window: time.Minute, Policy: window.InFlight}}
	take(t, s, c)
	key := redisstore.KeyName("p:", c.Log())
	if err := client.Set(t.Context(), key, valueOf(&c, time.Now().Add(365*80*day), 5), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if settled, err := s.End(t.Context(), window.Ending{Stream: 7}); settled.Released || err != nil {
		t.Errorf("the end: %+v, error %v", settled, err)
	}
}

// TestPlantedRing plants a ring with more slots than any limit needs. It is corrupt, and Redis
// neither reads nor copies it. A ring of the largest limit with all its debt counts, also in a
// check that needs less.
func TestPlantedRing(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	for _, tt := range []struct {
		slots   int
		check   uint64 // hits of the check
		corrupt int
	}{
		{50_000, 100_000, 0},
		{50_000, 10, 0},
		{100_000, 10, 1},
		{3_400_000, 1000, 1},
	} {
		t.Run(strconv.Itoa(tt.slots)+" for "+strconv.FormatUint(tt.check, 10), func(t *testing.T) {
			corrupt := 0
			s := redisstore.New(client, redisstore.Options{Corrupt: func(time.Duration) { corrupt++ }})
			defer s.Close()
			c := window.Check{Key: "k", Cost: 1, Limit: window.Limit{Hits: tt.check, Window: time.Hour}}
			key := redisstore.KeyName("", c.Log())
			if err := client.Set(t.Context(), key, fullRing(tt.slots), 0).Err(); err != nil {
				t.Fatal(err)
			}
			take(t, s, c)
			size := client.StrLen(t.Context(), key).Val()
			if corrupt != tt.corrupt || (size < 1000) != (tt.corrupt == 1) {
				t.Errorf("%d values are corrupt, and %d bytes are there, want %d", corrupt, size, tt.corrupt)
			}
		})
	}
}

// fullRing returns a ring with no room, whose hits were a second ago.
func fullRing(slots int) []byte {
	at := uint64(time.Now().Add(-time.Second).UnixMicro())
	b := append([]byte{0x91}, binary.BigEndian.AppendUint64(nil, at)...)
	b = append(b, make([]byte, 9)...) // base and expiry
	slot := func(i int) {
		t := at - uint64(slots) + uint64(i)
		b = append(b, byte(t>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(t))
		b = binary.BigEndian.AppendUint32(b, uint32(i+1))
	}
	slot(slots)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(slots))
	b = binary.BigEndian.AppendUint32(b, uint32(slots))
	b = append(b, 0, 10)
	for i := range 10 {
		slot(i)
	}
	for i := range slots {
		slot(i)
	}
	return b
}

// TestPlantedHash: Redis frees a large hash under the name of a stream in the background. A SET
// in its place would free it before it returns.
func TestPlantedHash(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	ctx := t.Context()
	fields := make([]any, 0, 2000)
	for i := range 1000 {
		fields = append(fields, strconv.Itoa(i), "x")
	}
	if err := client.HSet(ctx, "{0000000000000007}:s", fields...).Err(); err != nil {
		t.Fatal(err)
	}
	before := lazyFreed(ctx, t, client)
	s := redisstore.New(client, redisstore.Options{})
	defer s.Close()
	take(t, s, window.Check{Key: "k", Cost: 1, Stream: 7, Limit: window.Limit{Hits: 5, Window: time.Minute, Policy: window.InFlight}})
	for tries := 0; lazyFreed(ctx, t, client) == before; tries++ { // between two numbers it is in neither
		if tries == 100 {
			t.Fatal("the hash was not freed in the background")
		}
	}
}

// lazyFreed returns how many values a server has freed in the background, or is to free.
func lazyFreed(ctx context.Context, t *testing.T, client *redis.Client) (sum int) {
	t.Helper()
	info := client.Info(ctx, "memory", "stats").Val()
	for line := range strings.Lines(info) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "lazyfreed_objects" || name == "lazyfree_pending_objects" {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
