package rulesdiff_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/rulesdiff"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/random"
)

// A service is what a running service has: rules, a store with a clock, and an Insight.
type service struct {
	t     *testing.T
	set   rulesdiff.Set
	store *memstore.Store
	clock time.Duration
	times map[string][]time.Duration // of what was admitted, by key
}

func newService(t *testing.T, set rulesdiff.Set) *service {
	t.Helper()
	s := &service{t: t, set: set, clock: 1000 * time.Hour, times: make(map[string][]time.Duration)}
	s.store = memstore.New(memstore.Options{Clock: func() time.Duration { return s.clock }, SweepInterval: -1})
	t.Cleanup(func() { s.store.Close() })
	return s
}

// ask decides a request of an API key by rules, and reports whether it passes.
func (s *service) ask(rules *policy.Rules, key string) bool {
	s.t.Helper()
	d := policy.NewDecider(rules, policy.Options{Store: s.store, Log: zap.NewNop(), Clock: func() time.Duration { return s.clock }})
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	var c policy.Call
	d.Begin(&c, policy.Request{Domain: "d", Descriptors: []policy.Descriptor{{Entries: descriptors.Descriptor{{Key: "api_key", Value: secrets.Value("api_key", key)}}, Cost: 1}}})
	if _, err := c.Decide(context.Background(), window.MayWait); err != nil {
		s.t.Fatal(err)
	}
	if allowed := c.Verdict().Allowed; !allowed {
		return false
	}
	s.times[key] = append(s.times[key], s.clock)
	return true
}

// logs returns what the admin port lists.
func (s *service) logs() (all []insight.LimitUsage) {
	s.t.Helper()
	in, err := insight.New(insight.Options{Rules: func() *policy.Rules { return s.set.Rules }, Keeper: s.store, Store: "memory"})
	if err != nil {
		s.t.Fatal(err)
	}
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

// TestLiveIsWhatTheNewRulesDecide: the new rules deny the next request of each party that is named, on the
// same store, and of no other party. Where the new window is another one, the use that is
// told contains the true one.
func TestLiveIsWhatTheNewRulesDecide(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	denied := 0
	for n := range 60 {
		var old, now string
		hits := 1 + rnd.IntN(30)
		last, exact := time.Minute, true
		switch n % 5 {
		case 0:
			old, now = "window: 1m, requests: 40", fmt.Sprintf("window: 1m, requests: %d", hits)
		case 1:
			old, now = "window: 1m, requests: 40", fmt.Sprintf("window: 17500ms, requests: %d", hits)
			last, exact = 17500*time.Millisecond, false
		case 2:
			old, now = "policy: token_bucket, rate: 10/m, burst: 20", fmt.Sprintf("policy: token_bucket, rate: 10/m, burst: %d", hits)
		case 3:
			old, now = "policy: fixed, window: 1m, requests: 40", fmt.Sprintf("policy: fixed, window: 1m, requests: %d", hits)
		default:
			old, now = "window: 1m, requests: 40", fmt.Sprintf("window: 1m, requests: %d, cost: 3", hits)
		}
		was, is := mustLoad(t, liveTiers(), liveRule(old)), mustLoad(t, liveTiers(), liveRule(now))
		s := newService(t, was)
		for range 150 {
			s.ask(was.Rules, fmt.Sprintf("k%d", rnd.IntN(10)))
			s.clock += time.Duration(rnd.IntN(700)) * time.Millisecond
		}
		r := rulesdiff.Compare(was, is)
		logs := s.logs()
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, time.Unix(0, int64(s.clock)), nil)
		if !r.Changed {
			continue
		}
		named := make(map[string]rulesdiff.LiveParty)
		for _, l := range r.Live.Limits {
			if l.Logs != len(logs) || l.Unknown != 0 || l.Denied+l.Maybe != len(l.Parties)+l.LeftOut {
				t.Fatalf("seed %d, %s: %+v of %d logs", seed, now, l, len(logs))
			}
			for _, p := range l.Parties {
				named[p.Who] = p
			}
		}
		for i := range 10 {
			p, ok := named[fmt.Sprintf("c%d", i)]
			if exact {
				passes := s.ask(is.Rules, fmt.Sprintf("k%d", i))
				if passes == (ok && p.Certain) || ok && !p.Certain {
					t.Errorf("seed %d, %s → %s: c%d passes: %v, but the report says %+v", seed, old, now, i, passes, p)
				}
				denied += btoi(!passes)
				continue
			}
			used := uint64(0)
			for _, at := range s.times[fmt.Sprintf("k%d", i)] {
				if at > s.clock-last {
					used++
				}
			}
			switch {
			case ok && (used < p.Used || used > p.UsedAtMost):
				t.Errorf("seed %d, %s: c%d has used %d, but the report says %+v", seed, now, i, used, p)
			case used >= uint64(hits) && !ok, used < uint64(hits) && p.Certain:
				t.Errorf("seed %d, %s: c%d has used %d, but the report says %+v", seed, now, i, used, p)
			}
		}
	}
	if denied < 10 {
		t.Errorf("seed %d: only %d were denied", seed, denied)
	}
}

