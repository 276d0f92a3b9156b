package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/servers"
)

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
	if held, err := s.End(t.Context(), 7, 0); held || err != nil {
		t.Errorf("the end: held %t, error %v", held, err)
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
