package servers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	start := time.Now()
	set := StartSentinel(t, SentinelOptions{})
	t.Logf("started in %v", time.Since(start))
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: set.MasterName(), SentinelAddrs: set.Sentinels()})
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatalf("SET: %v", err)
	}
	first := set.Master()
	if got := set.Replicas(); len(got) != 2 || slices.Contains(got, first) {
		t.Fatalf("got %d replicas, want 2 that are not the master", len(got))
	}

	set.Failover()
	second := set.WaitMaster(first.Addr())
	if second == first || set.Master() != second {
		t.Errorf("after the failover: got master %s, want %s", set.Master().Addr(), second.Addr())
	}
	set.WaitOK()
	if got := do(t, first, "ROLE"); !strings.HasPrefix(got, "slave\n") {
		t.Errorf("the role of the old master: got %q, want slave", got)
	}
	// The client learns of it by itself; until then the old one is READONLY.
	err := eventually(t, func() error { return client.Set(t.Context(), "k", "w", 0).Err() })
	if got := do(t, second, "GET", "k"); got != "w" {
		t.Errorf("GET after the failover: got %q, want w; SET said %v", got, err)
	}

	// One that dies is replaced without being asked.
	second.Stop()
	third := set.WaitMaster(second.Addr())
	if got := do(t, third, "ROLE"); !strings.HasPrefix(got, "master\n") {
		t.Errorf("the role of %s: got %q, want master", third.Addr(), got)
	}
	second.Start()
	set.WaitOK()
	sentinel := set.SentinelServers()[0]
	sentinel.Stop()
	sentinel.Start()
	set.WaitOK()
	if got := set.Master(); got != third {
		t.Errorf("with all back: got master %s, want %s", got.Addr(), third.Addr())
	}
}

func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	const dataPassword, sentinelPassword = "for-the-data", "for-the-sentinels"
	set := StartSentinel(t, SentinelOptions{Password: dataPassword, SentinelPassword: sentinelPassword})
	for _, tt := range []struct {
		name            string
		data, sentinels string
		want            bool
	}{
		{"both right", dataPassword, sentinelPassword, true},
		{"exchanged", sentinelPassword, dataPassword, false},
		{"data only", dataPassword, "", false},
		{"sentinels only", "", sentinelPassword, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName:       set.MasterName(),
				SentinelAddrs:    set.Sentinels(),
				SentinelPassword: tt.sentinels,
				Password:         tt.data,
				MaxRetries:       -1,
				DialerRetries:    1,
			})
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), process.Timeout)
			defer cancel()
			err := client.Ping(ctx).Err()
			if (err == nil) != tt.want || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("PING: got %v, want an answer: %t", err, tt.want)
			}
		})
	}
	before := set.Master().Addr()
	set.Failover()
	set.WaitMaster(before)
}
