package redislog

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// TestPrint prints logs that the store has written, and keys that hold no log.
func TestPrint(t *testing.T) {
	addr := servers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	s := settings.Default()
	s.Store.Type = settings.StoreRedis
	s.Store.Redis.URL = redisURL(t, "redis://"+addr)

	store := redisstore.New(client, redisstore.Options{Prefix: "slidegate:"})
	d := make([]window.Decision, 1)
	for range 3 {
		c := window.Check{Key: "k", Limit: window.Limit{Hits: 9, Window: time.Minute}, Cost: 2}
		if _, err := store.Take(t.Context(), window.MayWait, []window.Check{c}, d); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().Unix()
	for _, p := range []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter} {
		c := window.Check{Key: "k", Limit: window.Limit{Hits: 9, Window: 24 * time.Hour, Policy: p}, Cost: 2}
		switch p {
		case window.TokenBucket:
			c.Limit.Rate = 9
		case window.Calendar:
			c.Period = window.Period{Start: now - 1000, End: now + 10_000, Next: now + 20_000}
		}
		if _, err := store.Take(t.Context(), window.MayWait, []window.Check{c}, d); err != nil {
			t.Fatal(err)
		}
	}
	for stream, cost := range []uint64{1, 2, 3} {
		c := window.Check{Key: "k", Limit: window.Limit{Hits: 9, Window: 72 * time.Hour, Policy: window.InFlight}, Cost: cost, Stream: window.StreamID(stream + 1)}
		if _, err := store.Take(t.Context(), window.MayWait, []window.Check{c}, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Set(t.Context(), "text", "hello", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.LPush(t.Context(), "list", "hello").Err(); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		key     string
		entries int
		want    []string
		wantErr string
	}{
		{"slidegate:k:60000000", 2, []string{
			"key      slidegate:k:60000000\nwindow   1m, of which a cost of 6 counts now\nexpires  in 1m",
			"small log, 45 bytes, times in 1µs\n", "entries  3 of 13, cost 6, sums from 0\n  ... 1 older ones\n", "  2\n  -0s  2\n",
		}, ""},
		{"slidegate:k:b86400000000", -1, []string{"policy   token_bucket, with a rate for each 1d\n", "24 bytes\n", "\nexpires  in "}, ""},
		{"slidegate:k:f86400000000", -1, []string{"policy   fixed with a window of 1d, of which a cost of 2 counts now\n", "20 bytes\n"}, ""},
		{"slidegate:k:c86400000000", -1, []string{"policy   calendar with a window of 1d, of which a cost of 2 counts now\n", "\nexpires  in 2h46m"}, ""},
		{"slidegate:k:w86400000000", -1, []string{"policy   sliding_counter with a window of 1d, of which a cost of 2 counts now\n", "17 bytes\n"}, ""},
		{"slidegate:k:h", 2, []string{
			"policy   in_flight, of which a cost of 6 is active now\nexpires  in 3d", "in_flight, 121 bytes\n", "holds    3, cost 6\n  ... 1 more, which end earlier\n",
			"  0000000000000002 holds 2 until +", "  0000000000000003 holds 3 until +3d",
		}, ""},
		{"slidegate:k:h", -1, []string{"holds    3, cost 6\n  0000000000000001 holds 1 until "}, ""},
		{"slidegate:k:60000000", -1, []string{"sums from 0\n  -"}, ""},
		{"k:60000000", -1, nil, `no key "k:60000000" in Redis; names begin with store.redis.key_prefix, here "slidegate:"`},
		{"text", -1, nil, `the value of "text": window: not a log: kind 0x68`},
		{"list", -1, nil, `the value of "list" is not a log: it is not a string`},
	} {
		var out strings.Builder
		err := Print(t.Context(), s, settings.ScopeRegion, tt.key, tt.entries, &out)
		if tt.wantErr == "" && err != nil || tt.wantErr != "" && !strings.Contains(fmt.Sprint(err), tt.wantErr) {
			t.Errorf("%s: error %v, want %q", tt.key, err, tt.wantErr)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: got\n%s\nwithout %q", tt.key, out.String(), want)
			}
		}
	}
	// The user of docs/operate.md for inspecting logs has the rights that Print needs.
	page := tree.Text(t, "../../../docs/operate.md")
	var acl []any
	for _, word := range strings.Fields(strings.ReplaceAll(regexp.MustCompile(`(?m)^ACL SETUSER support .*$`).FindString(page), ">PASSWORD", ">pw")) {
		acl = append(acl, word)
	}
	if err := client.Do(t.Context(), acl...).Err(); err != nil {
		t.Fatal(err)
	}
	s.Store.Redis.URL = redisURL(t, "redis://support:pw@"+addr)
	if err := Print(t.Context(), s, settings.ScopeRegion, "slidegate:k:60000000", 2, &strings.Builder{}); err != nil {
		t.Errorf("as the user of the docs: %v", err)
	}
	// Another scope has a Redis of its own.
	if err := Print(t.Context(), s, "globe", "k", -1, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), `--scope: "globe" is not one of region`) {
		t.Errorf("an unknown scope: %v", err)
	}
	s.Store.Scopes = settings.Scopes{{Name: "global", ScopeStore: settings.ScopeStore{Redis: s.Store.Redis}}}
	s.Store.Scopes[0].Redis.KeyPrefix = "g:"
	if err := Print(t.Context(), s, "global", "slidegate:k:1", -1, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), `store.scopes.global.redis.key_prefix, here "g:"`) {
		t.Errorf("a scope without the log: %v", err)
	}
	s.Store.Type = settings.StoreMemory
	if err := Print(t.Context(), s, settings.ScopeRegion, "k", -1, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "store.type is memory in these settings") || !strings.Contains(err.Error(), "--config") {
		t.Errorf("with the embedded store: %v, want a reason", err)
	}
}

func redisURL(t *testing.T, text string) settings.RedisURL {
	t.Helper()
	s, _, err := settings.Load("", []string{"SLIDEGATE_STORE_REDIS_URL=" + text})
	if err != nil {
		t.Fatal(err)
	}
	return s.Store.Redis.URL
}
