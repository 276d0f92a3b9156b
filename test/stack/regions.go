package stack

import (
	"context"
	"maps"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// Distances are the round trips of the three regions to the global store. The first region has it.
var Distances = []time.Duration{0, 40 * time.Millisecond, 80 * time.Millisecond}

// Regions has three regions on one machine, each with a Redis of its own, and one Redis that all
// of them share.
type Regions struct {
	Global *servers.RedisServer
	All    []*Region
}

// A Region has one rls. Line is its way to the global store.
type Region struct {
	t       process.TB
	Line    *servers.Proxy
	limiter rlsv3.RateLimitServiceClient
	RLS     *edge.RLSServer
	Near    *servers.RedisServer
}

const (
	// EnvScope begins the settings of the global store.
	EnvScope = "SLIDEGATE_STORE_SCOPES_GLOBAL_"
	// FarTimeout is the longest that a scope may have, so that a busy machine does not look like a
	// line that is cut.
	FarTimeout = "700ms"
)

// StartRegions starts three regions with the same rules. env is for each rls.
func StartRegions(t process.TB, rules string, env map[string]string) *Regions {
	t.Helper()
	r := &Regions{Global: servers.StartRedis(t)}
	for _, d := range Distances {
		one := &Region{t: t, Near: servers.StartRedis(t), Line: servers.StartProxy(t, r.Global.Addr())}
		one.Line.Distance(d)
		settings := map[string]string{
			EnvTiersSource: "none", EnvStoreType: "redis", EnvRedisURL: "redis://" + one.Near.Addr(), EnvStoreTimeout: FarTimeout,
			EnvScope + "REDIS_URL": "redis://" + one.Line.Addr(), EnvScope + "TIMEOUT": FarTimeout,
		}
		maps.Copy(settings, env)
		one.RLS = edge.RLS(t, edge.RLSOptions{Rules: rules, Env: settings})
		conn, err := one.RLS.Dial()
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { conn.Close() })
		one.limiter = rlsv3.NewRateLimitServiceClient(conn)
		r.All = append(r.All, one)
	}
	return r
}

// A Reply is what rls says to one request.
type Reply struct {
	Allowed, Degraded bool
	Remaining         []uint32 // of each descriptor
	Err               error
}

// Ask asks the rls of a region, as Envoy does.
func (r *Region) Ask(cost uint64, descriptors ...string) Reply {
	ctx, cancel := context.WithTimeout(r.t.Context(), process.Patience)
	defer cancel()
	out, err := r.limiter.ShouldRateLimit(ctx, Request(cost, descriptors...))
	if err != nil {
		return Reply{Err: err}
	}
	_, degraded := out.GetDynamicMetadata().GetFields()["degraded"]
	t := Reply{Allowed: out.GetOverallCode() == rlsv3.RateLimitResponse_OK, Degraded: degraded}
	for _, s := range out.GetStatuses() {
		t.Remaining = append(t.Remaining, s.GetLimitRemaining())
	}
	return t
}