// TestLiveUnderAnotherPolicy: what a report says of the use under another policy contains what that
// policy counts of the same requests, and says of every party whether its next request is denied.
func TestLiveUnderAnotherPolicy(t *testing.T) {
	limits := []string{
		"window: 1m, requests: %d", "window: 25s, requests: %d", "policy: fixed, window: 1m, requests: %d", "policy: fixed, window: 20s, requests: %d",
		"policy: sliding_counter, window: 30s, requests: %d", "policy: sliding_counter, window: 50s, requests: %d", "policy: token_bucket, rate: 30/m, burst: %d", "policy: token_bucket, rate: 1/s, burst: %d",
		"policy: token_bucket, rate: 60/30s, burst: %d", "policy: calendar, unit: hour, requests_per_unit: %d", "policy: in_flight, max: %d, hold: 30s",
	}
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	certain, open, held := 0, 0, 0
	for _, from := range limits {
		for _, to := range limits {
			if from == to || strings.Contains(from, "in_flight") { // these requests have no streams
				continue
			}
			hits := 4 + rnd.IntN(12)
			old, now := fmt.Sprintf(from, 12+rnd.IntN(20)), fmt.Sprintf(to, hits)
			was, is := mustLoad(t, liveTiers(), liveRule(old)), mustLoad(t, liveTiers(), liveRule(now))
			s, then := newService(t, was), newService(t, is)
			s.clock += time.Duration(rnd.IntN(60)) * time.Second
			// A bucket decides; all others count the same requests, also over their limits. At most
			// twice a limit is counted, so they count with a large one.
			counting := is
			if !strings.Contains(to, "token_bucket") && !strings.Contains(to, "in_flight") {
				counting = mustLoad(t, liveTiers(), liveRule(fmt.Sprintf(to, 1000)+", charge: always"))
			}
			for range 250 {
				key := fmt.Sprintf("k%d", min(int(rnd.ExpFloat64()*4), 9))
				then.clock = s.clock
				if s.ask(was.Rules, key) {
					then.ask(counting.Rules, key)
				}
				s.clock += time.Duration(rnd.IntN(800)) * time.Millisecond
			}
			then.clock = s.clock
			r := rulesdiff.Compare(was, is)
			logs := s.logs()
			r.AddLive(was, is, [][]insight.LimitUsage{logs}, time.Unix(0, int64(s.clock)), nil)
			named, unknown := make(map[string]rulesdiff.LiveParty), 0
			for _, l := range r.Live.Limits {
				if l.History != rulesdiff.Anew {
					t.Errorf("%s → %s: the history is %s", old, now, l.History)
				}
				unknown += l.Unknown
				for _, p := range l.Parties {
					named[p.Who] = p
				}
			}
			// A log with a window below the hold, and a log of the clock that has begun anew since, do not
			// tell how many requests may be in flight.
			begun := s.clock%time.Minute < 31*time.Second
			mayLack := strings.Contains(to, "in_flight") && (strings.Contains(from, "25s") || strings.Contains(from, "20s") || strings.Contains(from, "fixed") && begun || strings.Contains(from, "calendar"))
			if unknown > 0 && !mayLack {
				t.Errorf("%s → %s: %d logs cannot be told", old, now, unknown)
			}
			if unknown > 0 {
				continue
			}
			if strings.Contains(to, "in_flight") {
				held++
				s.inFlight(logs, named, uint64(hits), 30*time.Second)
			}
			for _, u := range then.logs() {
				p, ok := named[u.Subject]
				if !slices.ContainsFunc(logs, func(o insight.LimitUsage) bool { return o.Subject == u.Subject }) {
					continue // the old log is empty, such as that of a bucket that is full again
				}
				switch {
				case ok && (u.Used < p.Used || u.Used > p.UsedAtMost):
					t.Errorf("seed %d, %s → %s: %s has used %d, but the report says %+v", seed, old, now, u.Subject, u.Used, p)
				case !ok && u.Used >= u.Limit, ok && p.Certain && u.Used < u.Limit:
					t.Errorf("seed %d, %s → %s: %s has used %d of %d, but the report says %v %+v", seed, old, now, u.Subject, u.Used, u.Limit, ok, p)
				}
				if ok && p.Certain || !ok {
					certain++
				} else {
					open++
				}
			}
		}
	}
	if certain < 90 || held < 4 {
		t.Errorf("seed %d: only %d answers are certain, %d are not; %d of requests in flight", seed, certain, open, held)
	}
}

