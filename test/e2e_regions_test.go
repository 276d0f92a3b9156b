package test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// distances are the round trips of the three regions to the global store. The first region has it.
var distances = []time.Duration{0, 40 * time.Millisecond, 80 * time.Millisecond}

// regions are three regions on one machine, each with a Redis of its own, and one Redis that all
// of them share.
type regions struct {
	global *servers.RedisServer
	all    []*region
}

// A region has one rls. line is its way to the global store.
type region struct {
	t       process.TB
	line    *servers.Proxy
	limiter rlsv3.RateLimitServiceClient
	rls     *edge.RLSServer
	near    *servers.RedisServer
}

const (
	envScope = "SLIDEGATE_STORE_SCOPES_GLOBAL_"
	// farTimeout is the longest that a scope may have, so that a busy machine does not look like a
	// line that is cut.
	farTimeout = "700ms"
)

// startRegions starts three regions with the same rules. env is for each rls.
func startRegions(t process.TB, rules string, env map[string]string) *regions {
	t.Helper()
	r := &regions{global: servers.StartRedis(t)}
	for _, d := range distances {
		one := &region{t: t, near: servers.StartRedis(t), line: servers.StartProxy(t, r.global.Addr())}
		one.line.Distance(d)
		settings := map[string]string{
			envTiersSource: "none", envStoreType: "redis", envRedisURL: "redis://" + one.near.Addr(), envStoreTimeout: farTimeout,
			envScope + "REDIS_URL": "redis://" + one.line.Addr(), envScope + "TIMEOUT": farTimeout,
		}
		maps.Copy(settings, env)
		one.rls = edge.RLS(t, edge.RLSOptions{Rules: rules, Env: settings})
		conn, err := one.rls.Dial()
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { conn.Close() })
		one.limiter = rlsv3.NewRateLimitServiceClient(conn)
		r.all = append(r.all, one)
	}
	return r
}

// A told is what rls says to one request.
type told struct {
	allowed, degraded bool
	remaining         []uint32 // of each descriptor
	err               error
}

// ask asks the rls of a region, as Envoy does.
func (r *region) ask(cost uint64, descriptors ...string) told {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	out, err := r.limiter.ShouldRateLimit(ctx, question(cost, descriptors...))
	if err != nil {
		return told{err: err}
	}
	_, degraded := out.GetDynamicMetadata().GetFields()["degraded"]
	t := told{allowed: out.GetOverallCode() == rlsv3.RateLimitResponse_OK, degraded: degraded}
	for _, s := range out.GetStatuses() {
		t.remaining = append(t.remaining, s.GetLimitRemaining())
	}
	return t
}

// A tally is what a region has answered.
type tally struct {
	allowed, denied, degraded int // degraded: whether allowed or not
	shares                    int // of the degraded, those that were allowed
	err                       error
}

