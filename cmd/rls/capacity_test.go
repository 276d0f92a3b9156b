package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// within is how far an estimate may be from what a store says: a fifth.
const within = 5

// TestCapacity fills logs in a real Redis and in the embedded store, and compares what they take
// with the estimate.
func TestCapacity(t *testing.T) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: servers.Redis(t)})
	defer client.Close()
	inRedis := redisstore.New(client, redisstore.Options{})
	defer inRedis.Close()
	for _, limit := range []uint64{10, 100, 129, 1000, 3000, 9000} {
		l := policy.Limit{Limit: window.Limit{Hits: limit, Window: time.Hour}}
		want := limitCapacity(&l)
		for _, tt := range []struct {
			hits          uint64
			memory, redis int64
		}{{limit, want.Memory, want.Redis}, {limit / tenth, want.MemoryTenth, want.RedisTenth}} {
			key := fmt.Sprintf("{%016d}:%d:", tt.hits, limit)
			key += strings.Repeat("k", nameBytes-len(key)-len(":3600000000"))
			inMemory := memstore.New(memstore.Options{})
			checks, decisions := []window.Check{{Key: key, Limit: l.Limit, Cost: 1}}, make([]window.Decision, 1)
			for range tt.hits {
				for _, s := range []window.Store{inRedis, inMemory} {
					if _, err := s.Take(ctx, true, checks, decisions); err != nil || !decisions[0].Allowed {
						t.Fatalf("%v, %+v", err, decisions)
					}
				}
			}
			names, err := client.Keys(ctx, key+"*").Result()
			if err != nil || len(names) != 1 {
				t.Fatalf("%q, %v", names, err)
			}
			took, err := client.MemoryUsage(ctx, names[0], 0).Result()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d: Redis takes %d bytes, estimated %d; memory %d, estimated %d", tt.hits, limit, took, tt.redis, inMemory.Stats().Bytes, tt.memory)
			for what, pair := range map[string][2]int64{"Redis": {took, tt.redis}, "the embedded store": {inMemory.Stats().Bytes, tt.memory}} {
				if diff := max(pair[0]-pair[1], pair[1]-pair[0]); diff > pair[0]/within {
					t.Errorf("%d of %d hits: %s takes %d bytes, the estimate is %d", tt.hits, limit, what, pair[0], pair[1])
				}
			}
			if err := inMemory.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestValidateKeys prints the estimate as text and as JSON, and refuses a wrong number.
func TestValidateKeys(t *testing.T) {
	_, out, fails := command(t, "", "validate", "--keys", "10000")
	for _, want := range []string{"memory for 10000 active keys", "\nper-key  ", "\n  if all are pro ", "\nall rules together "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s%s", want, out, fails)
		}
	}
	if _, out, _ := command(t, "", "validate", "--keys", "10000", "--json"); !strings.Contains(out, `"capacity"`) || !strings.Contains(out, `"redis_bytes_at_a_tenth"`) {
		t.Errorf("JSON without the estimate:\n%s", out)
	}
	for _, n := range []string{"0", "-1", "2000000000"} {
		if code, _, fails := command(t, "", "validate", "--keys", n); code != 2 || !strings.Contains(fails, "--keys:") {
			t.Errorf("--keys %s: exit code %d, %s", n, code, fails)
		}
	}
}

// TestCapacityIsNeverNegative estimates logs that no machine can hold.
func TestCapacityIsNeverNegative(t *testing.T) {
	huge := policy.Terms{Limits: []policy.Limit{{Limit: window.Limit{Hits: window.MaxHits - 1, Window: 24 * time.Hour}}}}
	for range 3 {
		huge.Limits = append(huge.Limits, huge.Limits[0])
	}
	c := termsCapacity(&huge, maxKeys)
	c.add(c, 1)
	if c.Memory <= 0 || c.Redis <= 0 || c.MemoryTenth <= 0 || c.RedisTenth <= 0 {
		t.Errorf("got %+v, want sums above 0", c)
	}
}
