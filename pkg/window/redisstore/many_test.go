package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/servers"
)

// TestManyLimits proves that a request of many limits is charged on all of them or on none. The
// script decides it in one call, unless it had to search too many logs: then in several ones, each
// of which has a bounded number of checks.
func TestManyLimits(t *testing.T) {
	k := &keyed{Client: newClient(t, servers.Redis(t))}
	s := redisstore.New(k, redisstore.Options{Timeout: patient})
	defer s.Close()
	for _, tt := range []struct {
		name         string
		limit        window.Limit
		checks, most int
	}{
		{"small logs", window.Limit{Hits: 1, Window: 24 * time.Hour}, window.MaxChecks, window.MaxChecks},
		{"buckets", window.Limit{Hits: 100, Window: time.Hour, Policy: window.TokenBucket, Rate: 100}, 128, 128},
		{"large logs", window.Limit{Hits: 100, Window: 24 * time.Hour}, 128, redisstore.MaxRequests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k.most.Store(0)
			kept := s.Stats().NotTakenBack
			checks := make([]window.Check, tt.checks)
			for i := range checks {
				checks[i] = window.Check{Key: fmt.Sprint(tt.name, i), Limit: tt.limit, Cost: 1}
			}
			if d := take(t, s, checks...); !reference.Allowed(d) {
				t.Fatalf("denied: %+v", d)
			}
			last := tt.checks - 1
			if tt.limit.Hits > 1 {
				take(t, s, window.Check{Key: checks[last].Key, Limit: tt.limit, Cost: tt.limit.Hits - 1}) // it is full
			}
			if d := take(t, s, checks...); reference.Allowed(d) || d[last].Allowed {
				t.Fatalf("the second one is allowed: %+v", d[last])
			}
			for i := range last {
				checks[i].Cost = 0
			}
			// A charge is taken back within a short time or not at all, and calls that a busy machine
			// delays open the breaker. They are counted as not taken back, although Redis may run them.
			after := make([]window.Decision, last)
			eventually(t, "the server to be asked", func() bool {
				_, err := s.Take(t.Context(), window.MayWait, checks[:last], after)
				if err != nil && failure.Of(err) != failure.Open {
					t.Fatal(err)
				}
				return err == nil
			})
			var left uint64
			for _, d := range after {
				left += tt.limit.Hits - 1 - d.Remaining
			}
			if n := s.Stats().NotTakenBack - kept; left > n {
				t.Fatalf("%d charges remain after a denial, want at most the %d that could not be taken back", left, n)
			}
			if most := int(k.most.Load()); most != tt.most {
				t.Errorf("a call had up to %d checks, want %d", most, tt.most)
			}
		})
	}
}