// inFlight checks what is told of requests in flight, if each is held for as long as it can be.
func (s *service) inFlight(logs []insight.LimitUsage, named map[string]rulesdiff.LiveParty, most uint64, hold time.Duration) {
	s.t.Helper()
	for _, u := range logs {
		count := uint64(0)
		for _, at := range s.times["k"+u.Subject[1:]] {
			if at > s.clock-hold {
				count++
			}
		}
		p, ok := named[u.Subject]
		if ok && (count > p.UsedAtMost || p.Used > 0 || p.Certain) || !ok && count >= most {
			s.t.Errorf("%s began %d requests in the last %v, the limit is %d, but the report says %v %+v", u.Subject, count, hold, most, ok, p)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLiveDebts: a bucket in debt may have been in debt before, so it does not tell how many requests
// there were at least.
func TestLiveDebts(t *testing.T) {
	was, is := mustLoad(t, liveTiers(), liveRule("policy: token_bucket, rate: 10/m, burst: 20")), mustLoad(t, liveTiers(), liveRule("window: 1m, requests: 5"))
	s := newService(t, was)
	for range 20 {
		s.ask(was.Rules, "k0")
	}
	for used, least := range map[uint64]uint64{20: 10, 25: 0} {
		logs := s.logs()
		logs[0].Used = used
		r := rulesdiff.Compare(was, is)
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, time.Unix(0, int64(s.clock)), nil)
		if got := r.Live.Limits[0].Parties[0]; got.Used != least || got.UsedAtMost != used+10 {
			t.Errorf("%d of 20 tokens spent: got %+v, want at least %d", used, got, least)
		}
	}
}

// TestLiveTexts: what an operator reads.
func TestLiveTexts(t *testing.T) {
	was := mustLoad(t, liveTiers(), liveRule("window: 1m, requests: 100"))
	s := newService(t, was)
	s.clock += 10 * time.Second
	for range 87 {
		s.ask(was.Rules, "k0")
	}
	s.ask(was.Rules, "k1")
	s.clock += 20500 * time.Millisecond
	logs := s.logs()
	for _, c := range []struct{ now, want string }{
		{"window: 1m, requests: 50", "would be denied now: 1 of 2; c0 (used 87 of 50 new, 100 old)"},
		{"window: 1m, requests: 50, observe: 100%", "would be denied now if it were not only observed: 1 of 2; c0 (used 87 of 50 new, 100 old)"},
		{"window: 1h, requests: 50", "would be denied now: 1 of 2; may be denied: 1; its logs start anew, so the limit denies no request at first: this is what comes once they are as old as the window; c0 (used at least 87 of 50 new, 100 old); c1 (used at least 1 of 50 new, 100 old), perhaps"},
		{"policy: fixed, window: 1m, requests: 50", "would be denied now: 1 of 2; its logs start anew, so the limit denies no request at first: this is what comes once they are as old as the window; c0 (used 87 of 50 new, 100 old)"},
		{"policy: token_bucket, rate: 60/m, burst: 50", "would be denied now: 0 of 2; its logs start anew, so the limit denies no request at first: this is what comes once they are as old as the window"},
		{"policy: in_flight, max: 50, hold: 1m", "would be denied now: 0 of 2; may be denied: 1; its logs start anew, so the limit denies no request at first: this is what comes once they are as old as the window; c0 (used at most 87 of 50 new, 100 old), perhaps"},
		{"policy: in_flight, max: 50, hold: 2m", "would be denied now: 0 of 2; cannot be told: 2, because the log does not tell how many requests began in the last 2m, for which the limit holds each; its logs start anew, so the limit denies no request at first: this is what comes once they are as old as the window"},
		{"window: 1m, requests: 200", "would be denied now: 0 of 2"},
		{"unlimited: true", ""},
	} {
		is := mustLoad(t, liveTiers(), liveRule(c.now))
		r := rulesdiff.Compare(was, is)
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, time.Unix(0, int64(s.clock)), nil)
		var parts []string
		for i := range r.Live.Limits {
			l := &r.Live.Limits[i]
			parts = append(parts, l.String(), l.Note())
			for n := range l.Parties {
				parts = append(parts, l.Parties[n].String())
			}
		}
		parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
		if got := strings.Join(parts, "; "); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.now, got, c.want)
		}
	}
}

// TestLiveOfAnEmptyLog: a log denies nothing for certain if its last hit expires while it is read.
func TestLiveOfAnEmptyLog(t *testing.T) {
	for _, policy := range []string{"sliding_counter", "fixed", "sliding"} {
		was := mustLoad(t, liveTiers(), liveRule("policy: "+policy+", window: 1m, requests: 10"))
		is := mustLoad(t, liveTiers(), liveRule("window: 2m, requests: 5"))
		s := newService(t, was)
		s.ask(was.Rules, "k0")
		logs := s.logs()
		logs[0].Used, logs[0].Remaining, logs[0].NextFree, logs[0].Empty, logs[0].History = 0, 10, 0, 0, nil
		r := rulesdiff.Compare(was, is)
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, time.Unix(0, int64(s.clock)), nil)
		for _, l := range r.Live.Limits {
			if l.Denied > 0 {
				t.Errorf("%s: %+v", policy, l)
			}
		}
	}
}
