package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/servers"
)

const maxSmall = 13 // slots of a small log

// TestExpiry proves that a key is set to live until its newest entry has expired
// and a quarter of the window more, and that this is set again only when needed.
func TestExpiry(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	const marker = 5 * time.Hour // what is left alone stays above four
	for _, fill := range []int{1, 30} {
		name := "small"
		if fill > maxSmall {
			name = "ring"
		}
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			key := name + ":10000000"
			mark := func() {
				t.Helper()
				if ok, err := client.PExpire(ctx, key, marker).Result(); err != nil || !ok {
					t.Fatalf("PEXPIRE: %t, %v", ok, err)
				}
			}
			ttl := func() time.Duration {
				t.Helper()
				d, err := client.PTTL(ctx, key).Result()
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			// Ends at 110 s and some microseconds; 111 in whole seconds; 3 s more.
			start := time.Now()
			for i := range fill {
				setClock(t, client, "clock", 100*time.Second+time.Duration(i)*time.Microsecond)
				take(t, s, check(name, 100, 1))
			}
			longest := win + 4*time.Second
			if got := ttl(); got > longest || got < win+3*time.Second-time.Since(start)-time.Millisecond {
				t.Errorf("life of a new key: got %v, want %v to %v", got, win+3*time.Second, longest)
			}
			for _, step := range []struct {
				at   time.Duration
				c    window.Check
				want time.Duration // 0: left alone
			}{
				{101 * time.Second, check(name, 100, 1), 0},
				{102 * time.Second, check(name, 100, 1), 0},
				{102 * time.Second, check(name, 2, 5), 0}, // denied
				{102 * time.Second, check(name, 100, 0), 0},
				// Needs 114.5 s: set to 115 + 3.
				{104500 * time.Millisecond, check(name, 100, 1), 13500 * time.Millisecond},
				// The clock is set back: the log's is held, so it needs no more.
				{60 * time.Second, check(name, 100, 1), 0},
				// All has expired: needs 130 s, set to 130 + 3.
				{120 * time.Second, check(name, 100, 1), 13 * time.Second},
			} {
				mark()
				setClock(t, client, "clock", step.at)
				start := time.Now()
				take(t, s, step.c)
				got := ttl()
				if step.want == 0 {
					if got < marker-time.Hour {
						t.Errorf("at %v, %+v: life %v was set, want it left alone", step.at, step.c, got)
					}
				} else if got > step.want || got < step.want-time.Since(start)-time.Millisecond {
					t.Errorf("at %v, %+v: life %v, want %v", step.at, step.c, got, step.want)
				}
			}
		})
	}
}

// TestExpiryOfAHeldClock proves that a key outlives entries that are ahead of the
// clock, as they are once it was set back.
func TestExpiryOfAHeldClock(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	c := check("k", 5, 1)
	var d window.Decision
	log := reference.Take(nil, (epoch + 100*time.Second).Microseconds(), &c, &d) // its expiry is not set
	if err := client.Set(t.Context(), "k:10000000", log, 0).Err(); err != nil {
		t.Fatal(err)
	}
	setClock(t, client, "clock", 40*time.Second)
	start := time.Now()
	take(t, s, c)
	got, want := client.PTTL(t.Context(), "k:10000000").Val(), 73*time.Second // 110 + 3 - 40
	if got > want || got < want-time.Since(start)-time.Millisecond {
		t.Errorf("life: got %v, want %v", got, want)
	}
}

// TestDeniedWritesNothing proves it by the server's own count of changes.
func TestDeniedWritesNothing(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	setClock(t, client, "clock", 0)
	take(t, s, check("full", 2, 2), check("free", 5, 1))
	for range 30 {
		setClock(t, client, "clock", time.Second)
		take(t, s, check("ring", 30, 1))
	}
	setClock(t, client, "clock", 5*time.Second)
	take(t, s, check("free", 5, 1))
	setClock(t, client, "clock", 10*time.Second-time.Microsecond)

	before := changes(t, client)
	if reference.Allowed(take(t, s, check("free", 5, 1), check("full", 2, 1), check("new", 1, 1))) {
		t.Fatal("the group was allowed")
	}
	take(t, s, check("ring", 30, 2))
	take(t, s, check("new", 1, 2))
	take(t, s, check("new", 1, 0), check("free", 5, 0))
	refund := check("new", 5, 3)
	refund.Mode = window.Refund
	take(t, s, refund)
	if got := changes(t, client); got != before {
		t.Errorf("changes after denials and questions: got %s, want %s as before", got, before)
	}
}

// changes returns the server's count of changes.
func changes(t *testing.T, client *redis.Client) string {
	t.Helper()
	info, err := client.Info(t.Context(), "persistence").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
	n, _, ok := strings.Cut(rest, "\r\n")
	if !ok {
		t.Fatal("INFO persistence does not tell rdb_changes_since_last_save")
	}
	return n
}
