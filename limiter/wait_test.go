package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestWait: a request waits until it has room, and no longer than its context allows.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, err := limiter.MakeRules(limiter.Domain{Name: "d", Rules: []limiter.Rule{{
			Key: "k", RateLimit: &limiter.RateLimit{Name: "r", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 2, Window: 10 * time.Second}}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := limiter.New(memstore.New(memstore.Options{SweepInterval: -1}), rules)
		if err != nil {
			t.Fatal(err)
		}
		ask := limiter.One("d", "k", "v")
		start := time.Now()
		for range 4 {
			if d, err := l.Wait(t.Context(), ask); err != nil || !d.Allowed {
				t.Fatalf("got %+v, %v", d, err)
			}
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("four requests under 2 in 10s took %v", took)
		}
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start = time.Now()
		if _, err := l.Wait(short, ask); !errors.Is(err, limiter.ErrDeadline) || time.Since(start) > time.Second {
			t.Errorf("a wait of 10s with 5s left: %v after %v", err, time.Since(start))
		}
		large := ask
		large.Descriptors = []limiter.Descriptor{{Entries: ask.Descriptors[0].Entries, Cost: 3}}
		if _, err := l.Wait(t.Context(), large); !errors.Is(err, limiter.ErrNever) {
			t.Errorf("a cost of 3 under 2: %v", err)
		}
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, leave)
		if _, err := l.Wait(leaving, ask); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that leaves: %v", err)
		}
	})
}