// together sends n requests from some callers in each region at the same time.
func together(r *regions, callers, n int, descriptors ...string) []tally {
	counts := make([]tally, len(r.all))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, one := range r.all {
		var sent atomic.Int64
		for range callers {
			all.Go(func() {
				for sent.Add(1) <= int64(n) {
					got := one.ask(1, descriptors...)
					mu.Lock()
					switch {
					case got.err != nil:
						counts[i].err = got.err
					case got.degraded:
						counts[i].degraded++
						if got.allowed {
							counts[i].shares++
						}
					case got.allowed:
						counts[i].allowed++
					default:
						counts[i].denied++
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	return counts
}

// exactly fails the test unless the regions have admitted want together. A request that rls did
// not decide exactly, on a machine that stops for most of a second, may or may not have been
// charged.
func exactly(t *testing.T, counts []tally, want int) {
	t.Helper()
	allowed, degraded := 0, 0
	for i, c := range counts {
		if c.err != nil {
			t.Errorf("region %d: %v", i, c.err)
		}
		allowed, degraded = allowed+c.allowed, degraded+c.degraded
	}
	if allowed > want || allowed+degraded < want {
		t.Errorf("the regions admitted %d (%+v), want %d", allowed, counts, want)
	}
}

const regionRules = `
domain: edge
descriptors:
  - key: world
    rate_limit: {name: world, scope: global, window: 1h, requests: 90}
  - key: here
    rate_limit: {name: here, window: 1h, requests: 40}
`

// TestRegions: a global limit is one log for all regions, a regional one is a log in each.
func TestRegions(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regionRules, nil)
	exactly(t, together(r, 20, 90, "world=a"), 90)
	for i, c := range together(r, 20, 60, "here=a") {
		if c.allowed > 40 || c.allowed+c.degraded < 40 {
			t.Errorf("region %d admitted %+v under a limit of its own, want 40", i, c)
		}
	}
}

// TestAllOrNothingAcrossRegions: a request under a global and a regional limit is charged to both
// or to none, whichever denies, while all regions ask at once.
func TestAllOrNothingAcrossRegions(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regionRules, nil)
	// A request that is being given back can deny another one, and each region remembers a denial
	// for a second. So the rest is asked for alone, until all is admitted.
	counts := together(r, 20, 60, "world=b", "here=b")
	all := func() (allowed, degraded int) {
		for _, c := range counts {
			allowed, degraded = allowed+c.allowed, degraded+c.degraded
		}
		return allowed, degraded
	}
	next := 0
	ask := func() {
		c := &counts[next]
		switch got := r.all[next].ask(1, "world=b", "here=b"); {
		case got.err != nil:
			t.Fatal(got.err)
		case got.degraded:
			c.degraded++
		case got.allowed:
			c.allowed++
		}
		next = (next + 1) % len(counts)
	}
	eventually(t, "the limit to be admitted", func() bool {
		ask()
		allowed, degraded := all()
		return allowed+degraded >= 90
	})
	for range 30 {
		ask()
	}
	for i, c := range counts {
		if c.allowed > 40 {
			t.Errorf("region %d admitted %+v, more than its limit of 40", i, c)
		}
	}
	exactly(t, counts, 90)
	// Nothing is left of what a denied request has taken in one of the two stores.
	for i, one := range r.all {
		c := counts[i]
		eventually(t, "what was denied to be given back", func() bool {
			left := int(one.ask(0, "here=b").remaining[0])
			return left <= 40-c.allowed && left >= 40-c.allowed-c.degraded
		})
	}
}

// TestRegionCutOff: a region that cannot reach the global store admits at most its share of a
// global limit, and its own limits as ever. The others go on exactly. When the line is back the
// region is exact again by itself.
func TestRegionCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*servers.Proxy, bool){
		"silently": (*servers.Proxy).Blackhole,
		"refused": func(p *servers.Proxy, on bool) {
			p.Refuse(on)
			p.CloseAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegions(t, regionRules, nil)
			exactly(t, together(r, 5, 10, "world=c"), 30)
			last := r.all[2]
			waitInstances(t, last.rls, "global", 3)
			cut(last.line, true)
			eventually(t, "the region to notice", func() bool { return last.ask(0, "world=c").degraded })

			counts := together(r, 10, 60, "world=c")
			if c := counts[2]; c.allowed+c.denied > 0 || c.shares == 0 || c.shares > 30 || c.err != nil {
				t.Errorf("the region that is cut off: %+v, want it to admit its share, at most 30", c)
			}
			exactly(t, counts[:2], 60)
			if near := last.ask(1, "here=c"); !near.allowed || near.degraded || near.err != nil {
				t.Errorf("a regional limit in the region that is cut off: %+v", near)
			}
			// Both in one request: the global part by the share, the regional part exactly.
			if both := last.ask(1, "world=d", "here=c"); !both.allowed || !both.degraded || both.err != nil {
				t.Errorf("a global and a regional limit in the region that is cut off: %+v", both)
			}
			if left := last.ask(0, "here=c").remaining; len(left) != 1 || left[0] != 38 {
				t.Errorf("of the regional limit %v remain, want 38", left)
			}

			cut(last.line, false)
			eventually(t, "the region to be exact again", func() bool {
				got := last.ask(1, "world=c")
				return got.err == nil && !got.degraded && !got.allowed
			})
			for i, one := range r.all {
				if got := one.ask(1, "world=c"); got.allowed || got.degraded {
					t.Errorf("region %d after the line is back: %+v, want a denial", i, got)
				}
			}
			exactly(t, together(r, 10, 90, "world=e"), 90)
		})
	}
}

// TestGlobalStoreSlow: while the global store answers too late, requests under regional limits do
// not wait for it, and all are answered, through Envoy.
func TestGlobalStoreSlow(t *testing.T) {
	t.Parallel()
	r := startRegions(t, exampleOfRegions(t), map[string]string{envScope + "TIMEOUT": "200ms"})
	last := r.all[2]
	s := &stack{t: t, app: newApplication(t), rls: last.rls}
	setup{}.startEnvoy(s)
	c := s.from("127.0.0.1")
	waitInstances(t, last.rls, "global", 3)
	last.line.Distance(time.Hour)
	eventually(t, "the region to notice", func() bool { return last.ask(0, "api_key=a").degraded })
	asked := last.line.Connections()
	// The share of 300 is 100 in each instance of three; searches are limited to 40 in the region.
	c.want(200, 40, "/search", "x-api-key", "a")
	c.want(429, 5, "/search", "x-api-key", "a")
	c.want(200, 60, "/", "x-api-key", "a")
	if got := last.ask(1, "route=search,api_key=a"); got.degraded || got.allowed || got.err != nil {
		t.Errorf("the regional limit while the global store is slow: %+v, want an exact denial", got)
	}
	s.wantAllDecided()
	last.line.Distance(0)
	last.line.CloseAll() // replies of an hour ago
	eventually(t, fmt.Sprintf("the region to be exact again (%d connections)", asked), func() bool {
		got := last.ask(0, "api_key=a")
		return got.err == nil && !got.degraded
	})
	s.wantAllDecided()
}

// exampleOfRegions returns the rules of docs/advanced.md.
func exampleOfRegions(t testing.TB) string {
	t.Helper()
	return read(t, "docs/examples/regions-rules.yaml")
}

// TestExampleOfRegions serves the files of docs/advanced.md in three regions, each behind an Envoy.
func TestExampleOfRegions(t *testing.T) {
	// Not beside other tests: a call that takes 700 ms is answered by the share of its region.
	r := &regions{global: servers.StartRedis(t)}
	for _, file := range []string{"docs/examples/regions-rules.yaml", "docs/examples/regions-settings.yaml"} {
		if _, text, _ := strings.Cut(read(t, file), "\n"); !strings.Contains(read(t, "docs/advanced.md"), "```yaml\n"+text+"```\n") {
			t.Errorf("docs/advanced.md does not show what is in %s", file)
		}
	}
	var stacks []*stack
	for _, d := range distances {
		near, line := servers.StartRedis(t), servers.StartProxy(t, r.global.Addr())
		line.Distance(d)
		text := strings.NewReplacer(
			"redis.region.example.com:6379", near.Addr(), "redis.global.example.com:6379", line.Addr(),
			"timeout: 15ms", "timeout: "+farTimeout, "timeout: 300ms", "timeout: "+farTimeout,
		).Replace(read(t, "docs/examples/regions-settings.yaml"))
		file := filepath.Join(t.TempDir(), "slidegate.yaml")
		writeFile(t, file, text)
		s := setup{rules: exampleOfRegions(t), env: map[string]string{"SLIDEGATE_CONFIG": file}}.start(t)
		stacks = append(stacks, s)
	}
	for _, s := range stacks {
		c := s.from("127.0.0.1")
		c.want(200, 40, "/search", "x-api-key", "acme")
		c.want(429, 1, "/search", "x-api-key", "acme") // the region's searches are used up
		c.want(200, 60, "/", "x-api-key", "acme")
	}
	for _, s := range stacks { // and now the contract is, everywhere
		s.from("127.0.0.1").want(429, 1, "/", "x-api-key", "acme")
		s.from("127.0.0.1").want(200, 1, "/", "x-api-key", "globex")
		s.wantAllDecided()
	}
}
