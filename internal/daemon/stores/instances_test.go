package stores

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/servers"
)

// TestInstancesOfScopes: processes count themselves in each scope, and the shares are by the number of
// the scope. Of three processes all share the limits of global, and two those of the region.
func TestInstancesOfScopes(t *testing.T) {
	here, there, global := servers.StartRedis(t), servers.StartRedis(t), servers.StartRedis(t)
	check := window.Check{Key: "k", Limit: window.Limit{Hits: 12, Window: window.MaxWindow}, Cost: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var counting sync.WaitGroup
	defer func() {
		cancel()
		counting.Wait()
	}()
	for i, tt := range []struct {
		region         *servers.RedisServer
		shares, global int // what the process admits alone; it counts those before it
	}{{here, 12, 12}, {there, 12, 6}, {here, 6, 4}} {
		s, _, err := settings.Load("", []string{
			"SLIDEGATE_STORE_TYPE=redis", "SLIDEGATE_STORE_REDIS_URL=redis://" + tt.region.Addr(), "SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL=redis://" + global.Addr(),
			"SLIDEGATE_STORE_TIMEOUT=700ms", "SLIDEGATE_STORE_SCOPES_GLOBAL_TIMEOUT=700ms",
		})
		if err != nil {
			t.Fatal(err)
		}
		redis, err := Open(s.Store, func(window.Scope) Options { return Options{Log: zap.NewNop()} })
		if err != nil {
			t.Fatal(err)
		}
		defer redis.Close()
		for _, one := range redis.Scopes {
			first := make(chan error, 1)
			counting.Go(func() {
				_ = one.Count(ctx, func(_, _ int, err error) {
					select {
					case first <- err:
					default:
					}
				})
			})
			if err := <-first; err != nil {
				t.Fatal(err)
			}
		}
		for scope, want := range []int{tt.shares, tt.global} {
			check.Scope = window.Scope(scope)
			admitted := 0
			for range 20 {
				var d [1]window.Decision
				if _, err := redis.Fallback.Take(t.Context(), window.MayWait, []window.Check{check}, d[:]); err != nil {
					t.Fatal(err)
				}
				if d[0].Allowed {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("process %d admits %d of 12 in the scope %d, want %d", i, admitted, scope, want)
			}
		}
	}
}
