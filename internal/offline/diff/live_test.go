package diff_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/diff"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/random"
)

// A service is what a running service has: rules, a store with a clock, and an Insight.
type service struct {
	t     *testing.T
	set   diff.Set
	store *memstore.Store
	clock time.Duration
}

func newService(t *testing.T, set diff.Set) *service {
	t.Helper()
	s := &service{t: t, set: set, clock: 1000 * time.Hour}
	s.store = memstore.New(memstore.Options{Clock: func() time.Duration { return s.clock }, SweepInterval: -1})
	t.Cleanup(func() { s.store.Close() })
	return s
}

// ask decides a request of an API key by rules, and reports whether it passes.
func (s *service) ask(rs *rules.Rules, key string) bool {
	s.t.Helper()
	d := decide.NewDecider(rs, decide.Options{Store: s.store, Clock: func() time.Duration { return s.clock }})
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	var c decide.Call
	d.Begin(&c, decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: "api_key", Value: secrets.Value("api_key", key)}}, Cost: 1}}})
	if _, err := c.Decide(context.Background(), window.MayWait); err != nil {
		s.t.Fatal(err)
	}
	return c.Verdict().Allowed
}

// logs returns what the admin port lists.
func (s *service) logs() (all []insight.LimitUsage) {
	s.t.Helper()
	in := insight.New(insight.Options{Rules: func() *rules.Rules { return s.set.Rules }, Inspector: s.store, Store: "memory"})
	defer in.Close()
	for q := (insight.LogsQuery{}); ; {
		l, err := in.Logs(s.t.Context(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, l.Logs...)
		if q.Cursor = l.Next; q.Cursor == "" {
			return all
		}
	}
}

// liveTiers are customers c0 to c9 with the keys k0 to k9.
func liveTiers() string {
	var b strings.Builder
	b.WriteString("tiers: [free]\ndefault: free\nsubjects:\n")
	for i := range 10 {
		fmt.Fprintf(&b, "  - {id: c%d, keys: [{plain: k%d}]}\n", i, i)
	}
	return b.String()
}

func liveRule(limit string) string {
	return "domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: r, " + limit + "}}\n"
}

// TestLiveIsWhatTheNewRulesDecide: where the log is kept, the new rules deny the next request of each
// party that is named, on the same store, and of no other party.
func TestLiveIsWhatTheNewRulesDecide(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	denied := 0
	for n := range 60 {
		hits := 1 + rnd.IntN(30)
		old, now := "window: 1m, requests: 40", fmt.Sprintf("window: 1m, requests: %d", hits)
		switch n % 4 {
		case 1:
			old, now = "policy: token_bucket, rate: 10/m, burst: 20", fmt.Sprintf("policy: token_bucket, rate: 10/m, burst: %d", hits)
		case 2:
			old, now = "policy: fixed, window: 1m, requests: 40", fmt.Sprintf("policy: fixed, window: 1m, requests: %d", hits)
		case 3:
			now += ", cost: 3"
		}
		was, is := mustLoad(t, liveTiers(), liveRule(old)), mustLoad(t, liveTiers(), liveRule(now))
		s := newService(t, was)
		for range 150 {
			s.ask(was.Rules, fmt.Sprintf("k%d", rnd.IntN(10)))
			s.clock += time.Duration(rnd.IntN(700)) * time.Millisecond
		}
		r := diff.Compare(was, is)
		logs := s.logs()
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, nil)
		if !r.Changed {
			continue
		}
		named := make(map[string]diff.LiveCaller)
		for _, l := range r.Live.Limits {
			if l.Logs != len(logs) || l.Unknown != 0 || l.Denied != len(l.Callers)+l.LeftOut || l.History != diff.Kept {
				t.Fatalf("seed %d, %s: %+v of %d logs", seed, now, l, len(logs))
			}
			for _, p := range l.Callers {
				named[p.Who] = p
			}
		}
		for i := range 10 {
			p, ok := named[fmt.Sprintf("c%d", i)]
			passes := s.ask(is.Rules, fmt.Sprintf("k%d", i))
			if passes == ok {
				t.Errorf("seed %d, %s → %s: c%d passes: %v, but the report says %v %+v", seed, old, now, i, passes, ok, p)
			}
			if !passes {
				denied++
			}
		}
	}
	if denied < 10 {
		t.Errorf("seed %d: only %d were denied", seed, denied)
	}
}

// TestLiveTexts: what an operator reads.
func TestLiveTexts(t *testing.T) {
	was := mustLoad(t, liveTiers(), liveRule("window: 1m, requests: 100"))
	s := newService(t, was)
	for range 87 {
		s.ask(was.Rules, "k0")
	}
	s.ask(was.Rules, "k1")
	logs := s.logs()
	for _, c := range []struct{ now, want string }{
		{"window: 1m, requests: 50", "would be denied now: 1 of 2; c0 (used 87 of 50 new, 100 old)"},
		{"window: 1m, requests: 50, observe: 100%", "would be denied now if it were not only observed: 1 of 2; c0 (used 87 of 50 new, 100 old)"},
		{"window: 1h, requests: 50", "starts empty: not comparable"},
		{"policy: fixed, window: 1m, requests: 50", "starts empty: not comparable"},
		{"policy: token_bucket, rate: 60/m, burst: 50", "starts empty: not comparable"},
		{"policy: in_flight, max: 50, hold: 1m", "starts empty: not comparable"},
		{"limits: [{window: 1m, requests: 50}, {window: 1h, requests: 99}]", "would be denied now: 1 of 2; c0 (used 87 of 50 new, 100 old); starts empty: not comparable"},
		{"window: 1m, requests: 200", "would be denied now: 0 of 2"},
		{"unlimited: true", ""},
	} {
		is := mustLoad(t, liveTiers(), liveRule(c.now))
		r := diff.Compare(was, is)
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, nil)
		var parts []string
		for i := range r.Live.Limits {
			l := &r.Live.Limits[i]
			parts = append(parts, l.String())
			for n := range l.Callers {
				parts = append(parts, l.Callers[n].String())
			}
		}
		if got := strings.Join(parts, "; "); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.now, got, c.want)
		}
	}
}
