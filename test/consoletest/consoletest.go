// Package consoletest makes consoles that show a state without a service behind them, for tests
// and for people who change the pages.
package consoletest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/console"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// States are the names of the states.
var States = []string{"usual", "empty", "degraded", "huge", "hostile", severalState}

// Key is the API key of the subject acme in every state.
const Key = "demo-key-of-acme-4711"

// The tokens of every state.
const (
	ReadToken = "read-token-of-the-consoletest"
	ActToken  = "act-token-of-the-consoletest"
)

// Hostile is text that a client or a file could contain.
var Hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</title></style><script>alert(2)</script>`,
	`javascript:alert(3)`, "\u202Egnp.exe\u202C", "מפתח/לקוח", "a\x00b\x1b[31mred", "\xff\xfe not UTF-8",
	strings.Repeat("long-name-", 100), `{{template "frame"}}`, `'); DROP TABLE logs;--`, "line\nbreak\ttab",
}

// Options of [New].
type Options struct {
	// State is one of States.
	State string
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// A Console is a console with a made-up service.
type Console struct {
	*console.Console
	Access  *admin.Access
	Secrets *tier.Secrets
	service *service
}

// Active returns the made-up rules.
func (c *Console) Active() admin.Active { return c.service.active() }

// States returns how often a page asked for the state.
func (c *Console) States() int64 { return c.service.states.Load() }

// Resets returns the resets that were asked for.
func (c *Console) Resets() []insight.Reset { return c.service.Audit() }

// New returns a console in a state.
func New(o Options) *Console {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &service{kind: o.State, now: o.Now, start: o.Now().Add(-26*time.Hour - 12*time.Minute), secrets: tier.NewSecrets([]string{"api_key"}, nil)}
	if o.State != "empty" {
		s.resets = []insight.Reset{{
			ID: 1, At: o.Now().Add(-94 * time.Minute), By: "act-1 from 127.0.0.1", Query: insight.Query{Subject: "globex"}, Logs: 2, Instance: s.instance(),
			Reason:  s.odd(0, "Ticket 4711: the import of invoices was approved"),
			Removed: []insight.LimitUsage{{Rule: "per-key", Terms: insight.Terms{Limit: 500, Window: 60}, Counter: insight.Counter{Used: 500}}, {Rule: "search", LogName: insight.LogName{Values: "route=search"}, Terms: insight.Terms{Limit: 50, Window: 10}, Counter: insight.Counter{Used: 37}}},
		}}
	}
	access := admin.NewAccess(admin.AccessOptions{FreeReads: true, Now: o.Now, Tokens: func() []settings.Token {
		return []settings.Token{{Name: "read-1", Digest: sha256.Sum256([]byte(ReadToken))}, {Name: "act-1", Digest: sha256.Sum256([]byte(ActToken)), Act: true}}
	}})
	tierNames := func() []string { return []string{"free", "pro", "enterprise"} }
	return &Console{Access: access, Secrets: s.secrets, service: s, Console: console.New(console.Options{
		Insight: s, History: s.history, State: s.state, Peers: peersOf(o, s), Active: s.active, Secrets: s.secrets, TierNames: tierNames,
		Shown: s.shown, Explain: s.explain, Access: access, Now: o.Now,
	})}
}

// A service makes up what a real one would know.
type service struct {
	kind       string
	now        func() time.Time
	start      time.Time
	secrets    *tier.Secrets
	activeOnce sync.Once
	rules      admin.Active
	states     atomic.Int64

	mu     sync.Mutex
	resets []insight.Reset
	grants []*grant.Grant
}

func (s *service) instance() string { return s.odd(1, "rls-7d9c5b8f6-x2x4q") }

// odd returns text, or a hostile one in the hostile state.
func (s *service) odd(i int, text string) string {
	if s.kind == "hostile" {
		return Hostile[i%len(Hostile)]
	}
	return text
}

// wave returns n values around mean, which differ from one time to the next.
func wave(n int, mean, part float64, seed int, at time.Time) []float64 {
	values := make([]float64, n)
	for i := range values {
		x := float64(at.Unix()/5+int64(i)+int64(seed)*37) / 7
		values[i] = math.Max(0, mean*(1+part*(math.Sin(x)+0.6*math.Sin(2.3*x+float64(seed))+0.3*math.Sin(7.1*x))/1.9))
	}
	return values
}

func (s *service) history(_ context.Context, q history.Query) (*history.History, error) {
	h := &history.History{From: q.From, To: q.To, Of: history.OfService}
	switch s.kind {
	case "empty":
		return h, nil
	case "degraded":
		return nil, errors.New("no answer of Redis")
	case "huge":
		h.Of = history.OfInstance
	}
	for i, v := range wave(history.Days, 400, 1, 3, q.To) {
		at := q.From.AddDate(0, 0, i)
		if q.Rule != "" {
			h.Rules = append(h.Rules, history.RuleHistory{Domain: "edge", Rule: q.Rule, Hours: []history.Hour{{Hour: at.Add(9 * time.Hour), Count: history.Count{Decisions: uint64(40 * v), Denials: uint64(v)}}}})
		} else {
			h.Days = append(h.Days, history.Day{Day: at.Format(time.DateOnly), Subjects: []insight.TopEntry{{Name: q.Subject, Count: uint64(v)}}})
		}
	}
	return h, nil
}

func (s *service) active() admin.Active {
	s.activeOnce.Do(func() { s.rules = s.makeRules() })
	return s.rules
}

func (s *service) makeRules() admin.Active {
	a := admin.Active{Generation: "51850eff4944", Loaded: s.start.Add(25 * time.Hour), Files: []string{"/etc/slidegate/rules/edge.yaml", "/etc/slidegate/rules/internal.yaml"}}
	add := func(path, name, file string, line int, words, traits []string) {
		domain, entries, _ := strings.Cut(path, "|")
		a.Rules = append(a.Rules, admin.Rule{Path: path, Entries: strings.Split(entries, "/"), Name: name, Domain: domain, Limits: []string{"100 per 1m"}, Words: words, Traits: traits, File: file, Line: line})
	}
	switch s.kind {
	case "empty":
		return admin.Active{Generation: "e3b0c44298fc", Loaded: s.start}
	case "hostile":
		for i, h := range Hostile {
			add("edge|route="+h+"/"+Hostile[(i+3)%len(Hostile)], h, h, i, []string{h, h}, []string{h, h})
		}
		a.Notes, a.Refused, a.Files = Hostile[:2], strings.Join(Hostile, "\n"), Hostile
		return a
	}
	edge, internal := a.Files[0], a.Files[1]
	add("edge|api_key", "per-key", edge, 12, []string{"100 in any 1m, for each API key of tier free", "500 in any 1m, for each API key of tier pro", "tier enterprise is not limited"}, nil)
	add("edge|route=search/api_key", "search", edge, 31, []string{"10 in any 10 s, for each API key of tier free and each route search", "50 in any 10 s, for each API key of tier pro"}, []string{"metadata"})
	add("edge|route=export/api_key", "export", edge, 44, []string{"5 in any 1h, for each API key", "20 in any 1d, for each API key"}, []string{"on_store_error: deny"})
	add("edge|route=export/api_key/format=*", "export-format", edge, 58, []string{"2 in any 1m, for each API key and each format"}, []string{"shadow_mode"})
	add("edge|remote_address", "per-address", edge, 70, []string{"1,000 in any 1m, for each client address"}, nil)
	add("edge|route=login/remote_address", "login", edge, 81, []string{"5 in any 1m, for each client address"}, []string{"on_store_error: local"})
	add("internal|service", "per-service", internal, 4, []string{"10,000 in any 1s, for each service"}, []string{"lease 50ms"})
	add("internal|upstream=payments", "payments", internal, 15, []string{"9,500 in any 1h, for all callers together"}, []string{"charge: always"})
	if s.kind == "huge" {
		for i := range 10_000 - len(a.Rules) {
			add(fmt.Sprintf("tenant-%02d|route=/api/v%d/resource-%05d/api_key", i/400, i%3+1, i), fmt.Sprintf("resource-%05d", i), fmt.Sprintf("/etc/slidegate/rules/tenant-%02d.yaml", i/400), 10*(i%400)+3,
				[]string{fmt.Sprintf("%d in any 1m, for each API key", 10*(i%50+1))}, nil)
		}
	}
	if s.kind == "degraded" {
		a.Refused = "/etc/slidegate/rules/edge.yaml:31: descriptors[1].rate_limit.unit: unknown unit \"minuet\"; write second, minute, hour, day or a duration\n/etc/slidegate/rules/edge.yaml:44: descriptors[2]: the key \"replaced\" is unknown; did you mean replaces?"
	}
	return a
}

func (s *service) state() glance.State {
	s.states.Add(1)
	now := s.now()
	a := s.active()
	st := glance.State{
		Instance: s.instance(), Version: s.odd(2, "0.19.0"), Started: s.start, At: now,
		Config:  glance.Config{Generation: a.Generation, Loaded: a.Loaded, Files: a.Files, Rules: len(a.Rules), Subjects: 1284, Refused: a.Refused, Notes: a.Notes},
		Tiers:   s.odd(3, "postgres, connected, 1,284 records cached"),
		Store:   glance.Store{Type: "redis", Servers: []glance.Server{{Address: s.odd(4, "10.2.0.11:6379")}, {Address: s.odd(5, "10.2.0.12:6379")}, {Address: s.odd(8, "10.2.0.13:6379")}}},
		Latency: glance.Latency{P50: 0.00042, P99: 0.0031, StoreP50: 0.00031, StoreP99: 0.0024, Deadline: 0.02},
		Leases:  glance.Leases{Made: 48_211, Admitted: 1_204_870, Returned: 3_120},
		Rates:   glance.Rates{Interval: 5},
	}
	if s.kind == "empty" {
		st.Store = glance.Store{Type: "memory"}
		st.Tiers, st.Leases, st.Config.Subjects = "none", glance.Leases{}, 0
		st.Latency = glance.Latency{Deadline: 0.02}
		return st
	}
	const points = 60
	scale := 1.0
	if s.kind == "huge" {
		scale, st.Config.Subjects = 900, 1_000_000
	}
	st.Rates.Decisions, st.Rates.Denials, st.Rates.Degraded = make([]float64, points), make([]float64, points), make([]float64, points)
	for i, r := range a.Rules[:min(len(a.Rules), 50)] {
		domain := r.Domain
		mean := scale * 820 / float64(1+i*i)
		rate := glance.RuleRate{Domain: domain, Rule: r.Name, Decisions: wave(points, mean, 0.3, i, now), Denials: make([]float64, points)}
		if i == 0 || i == 1 || i == 5 {
			rate.Denials = wave(points, mean*0.05, 0.9, i+3, now)
			rate.Near = mean * 0.021
		}
		if i == 3 {
			rate.Shadow = mean * 0.12
		}
		for j := range points {
			st.Rates.Decisions[j] += rate.Decisions[j]
			st.Rates.Denials[j] += rate.Denials[j]
		}
		st.Rates.Rules = append(st.Rates.Rules, rate)
	}
	switch s.kind {
	case "degraded":
		for j := 38; j < points; j++ {
			st.Rates.Degraded[j] = st.Rates.Decisions[j] / 3
		}
		st.Store.Servers[1].Reason = "the last 5 calls failed: dial tcp 10.2.0.12:6379: connect: connection refused; asked again in 2 s"
		st.Store.Servers[2].Evicts = "allkeys-lru"
		st.Store.Degraded = 31_877
		st.Latency.P99 = 0.0192
		st.Problems = []glance.Problem{
			{Level: "error", Text: "The store's server 10.2.0.12:6379 does not answer. Each instance decides its requests by its fallback quotas.", Help: docs.Path + "operate.md#redis-is-slow-or-unavailable"},
			{Level: "error", Text: "A newer configuration was refused 14 min ago. The generation 51850eff4944 stays active.", Help: docs.Path + "operate.md#change-rules"},
			{Level: "warning", Text: "The store's server 10.2.0.13:6379 evicts logs (allkeys-lru), so it may admit too much. Set maxmemory-policy to noeviction.", Help: docs.Path + "operate.md#set-up-redis"},
		}
	case "hostile":
		for i, h := range Hostile {
			st.Problems = append(st.Problems, glance.Problem{Level: []string{"error", "warning", h}[i%3], Text: h, Help: h})
		}
		st.Store.Servers[0].Reason, st.Store.Servers[1].Evicts, st.Store.Type = Hostile[1], Hostile[2], "redis"
	}
	return st
}

var errUnavailable = errors.New("dial tcp 10.2.0.12:6379: connect: connection refused")

func (s *service) acme() *tier.Subject {
	return &tier.Subject{ID: "acme", Tier: "free", Extra: &tier.Extra{Labels: map[string]string{"plan": s.odd(1, "trial"), "region": s.odd(5, "eu-west-1")}}}
}

// Find implements console.Insight.
func (s *service) Find(ctx context.Context, q insight.Query, typed string) (insight.Query, bool) {
	if q.Subject != "" && tier.ValidID(q.Subject) != nil || s.IsKey(ctx, typed) {
		return insight.Query{}, false
	}
	u, err := s.Usage(ctx, q)
	return q, err == nil && u.Recognized
}

// IsKey implements console.Insight.
func (s *service) IsKey(_ context.Context, text string) bool {
	return s.look(tier.Key{Digest: s.secrets.Digest(text)}) != nil
}

// look returns the subject of a key or an id.
func (s *service) look(k tier.Key) *tier.Subject {
	switch {
	case s.kind == "empty":
	case k.ID == "acme", k.Digest == s.secrets.Digest(Key):
		return s.acme()
	case k.ID == "globex", k.ID == "initech":
		return &tier.Subject{ID: k.ID, Tier: "pro"}
	}
	return nil
}

func hitsOver(n int, total uint64, from int) []uint64 {
	all := make([]uint64, n)
	for i := uint64(0); i < total; i++ {
		x := (i*7919 + i*i*31) % uint64(n-from)
		all[from+int(x)]++
	}
	return all
}

// Usage implements console.Insight.
func (s *service) Usage(_ context.Context, q insight.Query) (*insight.Usage, error) {
	now := s.now()
	u := &insight.Usage{Query: q, Source: "redis", Origin: insight.Origin{Instance: s.instance(), At: now}, Limits: []insight.LimitUsage{}}
	defer func() {
		for i := range u.Limits {
			u.Limits[i].Policy = cmp.Or(u.Limits[i].Policy, window.Sliding.String())
		}
	}()
	subject := s.look(tier.Key{ID: q.Subject, Digest: q.Digest})
	u.Recognized = subject != nil || len(s.Denials(insight.Filter{Subject: q.Subject + q.Digest, Limit: 1}).Denials) > 0
	if subject == nil && q.Address == "" {
		return u, nil
	}
	if q.Address != "" {
		if s.kind != "empty" {
			u.Limits = []insight.LimitUsage{{Domain: "edge", Rule: "per-address", Terms: insight.Terms{Limit: 1000, Window: 60}, Counter: insight.Counter{Used: 214, Remaining: 786, NextFree: 0.8, Empty: 59.2, History: hitsOver(60, 214, 0)}}}
		}
		return u, nil
	}
	u.Known, u.Subject, u.Tier, u.Labels = true, subject.ID, subject.Tier, subject.Labels()
	s.mu.Lock()
	if subject.ID == "initech" {
		s.mu.Unlock()
		u.Limits = []insight.LimitUsage{{Domain: "edge", Rule: "per-key", Basis: insight.Basis{Tier: "pro"}, Terms: insight.Terms{Limit: 500, Window: 60}, Counter: insight.Counter{Used: 41, Remaining: 459, NextFree: 5, Empty: 58, History: hitsOver(60, 41, 5)}}}
		return u, nil
	}
	clean := slices.ContainsFunc(s.resets, func(r insight.Reset) bool { return r.ID > 1 && r.Query.Subject == subject.ID })
	s.mu.Unlock()
	if clean {
		u.Limits = []insight.LimitUsage{{Domain: "edge", Rule: "per-key", Basis: insight.Basis{Tier: "free"}, Terms: insight.Terms{Limit: 100, Window: 60}, Counter: insight.Counter{Used: 3, Remaining: 97, NextFree: 55, Empty: 58, History: hitsOver(60, 3, 55)}}}
		return u, nil
	}
	u.Limits = []insight.LimitUsage{
		{Domain: "edge", Rule: s.odd(1, "per-key"), Basis: insight.Basis{Tier: "free"}, Terms: insight.Terms{Limit: 100, Window: 60}, Counter: insight.Counter{Used: 100, NextFree: 12.4, Empty: 58.9, History: hitsOver(60, 100, 12)}},
		{Domain: "edge", Rule: s.odd(8, "search"), LogName: insight.LogName{Values: s.odd(0, "route=search")}, Terms: insight.Terms{Limit: 40, Window: 10}, Counter: insight.Counter{Used: 36, Remaining: 4, NextFree: 0.3, Empty: 9.1, History: hitsOver(50, 36, 2)}, Basis: insight.Basis{Override: true}, ObserveOverride: true},
		{Domain: "edge", Rule: s.odd(4, "export"), LogName: insight.LogName{Values: s.odd(6, "route=export")}, Terms: insight.Terms{Limit: 20, Window: 86400}, Counter: insight.Counter{Used: 3, Remaining: 17, NextFree: 5400, Empty: 71000, History: hitsOver(60, 3, 4)}},
		{Domain: "edge", Rule: "dollars", Budget: true, Terms: insight.Terms{Policy: "calendar", Limit: 500_000_000, Window: 30 * 86400, Currency: "usd"}, Counter: insight.Counter{Used: 312_400_000, Reserved: 63_100_000, Remaining: 124_500_000, NextFree: 432_000, Empty: 432_000}},
		{Domain: "edge", Rule: s.odd(5, "export-format"), LogName: insight.LogName{Values: "route=export,format=csv"}, Terms: insight.Terms{Limit: 2, Window: 60}, Counter: insight.Counter{Used: 2, NextFree: 31, Empty: 44, History: hitsOver(60, 2, 31)}, Shadow: true, ObserveOverride: true},
		{Domain: "internal", Rule: s.odd(3, "payments"), Unlimited: true},
	}
	if q.Rule != "" {
		u.Limits = slices.DeleteFunc(u.Limits, func(l insight.LimitUsage) bool { return l.Rule != q.Rule })
	}
	switch s.kind {
	case "huge":
		for i := range 95 {
			u.Limits = append(u.Limits, insight.LimitUsage{Domain: "tenant-00", Rule: fmt.Sprintf("resource-%05d", i), Basis: insight.Basis{Tier: "free"}, Terms: insight.Terms{Limit: 10_000_000, Window: 3600}, Counter: insight.Counter{Used: uint64(i) * 90_000, Remaining: 10_000_000 - uint64(i)*90_000, NextFree: 2, Empty: 3500, History: hitsOver(60, uint64(i)*90, 0)}})
		}
		u.Next = "100"
	case "degraded":
		u.Limits[0].Scope, u.Limits[0].Local = "global", true
		u.Source, u.Problem = "local", "what is used of 1 of 6 limits cannot be known while a part of Redis is unavailable: the numbers are those of this instance alone"
	case "hostile":
		u.Problem = Hostile[0]
	}
	return u, nil
}

// Reset implements console.Insight.
func (s *service) Reset(_ context.Context, r insight.ResetRequest) (*insight.Reset, error) {
	if s.kind == "degraded" {
		return nil, errUnavailable
	}
	if err := insight.CheckReason(r.Reason); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done := insight.Reset{
		ID: uint64(len(s.resets) + 1), At: s.now(), By: r.By, Reason: r.Reason, Logs: 3, Instance: s.instance(),
		Query:   insight.Query{Subject: r.Subject, Address: r.Address, Digest: r.Digest, Rule: r.Rule},
		Removed: []insight.LimitUsage{{Rule: "per-key", Terms: insight.Terms{Limit: 100, Window: 60}, Counter: insight.Counter{Used: 100}}},
	}
	s.resets = append([]insight.Reset{done}, s.resets...)
	return &done, nil
}

// Denials implements console.Insight.
func (s *service) Denials(f insight.Filter) insight.Denials {
	now := s.now()
	d := insight.Denials{Kept: 10_000, Instance: s.instance(), Sampled: 1}
	if s.kind == "empty" {
		return d
	}
	d.Seen, d.Recorded = 183_204, 183_204
	n := 60
	if s.kind == "huge" {
		n, d.Seen, d.Sampled = 10_000, 92_183_204_118, 37
	}
	tick := now.Unix() / 3
	for i := range n {
		k := tick - int64(i)
		at := time.Unix(3*k, k%7*130_000_000)
		x := s.denial(int(k%9973), at)
		if f.Rule != "" && x.Rule != f.Rule || f.Subject != "" && x.Subject != f.Subject && x.Digest != f.Subject || f.Route != "" && x.Route != f.Route ||
			f.Address != "" && x.Address != f.Address || f.Request != "" && !strings.EqualFold(x.RequestID, f.Request) || at.Before(f.Since) || f.Shadow == "only" && !x.Shadow || f.Shadow == "no" && x.Shadow {
			continue
		}
		d.Denials = append(d.Denials, x)
		if limit := f.Limit; limit > 0 && len(d.Denials) == limit {
			break
		}
	}
	return d
}

func (s *service) denial(k int, at time.Time) insight.Denial {
	d := insight.Denial{ID: uint64(k), At: at, Domain: "edge", Rule: "per-key", Caller: insight.Caller{Subject: "acme", Address: "203.0.113.0/24", Tier: "free"}, Terms: insight.Terms{Limit: 100, Window: 60}, Used: 100, Cost: 1, Retry: insight.Retry{Wait: 2 + float64(k%47)/3}, Position: insight.Position{Which: 1, Of: 1}, Stands: 1}
	switch k % 7 {
	case 1:
		d.Rule, d.Route, d.Limit, d.Used, d.Window, d.Wait, d.Which, d.Of = "search", "search", 10, 10, 10, 0.84, 2, 2
	case 2:
		d.Rule, d.Subject, d.Tier, d.Address, d.Route, d.Limit, d.Used = "login", "", "", "198.51.100.0/24", "login", 5, 5
	case 6:
		d.Rule, d.Subject, d.Tier, d.Address, d.Route, d.Limit, d.Used, d.Wait, d.Which, d.Of = "login", "initech", "", "198.51.100.0/24", "login", 5, 5, 50, 2, 2
		d.Policy = "fixed"
	case 3:
		d.Rule, d.Subject, d.Tier, d.Digest = "per-key", "", "free", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	case 4:
		d.Rule, d.Subject, d.Tier, d.Route, d.Shadow, d.Limit, d.Used = "export-format", "globex", "pro", "export", true, 2, 2
		d.Policy, d.Window, d.Wait = "in_flight", 300, 1
	case 5:
		d.Rule, d.Subject, d.Tier, d.Route, d.Cost, d.Limit, d.Used, d.Wait, d.Never, d.Window = "export", "globex", "pro", "export", 25, 20, 3, 0, true, 86400
		d.RequestID = "7c1f9e2a-2d51-4b52-a2aa-0c8e7d1b4f63"
	}
	if s.kind == "degraded" && k%3 == 0 {
		d.Degraded = true
	}
	if s.kind == "huge" {
		d.Stands = 37
	}
	if s.kind == "hostile" {
		d.Rule, d.Subject, d.Route, d.Tier, d.RequestID, d.Address = s.odd(k, ""), s.odd(k+1, ""), s.odd(k+2, ""), s.odd(k+3, ""), s.odd(k+4, ""), s.odd(k+5, "")
	}
	d.Reset = d.At.Add(time.Duration(d.Wait * float64(time.Second)))
	return d
}

// Top implements console.Insight.
func (s *service) Top(q insight.TopQuery) insight.Top {
	t := insight.Top{By: q.By, Order: q.Order, Minutes: q.Minutes, Instance: s.instance()}
	if s.kind == "empty" {
		return t
	}
	names := map[string][]string{
		"subject": {"acme", "globex", "initech", "umbrella", "hooli", "vandelay", "wonka-industries", "stark"},
		"rule":    {"per-key", "search", "login", "export"}, "route": {"search", "login", "export", "/api/v1/orders"},
		"address": {"203.0.113.0/24", "198.51.100.0/24", "2001:db8:7::/48"},
	}[q.By]
	if s.kind == "hostile" {
		names = Hostile
	}
	if s.kind == "huge" {
		for i := range 42 {
			names = append(names, fmt.Sprintf("%s-%06d", q.By, i*7919))
		}
		t.Error, t.Sampled = 812, true
	}
	for i, n := range names {
		t.Entries = append(t.Entries, insight.TopEntry{Name: n, Count: uint64(4180*q.Minutes) / uint64(i*i+1), Peak: 1 - float64(i)/100})
	}
	return t
}

// shown hides what no made-up rule names, and API keys.
func (s *service) shown(e descriptors.Entry) descriptors.Entry {
	switch {
	case e.Key == "route":
		return e
	case s.secrets.Hides(e.Key):
		return descriptors.Entry{Key: e.Key, Value: "***"}
	}
	return descriptors.Entry{Key: "***", Value: "***"}
}
