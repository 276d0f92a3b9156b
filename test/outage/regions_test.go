package outage

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// A tally is what a region has answered.
type tally struct {
	allowed, denied, degraded int // degraded: whether allowed or not
	shares                    int // of the degraded, those that were allowed
	err                       error
}

// together sends n requests from some callers in each region at the same time.
func together(r *stack.Regions, callers, n int, descriptors ...string) []tally {
	counts := make([]tally, len(r.All))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, one := range r.All {
		var sent atomic.Int64
		for range callers {
			all.Go(func() {
				for sent.Add(1) <= int64(n) {
					got := one.Ask(1, descriptors...)
					mu.Lock()
					switch {
					case got.Err != nil:
						counts[i].err = got.Err
					case got.Degraded:
						counts[i].degraded++
						if got.Allowed {
							counts[i].shares++
						}
					case got.Allowed:
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
  - {key: world, rate_limit: {name: world, scope: global, window: 1h, requests: 90}}
  - {key: here, rate_limit: {name: here, window: 1h, requests: 40}}
`

// TestRegions: a global limit is one log for all regions, a regional one is a log in each.
func TestRegions(t *testing.T) {
	t.Parallel()
	r := stack.StartRegions(t, regionRules, nil)
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
	r := stack.StartRegions(t, regionRules, nil)
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
		switch got := r.All[next].Ask(1, "world=b", "here=b"); {
		case got.Err != nil:
			t.Fatal(got.Err)
		case got.Degraded:
			c.degraded++
		case got.Allowed:
			c.allowed++
		}
		next = (next + 1) % len(counts)
	}
	process.Eventually(t, "the limit to be admitted", func() bool {
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
	for i, one := range r.All {
		c := counts[i]
		process.Eventually(t, "what was denied to be given back", func() bool {
			left := int(one.Ask(0, "here=b").Remaining[0])
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
			r := stack.StartRegions(t, regionRules, nil)
			exactly(t, together(r, 5, 10, "world=c"), 30)
			last := r.All[2]
			stack.WaitInstances(t, last.RLS, "global", 3)
			cut(last.Line, true)
			process.Eventually(t, "the region to notice", func() bool { return last.Ask(0, "world=c").Degraded })

			counts := together(r, 10, 60, "world=c")
			if c := counts[2]; c.allowed+c.denied > 0 || c.shares == 0 || c.shares > 30 || c.err != nil {
				t.Errorf("the region that is cut off: %+v, want it to admit its share, at most 30", c)
			}
			exactly(t, counts[:2], 60)
			if near := last.Ask(1, "here=c"); !near.Allowed || near.Degraded || near.Err != nil {
				t.Errorf("a regional limit in the region that is cut off: %+v", near)
			}
			// Both in one request: the global part by the share, the regional part exactly.
			if both := last.Ask(1, "world=d", "here=c"); !both.Allowed || !both.Degraded || both.Err != nil {
				t.Errorf("a global and a regional limit in the region that is cut off: %+v", both)
			}
			if left := last.Ask(0, "here=c").Remaining; len(left) != 1 || left[0] != 38 {
				t.Errorf("of the regional limit %v remain, want 38", left)
			}

			cut(last.Line, false)
			process.Eventually(t, "the region to be exact again", func() bool {
				got := last.Ask(1, "world=c")
				return got.Err == nil && !got.Degraded && !got.Allowed
			})
			for i, one := range r.All {
				if got := one.Ask(1, "world=c"); got.Allowed || got.Degraded {
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
	r := stack.StartRegions(t, exampleOfRegions(t), map[string]string{stack.EnvScope + "TIMEOUT": "200ms"})
	last := r.All[2]
	s := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: last.RLS}
	stack.Setup{}.StartEnvoy(s)
	c := s.From("127.0.0.1")
	stack.WaitInstances(t, last.RLS, "global", 3)
	last.Line.Distance(time.Hour)
	process.Eventually(t, "the region to notice", func() bool { return last.Ask(0, "api_key=a").Degraded })
	asked := last.Line.Connections()
	// The share of 300 is 100 in each instance of three; searches are limited to 40 in the region.
	c.Want(200, 40, "/search", "x-api-key", "a")
	c.Want(429, 5, "/search", "x-api-key", "a")
	c.Want(200, 60, "/", "x-api-key", "a")
	if got := last.Ask(1, "route=search,api_key=a"); got.Degraded || got.Allowed || got.Err != nil {
		t.Errorf("the regional limit while the global store is slow: %+v, want an exact denial", got)
	}
	s.WantAllDecided()
	last.Line.Distance(0)
	last.Line.CloseAll() // replies of an hour ago
	process.Eventually(t, fmt.Sprintf("the region to be exact again (%d connections)", asked), func() bool {
		got := last.Ask(0, "api_key=a")
		return got.Err == nil && !got.Degraded
	})
	s.WantAllDecided()
}

// exampleOfRegions returns the rules of docs/advanced.md.
func exampleOfRegions(t testing.TB) string {
	t.Helper()
	return tree.Read(t, "docs/examples/regions-rules.yaml")
}

// TestExampleOfRegions serves the files of docs/advanced.md in three regions, each behind an Envoy.
func TestExampleOfRegions(t *testing.T) {
	// Not beside other tests: a call that takes 700 ms is answered by the share of its region.
	r := &stack.Regions{Global: servers.StartRedis(t)}
	for _, file := range []string{"docs/examples/regions-rules.yaml", "docs/examples/regions-settings.yaml"} {
		if _, text, _ := strings.Cut(tree.Read(t, file), "\n"); !strings.Contains(tree.Read(t, "docs/advanced.md"), "```yaml\n"+text+"```\n") {
			t.Errorf("docs/advanced.md does not show what is in %s", file)
		}
	}
	var stacks []*stack.Stack
	for _, d := range stack.Distances {
		near, line := servers.StartRedis(t), servers.StartProxy(t, r.Global.Addr())
		line.Distance(d)
		text := strings.NewReplacer(
			"redis.region.example.com:6379", near.Addr(), "redis.global.example.com:6379", line.Addr(),
			"timeout: 15ms", "timeout: "+stack.FarTimeout, "timeout: 300ms", "timeout: "+stack.FarTimeout,
		).Replace(tree.Read(t, "docs/examples/regions-settings.yaml"))
		file := filepath.Join(t.TempDir(), "slidegate.yaml")
		tree.Write(t, file, text)
		s := stack.Setup{Rules: exampleOfRegions(t), Env: map[string]string{"SLIDEGATE_CONFIG": file}}.Start(t)
		stacks = append(stacks, s)
	}
	for _, s := range stacks {
		c := s.From("127.0.0.1")
		c.Want(200, 40, "/search", "x-api-key", "acme")
		c.Want(429, 1, "/search", "x-api-key", "acme") // the region's searches are used up
		c.Want(200, 60, "/", "x-api-key", "acme")
	}
	for _, s := range stacks { // and now the contract is, everywhere
		s.From("127.0.0.1").Want(429, 1, "/", "x-api-key", "acme")
		s.From("127.0.0.1").Want(200, 1, "/", "x-api-key", "globex")
		s.WantAllDecided()
	}
}
