package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// metered is a Meters that counts events by name.
type metered struct {
	mu     sync.Mutex
	counts map[string]int
}

func (m *metered) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = make(map[string]int)
	}
	m.counts[what]++
}

func (m *metered) IgnoredOverride() { m.count("ignored override") }
func (m *metered) DegradedAnswer(by rules.OnStoreError) {
	m.count(fmt.Sprintf("degraded by %d", by))
}

// testService is a service whose store has the clock now.
type testService struct {
	*Service
	now time.Duration
}

// setup describes a service for a test. Its subjects are acme in tier pro and hobby in tier
// free.
type setup struct {
	rules   []rules.Rule
	prepare func(*rules.Rules)
	echo    bool
	store   window.Store // nil means an embedded store
	waits   bool         // the store decides only with waiting
	twice   bool         // a request takes two store calls and is never decided without waiting
	local   bool         // there is a local store
	styles  []string     // nil means ratelimit

	reference bool // the form of envoyproxy/ratelimit
}

// serve returns the service and what it counts.
func (s setup) serve(t testing.TB) (service *testService, meters *metered) {
	t.Helper()
	service, meters = new(testService), new(metered)
	if s.store == nil {
		s.store = adaptertest.Memory(t, func() time.Duration { return service.now })
	}
	if s.waits {
		s.store = adaptertest.WaitingStore{Store: s.store}
	}
	var local window.Store
	if s.local {
		local = adaptertest.Memory(t, func() time.Duration { return 0 })
	}
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	dir, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		dir.Add(tier.Subject{ID: "acme", Tier: "pro"}, secrets.Digest("acme-key")),
		dir.Add(tier.Subject{ID: "hobby"}, secrets.Digest("demo-free")),
	); err != nil {
		t.Fatal(err)
	}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	if err := rs.AddDomain("edge"); err != nil {
		t.Fatal(err)
	}
	if s.prepare != nil {
		s.prepare(rs)
	}
	for _, r := range s.rules {
		r.Domain = "edge"
		if err := rs.Add(r); err != nil {
			t.Fatalf("Add(%s): %v", r.Name, err)
		}
	}
	if s.styles == nil {
		s.styles = []string{rules.StyleRateLimit}
	}
	render := answer.NewRenderer(s.styles...)
	if s.reference {
		render = render.Quiet()
	}
	service.Service = NewService(Options{
		Decider: decide.NewDecider(rs, decide.Options{Store: s.store, Local: local}),
		Secrets: secrets, Headers: render, Meters: meters, EchoRequest: s.echo, Reference: s.reference,
	})
	return service, meters
}

// perMinute returns a rule for every value of the key name.
func perMinute(name string, hits uint64, change ...func(*rules.Rule)) rules.Rule {
	r := rules.Rule{
		Name: name, Path: []descriptors.Node{{Key: name, AnyValue: true}},
		Terms: rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: time.Minute}}}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func quota(r *rules.Rule)     { r.Quota = true }
func watched(r *rules.Rule)   { r.Terms.Observe = 1 }
func unlimited(r *rules.Rule) { r.Terms = rules.Terms{Unlimited: true} }
func always(r *rules.Rule)    { r.Charge.Always = true }

// descriptor returns a descriptor with entries key=value, after all changes.
func descriptor(pairs string, change ...func(*ratelimitcommonv3.RateLimitDescriptor)) *ratelimitcommonv3.RateLimitDescriptor {
	d := new(ratelimitcommonv3.RateLimitDescriptor)
	for _, pair := range strings.Fields(pairs) {
		key, value, _ := strings.Cut(pair, "=")
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	for _, c := range change {
		c(d)
	}
	return d
}

func costs(n uint64) func(*ratelimitcommonv3.RateLimitDescriptor) {
	return func(d *ratelimitcommonv3.RateLimitDescriptor) { d.HitsAddend = wrapperspb.UInt64(n) }
}

func refund(d *ratelimitcommonv3.RateLimitDescriptor) { d.IsNegativeHits = true }

func limit(hits uint32, unit typev3.RateLimitUnit, multiplier ...uint32) func(*ratelimitcommonv3.RateLimitDescriptor) {
	return func(d *ratelimitcommonv3.RateLimitDescriptor) {
		d.Limit = &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: hits, Unit: unit}
		for _, m := range multiplier {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(m)
		}
	}
}

func ask(ds ...*ratelimitcommonv3.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: ds}
}

func costing(n uint32, in *rlsv3.RateLimitRequest) *rlsv3.RateLimitRequest {
	in.HitsAddend = n
	return in
}

// textOf returns an answer as text, in lines: the codes, the headers and the metadata. It
// includes a body that is not a problem document.
func textOf(t testing.TB, out *rlsv3.RateLimitResponse) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(out.GetOverallCode().String())
	for _, s := range out.GetStatuses() {
		fmt.Fprintf(&b, " [%v", s.GetCode())
		if l := s.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, " %s %d/%v", l.GetName(), l.GetRequestsPerUnit(), l.GetUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				fmt.Fprintf(&b, "*%d", m.GetValue())
			}
		}
		if l := s.GetCurrentLimit(); l != nil || s.GetLimitRemaining() != 0 {
			fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
		}
		if d := s.GetDurationUntilReset(); d != nil {
			fmt.Fprintf(&b, " reset %d", d.GetSeconds())
		}
		b.WriteString("]")
	}
	contentType := ""
	for _, h := range out.GetResponseHeadersToAdd() {
		if h.GetKey() == "content-type" {
			contentType = h.GetValue()
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s", h.GetKey(), h.GetValue())
	}
	switch body := string(out.GetRawBody()); {
	case contentType == answer.ContentTypeProblem:
		if !json.Valid([]byte(body)) {
			t.Errorf("the body is %q, want JSON", body)
		}
	case body != "" || contentType != "":
		fmt.Fprintf(&b, "\n%s: %s", contentType, body)
	}
	if denied := out.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT; denied != (contentType != "") || denied != (len(out.GetRawBody()) > 0) {
		t.Errorf("%v with a body of %d bytes and type %q", out.GetOverallCode(), len(out.GetRawBody()), contentType)
	}
	if m := out.GetDynamicMetadata(); m != nil {
		text, err := json.Marshal(m.AsMap())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%s", text)
	}
	return b.String()
}

func TestProtocol(t *testing.T) {
	const minute = typev3.RateLimitUnit_MINUTE
	gone := adaptertest.FailingStore{Err: errors.New("gone")}
	onError := func(choice rules.OnStoreError) func(*rules.Rule) {
		return func(r *rules.Rule) { r.Storage.OnError = choice }
	}
	says := func(metadata map[string]any) func(*rules.Rule) {
		return func(r *rules.Rule) { r.Answer.Metadata = metadata }
	}
	type step struct {
		at   time.Duration
		in   *rlsv3.RateLimitRequest
		want string
	}
	for _, tt := range []struct {
		name   string
		setup  setup
		steps  []step
		counts map[string]int
	}{
		{"addends", setup{rules: []rules.Rule{perMinute("a", 5), perMinute("b", 5)}}, []step{
			{0, ask(descriptor("a=x")), `OK [OK a 5/MINUTE left 4 reset 60]
ratelimit-policy: "a";q=5;w=60
ratelimit: "a";r=4;t=60
{"limit":5,"remaining":4,"rule":"a"}`},
			// A descriptor's own hits_addend applies, to others that of the request.
			{0, costing(2, ask(descriptor("a=x", costs(3)), descriptor("b=x"))), `OK [OK a 5/MINUTE left 1 reset 60] [OK b 5/MINUTE left 3 reset 60]
ratelimit-policy: "a";q=5;w=60, "b";q=5;w=60
ratelimit: "a";r=1;t=60
{"limit":5,"remaining":1,"rule":"a"}`},
			// A zero in the descriptor only checks, whatever the request's addend.
			{0, costing(9, ask(descriptor("a=x", costs(0)))), `OK [OK a 5/MINUTE left 1 reset 60]
ratelimit-policy: "a";q=5;w=60
ratelimit: "a";r=1;t=60
{"limit":5,"remaining":1,"rule":"a"}`},
			{0, ask(descriptor("a=x")), `OK [OK a 5/MINUTE left 0 reset 60]
ratelimit-policy: "a";q=5;w=60
ratelimit: "a";r=0;t=60
{"limit":5,"remaining":0,"rule":"a"}`},
			// A check of a limit without room denies.
			{time.Second, ask(descriptor("a=x", costs(0))), `OVER_LIMIT [OVER_LIMIT a 5/MINUTE left 0 reset 59]
ratelimit-policy: "a";q=5;w=60
ratelimit: "a";r=0;t=59
retry-after: 59
retry-after-ms: 59000
{"limit":5,"remaining":0,"retry_after":59,"rule":"a"}`},
			// Envoy sends the first for NaN. The second is the largest cost.
			{0, ask(descriptor("b=x", costs(1<<63)), descriptor("b=y", costs(math.MaxUint64))), `OVER_LIMIT [OVER_LIMIT b 5/MINUTE left 3 reset 0] [OVER_LIMIT b 5/MINUTE left 5 reset 0]
ratelimit-policy: "b";q=5;w=60, "b";q=5;w=60
ratelimit: "b";r=3
x-should-retry: false
{"limit":5,"remaining":3,"rule":"b"}`},
		}, nil},
		{"refunds", setup{rules: []rules.Rule{perMinute("a", 3)}}, []step{
			{0, ask(descriptor("a=x", costs(3))), `OK [OK a 3/MINUTE left 0 reset 60]
ratelimit-policy: "a";q=3;w=60
ratelimit: "a";r=0;t=60
{"limit":3,"remaining":0,"rule":"a"}`},
			// A refund can deny nothing, so no header mentions it.
			{0, ask(descriptor("a=x", costs(2), refund)), `OK [OK a 3/MINUTE left 2 reset 60]`},
			// A refund gives back no more than was charged.
			{0, costing(math.MaxUint32, ask(descriptor("a=x", refund))), `OK [OK a 3/MINUTE left 3 reset 0]`},
			{0, ask(descriptor("a=x", refund), descriptor("a=y")), `OK [OK a 3/MINUTE left 3 reset 0] [OK a 3/MINUTE left 2 reset 60]
ratelimit-policy: "a";q=3;w=60
ratelimit: "a";r=2;t=60
{"limit":3,"remaining":2,"rule":"a"}`},
			// A refund counts although the request is denied. Its status is OK.
			{0, ask(descriptor("a=y", costs(2))), `OK [OK a 3/MINUTE left 0 reset 60]
ratelimit-policy: "a";q=3;w=60
ratelimit: "a";r=0;t=60
{"limit":3,"remaining":0,"rule":"a"}`},
			{0, ask(descriptor("a=y", refund), descriptor("a=y", costs(2))), `OVER_LIMIT [OK a 3/MINUTE left 1 reset 60] [OVER_LIMIT a 3/MINUTE left 1 reset 60]
ratelimit-policy: "a";q=3;w=60
ratelimit: "a";r=1;t=60
retry-after: 60
retry-after-ms: 60000
{"limit":3,"remaining":1,"retry_after":60,"rule":"a"}`},
		}, nil},
		{"limits of the descriptor", setup{rules: []rules.Rule{perMinute("a", 1), perMinute("w", 1, watched, says(map[string]any{"backend": "w"}))}}, []step{
			{0, ask(descriptor("a=x", limit(2, minute, 10))), `OK [OK a 2/MINUTE*10 left 1 reset 600]
ratelimit-policy: "a";q=2;w=600
ratelimit: "a";r=1;t=600
{"limit":2,"remaining":1,"rule":"a"}`},
			// A multiplier of zero means one. The limit applies without a rule.
			{0, ask(descriptor("z=x", limit(7, typev3.RateLimitUnit_HOUR, 0))), `OK [OK override 7/HOUR left 6 reset 3600]
ratelimit-policy: "override";q=7;w=3600
ratelimit: "override";r=6;t=3600
{"limit":7,"remaining":6,"rule":"override"}`},
			// These are invalid: no unit, an unknown unit, too long a window. The rule applies.
			{0, ask(descriptor("a=1", limit(5, 0)), descriptor("a=2", limit(5, 99)), descriptor("z=1", limit(5, typev3.RateLimitUnit_YEAR, 2))), `OK [OK a 1/MINUTE left 0 reset 60] [OK a 1/MINUTE left 0 reset 60] [OK]
ratelimit-policy: "a";q=1;w=60, "a";q=1;w=60
ratelimit: "a";r=0;t=60
{"limit":1,"remaining":0,"rule":"a"}`},
			// The rule's shadow mode and metadata do not apply.
			{0, ask(descriptor("w=x", limit(0, minute))), `OVER_LIMIT [OVER_LIMIT w 0/MINUTE left 0 reset 0]
ratelimit-policy: "w";q=0;w=60
ratelimit: "w";r=0
x-should-retry: false
{"limit":0,"remaining":0,"rule":"w"}`},
			{0, ask(descriptor("w=y", limit(1, minute))), `OK [OK w 1/MINUTE left 0 reset 60]
ratelimit-policy: "w";q=1;w=60
ratelimit: "w";r=0;t=60
{"limit":1,"remaining":0,"rule":"w"}`},
			{0, ask(descriptor("a=x", limit(math.MaxUint32, minute), costs(math.MaxUint64))), `OK [OK a 4294967295/MINUTE left 4294967295 reset 0]
ratelimit-policy: "a";q=4294967295;w=60
ratelimit: "a";r=4294967295;t=0
{"limit":4294967295,"remaining":4294967295,"rule":"a"}`},
		}, map[string]int{"ignored override": 3}},
		{"no limits", setup{rules: []rules.Rule{
			perMinute("u", 1, unlimited),
			perMinute("k", 1, func(r *rules.Rule) { r.Terms = rules.Terms{} }),
			{Name: "t", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, ByTier: map[string]rules.Terms{"pro": {Unlimited: true}}, Terms: perMinute("t", 3).Terms},
		}}, []step{
			{0, ask(descriptor("u=x"), descriptor("k=x"), descriptor("z=x"), descriptor(""), descriptor("api_key=acme-key")), `OK [OK left 4294967295] [OK] [OK] [OK] [OK left 4294967295]
{"subject":"acme","tier":"pro"}`},
			{0, ask(descriptor("api_key=unknown"), descriptor("u=x")), `OK [OK t 3/MINUTE left 2 reset 60] [OK left 4294967295]
ratelimit-policy: "t";q=3;w=60
ratelimit: "t";r=2;t=60
{"key_digest":"b23a6a8439c0","limit":3,"remaining":2,"rule":"t","tier":"free"}`},
		}, nil},
		{"replaced", setup{rules: []rules.Rule{
			perMinute("a", 1, says(map[string]any{"m": "a"})), perMinute("b", 2, func(r *rules.Rule) { r.Replaces = []string{"a"} }),
		}}, []step{
			{0, ask(descriptor("a=x"), descriptor("b=x")), `OK [OK] [OK b 2/MINUTE left 1 reset 60]
ratelimit-policy: "b";q=2;w=60
ratelimit: "b";r=1;t=60
{"limit":2,"remaining":1,"rule":"b"}`},
		}, nil},
		{"only observed", setup{rules: []rules.Rule{perMinute("w", 1, watched), perMinute("a", 3)}}, []step{
			{0, ask(descriptor("w=x")), `OK [OK w 1/MINUTE left 0 reset 60]`},
			{time.Second, ask(descriptor("w=x")), `OK [OK w 1/MINUTE left 0 reset 59]
{"shadowed":"w"}`},
			{time.Second, ask(descriptor("w=x"), descriptor("a=x", costs(2))), `OK [OK w 1/MINUTE left 0 reset 59] [OK a 3/MINUTE left 1 reset 60]
ratelimit-policy: "a";q=3;w=60
ratelimit: "a";r=1;t=60
{"limit":3,"remaining":1,"rule":"a","shadowed":"w"}`},
			{time.Second, ask(descriptor("w=x"), descriptor("a=x", costs(2))), `OVER_LIMIT [OK w 1/MINUTE left 0 reset 59] [OVER_LIMIT a 3/MINUTE left 1 reset 60]
ratelimit-policy: "a";q=3;w=60
ratelimit: "a";r=1;t=60
retry-after: 60
retry-after-ms: 60000
{"limit":3,"remaining":1,"retry_after":60,"rule":"a","shadowed":"w"}`},
		}, nil},
		{"all observed", setup{twice: true, prepare: (*rules.Rules).ObserveAll, rules: []rules.Rule{perMinute("a", 1), perMinute("l", 1, always)}}, []step{
			{0, ask(descriptor("a=x", costs(2)), descriptor("l=x", costs(2))), `OK [OK a 1/MINUTE left 1 reset 0] [OK l 1/MINUTE left 0 reset 0]
{"shadowed":"a"}`},
		}, nil},
		{"quota rules", setup{rules: []rules.Rule{
			perMinute("a", 1, quota, says(map[string]any{"backend": "a", "only": map[string]any{"a": true}})),
			perMinute("b", 2, quota, says(map[string]any{"backend": "b", "only": map[string]any{"b": nil}})),
			perMinute("free", 1, quota, unlimited),
		}}, []step{
			{0, ask(descriptor("a=x"), descriptor("b=x")), `OK [OK a 1/MINUTE left 0 reset 60] [OK b 2/MINUTE left 1 reset 60]
ratelimit-policy: "a";q=1;w=60, "b";q=2;w=60
ratelimit: "b";r=1;t=60
{"limit":2,"metadata":{"backend":"a","only":{"a":true,"b":null}},"remaining":1,"rule":"b"}`},
			// A quota rule without room is OVER_LIMIT, although the request passes.
			{0, ask(descriptor("a=x"), descriptor("b=x")), `OK [OVER_LIMIT a 1/MINUTE left 0 reset 60] [OK b 2/MINUTE left 0 reset 60]
ratelimit-policy: "a";q=1;w=60, "b";q=2;w=60
ratelimit: "b";r=0;t=60
{"limit":2,"metadata":{"backend":"b","only":{"b":null}},"remaining":0,"rule":"b"}`},
			{time.Second, ask(descriptor("a=x"), descriptor("b=x")), `OVER_LIMIT [OVER_LIMIT a 1/MINUTE left 0 reset 59] [OVER_LIMIT b 2/MINUTE left 0 reset 59]
ratelimit-policy: "a";q=1;w=60, "b";q=2;w=60
ratelimit: "a";r=0;t=59
retry-after: 59
retry-after-ms: 59000
{"limit":1,"remaining":0,"retry_after":59,"rule":"a"}`},
			// An unlimited quota rule is no alternative.
			{time.Second, ask(descriptor("a=x"), descriptor("b=y"), descriptor("free=x")), `OK [OVER_LIMIT a 1/MINUTE left 0 reset 59] [OK b 2/MINUTE left 1 reset 60] [OK left 4294967295]
ratelimit-policy: "a";q=1;w=60, "b";q=2;w=60
ratelimit: "b";r=1;t=60
{"limit":2,"metadata":{"backend":"b","only":{"b":null}},"remaining":1,"rule":"b"}`},
		}, nil},
		{"usage updates", setup{rules: []rules.Rule{perMinute("l", 5, always)}}, []step{
			{0, ask(descriptor("l=x", costs(8))), `OVER_LIMIT [OVER_LIMIT l 5/MINUTE left 0 reset 0]
ratelimit-policy: "l";q=5;w=60
ratelimit: "l";r=0
x-should-retry: false
{"limit":5,"remaining":0,"rule":"l"}`},
		}, nil},
		{"metadata of a rule that limits nothing", setup{rules: []rules.Rule{perMinute("m", 1, says(map[string]any{"n": 1.0, "l": []any{"x"}}), func(r *rules.Rule) { r.Terms = rules.Terms{} })}}, []step{
			{0, ask(descriptor("m=x")), `OK [OK]
{"metadata":{"l":["x"],"n":1}}`},
		}, nil},
		{"the request in metadata", setup{echo: true, rules: []rules.Rule{perMinute("a", 3, watched)}}, []step{
			{0, costing(2, ask(descriptor("a=x b=y=z api_key=secret", costs(0), limit(5, minute, 2)), descriptor("a=é"), descriptor(""))), `OK [OK override 5/MINUTE*2 left 5 reset 0] [OK a 3/MINUTE left 1 reset 60] [OK]
ratelimit-policy: "override";q=5;w=120
ratelimit: "override";r=5;t=0
{"descriptors":[{"entries":["a=x","b=y=z","api_key=***"],"hitsAddend":0,"limit":"requests_per_unit:5 unit:MINUTE unit_multiplier:{value:2}"},` +
				"{\"entries\":[\"a=é\"]},{\"entries\":[]}],\"domain\":\"edge\",\"hitsAddend\":2,\"key_digest\":\"2bb80d537b1d\",\"limit\":5,\"remaining\":5,\"rule\":\"override\"}"},
			{0, &rlsv3.RateLimitRequest{Domain: "other", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{descriptor("a=x")}}, `OK [OK]
{"descriptors":[{"entries":["a=x"]}],"domain":"other"}`},
		}, nil},
		{"headers of the domain", setup{
			prepare: func(rs *rules.Rules) { rs.SetHeaders("edge", []string{"x-ratelimit", "draft03"}) },
			rules:   []rules.Rule{perMinute("a", 1), perMinute("w", 1, watched)},
		}, []step{
			{0, ask(descriptor("a=x"), descriptor("w=x")), `OK [OK a 1/MINUTE left 0 reset 60] [OK w 1/MINUTE left 0 reset 60]
ratelimit-limit: 1, 1;w=60
ratelimit-remaining: 0
ratelimit-reset: 60
x-ratelimit-limit: 1
x-ratelimit-remaining: 0
x-ratelimit-reset: 60
{"limit":1,"remaining":0,"rule":"a"}`},
			{0, ask(descriptor("w=x")), `OK [OK w 1/MINUTE left 0 reset 60]
{"shadowed":"w"}`},
		}, nil},
		{"no headers for the domain", setup{
			prepare: func(rs *rules.Rules) { rs.SetHeaders("edge", []string{}) }, rules: []rules.Rule{perMinute("a", 0)},
		}, []step{
			{0, ask(descriptor("a=x")), `OVER_LIMIT [OVER_LIMIT a 0/MINUTE left 0 reset 0]
x-should-retry: false
{"limit":0,"remaining":0,"rule":"a"}`},
		}, nil},
		{"words of the rule that denies", setup{styles: []string{}, rules: []rules.Rule{
			perMinute("a", 0, func(r *rules.Rule) {
				r.Answer.Denial = rules.Denial{Body: "No more, é.\n", ContentType: "text/plain; charset=utf-8"}
			}),
			perMinute("b", 9, func(r *rules.Rule) { r.Answer.Denial = rules.Denial{Body: "b", ContentType: "text/b"} }),
		}}, []step{
			{0, ask(descriptor("b=x"), descriptor("a=x")), `OVER_LIMIT [OK b 9/MINUTE left 9 reset 0] [OVER_LIMIT a 0/MINUTE left 0 reset 0]
x-should-retry: false
text/plain; charset=utf-8: No more, é.

{"limit":0,"remaining":0,"rule":"a"}`},
			{0, ask(descriptor("b=x", costs(10))), `OVER_LIMIT [OVER_LIMIT b 9/MINUTE left 9 reset 0]
x-should-retry: false
text/b: b
{"limit":9,"remaining":9,"rule":"b"}`},
		}, nil},
		{"the store is gone", setup{store: gone, local: true, rules: []rules.Rule{
			perMinute("a", 1, onError(rules.StoreErrorAllow), says(map[string]any{"m": 1.0})),
			perMinute("d", 1, onError(rules.StoreErrorDeny)), perMinute("dw", 1, watched, onError(rules.StoreErrorDeny)),
			perMinute("l", 1, onError(rules.StoreErrorLocal)),
			perMinute("dq", 1, quota, onError(rules.StoreErrorDeny)), perMinute("lq", 1, quota, onError(rules.StoreErrorLocal)), perMinute("r", 1),
		}}, []step{
			{0, ask(descriptor("a=x")), `OK [OK]
{"degraded":true,"degraded_by":"allow","metadata":{"m":1}}`},
			{0, ask(descriptor("l=x")), `OK [OK l 1/MINUTE left 0 reset 60]
ratelimit-policy: "l";q=1;w=60
ratelimit: "l";r=0;t=60
{"degraded":true,"degraded_by":"local","limit":1,"remaining":0,"rule":"l"}`},
			{0, ask(descriptor("a=x"), descriptor("l=x")), `OVER_LIMIT [OK] [OVER_LIMIT l 1/MINUTE left 0 reset 60]
ratelimit-policy: "a";q=1;w=60, "l";q=1;w=60
ratelimit: "l";r=0;t=60
retry-after: 60
retry-after-ms: 60000
{"degraded":true,"degraded_by":"local","limit":1,"metadata":{"m":1},"remaining":0,"retry_after":60,"rule":"l"}`},
			{0, ask(descriptor("d=x")), `OVER_LIMIT [OVER_LIMIT d 1/MINUTE left 0 reset 1]
retry-after: 1
retry-after-ms: 1000
{"degraded":true,"degraded_by":"deny","limit":1,"remaining":0,"retry_after":1,"rule":"d"}`},
			// The refund is lost, but does not deny.
			{0, ask(descriptor("d=x", refund)), `OK [OK d 1/MINUTE left 1 reset 0]
{"degraded":true,"degraded_by":"allow"}`},
			{0, ask(descriptor("dw=x")), `OK [OK dw 1/MINUTE left 0 reset 1]
{"degraded":true,"degraded_by":"allow","shadowed":"dw"}`},
			// One of two quota rules denies, so the other one decides.
			{0, ask(descriptor("dq=x"), descriptor("lq=x")), `OK [OVER_LIMIT dq 1/MINUTE left 0 reset 1] [OK lq 1/MINUTE left 0 reset 60]
ratelimit-policy: "dq";q=1;w=60, "lq";q=1;w=60
ratelimit: "lq";r=0;t=60
{"degraded":true,"degraded_by":"local","limit":1,"remaining":0,"rule":"lq"}`},
			{0, ask(descriptor("r=x")), "Unavailable"},
			{0, ask(descriptor("dq=x"), descriptor("lq=y"), descriptor("r=x")), "Unavailable"},
		}, map[string]int{"degraded by 1": 3, "degraded by 2": 1, "degraded by 3": 3}},
	} {
		run := func(name string, setup setup, ask func(testing.TB, *Service, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error)) {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				service, meters := setup.serve(t)
				for i, step := range tt.steps {
					service.now = time.Hour + step.at
					got := ""
					if out, err := ask(t, service.Service, step.in); err != nil {
						got = httpText(err)
					} else {
						got = textOf(t, out)
					}
					if diff := cmp.Diff(step.want, got); diff != "" {
						t.Errorf("step %d (-want +got):\n%s", i, diff)
					}
				}
				if diff := cmp.Diff(tt.counts, meters.counts); diff != "" {
					t.Errorf("counts (-want +got):\n%s", diff)
				}
			})
		}
		run("in Go", tt.setup, func(t testing.TB, s *Service, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
			t.Helper()
			return s.exchange(t.Context(), in)
		})
		through := func(way adaptertest.Way) func(testing.TB, *Service, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
			return func(t testing.TB, s *Service, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
				t.Helper()
				return check(t, way, s, in)
			}
		}
		run("standard", tt.setup, through(adaptertest.Standard))
		if tt.setup.store == nil && !tt.setup.twice {
			run("without waiting", tt.setup, through(adaptertest.WithoutWaiting))
		}
		tt.setup.waits = tt.setup.store == nil
		run("with waiting", tt.setup, through(adaptertest.Unary))
	}
}

// httpText returns the gRPC code of an error that /json answers with 503.
func httpText(err error) string {
	return map[int]string{http.StatusServiceUnavailable: "Unavailable"}[httpStatus(err)]
}

// TestJSONIsTheSame sends the same requests over HTTP and gRPC to two services with the same
// history.
func TestJSONIsTheSame(t *testing.T) {
	s := setup{echo: true, rules: []rules.Rule{
		perMinute("a", 2, quota, func(r *rules.Rule) { r.Answer.Metadata = map[string]any{"m": []any{nil, 1.5}} }),
		perMinute("w", 1, watched), perMinute("u", 1, unlimited),
		perMinute("d", 0, func(r *rules.Rule) { r.Answer.Denial = rules.Denial{Body: "no", ContentType: "text/x"} }),
	}}
	direct, _ := s.serve(t)
	overHTTP, meters := s.serve(t)
	for i, in := range []*rlsv3.RateLimitRequest{
		ask(descriptor("a=x"), descriptor("w=x"), descriptor("u=x")),
		ask(descriptor("a=x", costs(9)), descriptor("w=x")),
		ask(descriptor("a=x", refund), descriptor("z=x", limit(7, typev3.RateLimitUnit_DAY, 3))),
		ask(descriptor("a=x", limit(7, 0))),
		ask(descriptor("d=x")),
	} {
		want, err := direct.exchange(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		body, err := protojson.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		overHTTP.ServeJSON(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(string(body))))
		got := new(rlsv3.RateLimitResponse)
		if err := protojson.Unmarshal(w.Body.Bytes(), got); err != nil {
			t.Fatalf("%d: %v: %s", i, err, w.Body)
		}
		if diff := cmp.Diff(textOf(t, want), textOf(t, got)); diff != "" {
			t.Errorf("%d (-gRPC +HTTP):\n%s", i, diff)
		}
		if got := w.Header().Values("content-type"); len(got) != 1 || got[0] != "application/json" {
			t.Errorf("%d: content-type %q, want application/json alone", i, got)
		}
	}
	if diff := cmp.Diff(map[string]int{"ignored override": 1}, meters.counts); diff != "" {
		t.Errorf("counts over HTTP (-want +got):\n%s", diff)
	}
}

// TestOverridesLeaveNothingBehind sends many different limits with different values, windows
// and subjects. Only the store keeps anything of them, until their windows end.
func TestOverridesLeaveNothingBehind(t *testing.T) {
	const many = 10_000
	store := new(emptyStore)
	s, _ := setup{rules: []rules.Rule{perMinute("a", 1)}, store: store, echo: true}.serve(t)
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools keep their items for one collection
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round := func(first int) {
		for i := first; i < first+many; i++ {
			in := ask(
				descriptor(fmt.Sprintf("a=%d", i), limit(uint32(i)+1, typev3.RateLimitUnit_SECOND)),
				descriptor("a=x", limit(uint32(i)+1, typev3.RateLimitUnit_SECOND, uint32(i)+1)),
				descriptor(fmt.Sprintf("z=%d", i), limit(5, typev3.RateLimitUnit(i), 1)),
			)
			if _, err := s.exchange(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
	}
	round(0)
	before := used()
	round(many)
	// The test notices 20 bytes for each.
	if after := used(); after > before+20*many {
		t.Errorf("%d bytes are in use after %d more overrides, %d before", after, many, before)
	}
	if store.checks < 4*many {
		t.Errorf("the store was asked %d times, want twice a request: this test proves nothing", store.checks)
	}
	runtime.KeepAlive(s)
}

// emptyStore is a store without logs. It allows every request.
type emptyStore struct{ checks int }

func (s *emptyStore) Take(_ context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	s.checks += len(checks)
	for i := range checks {
		decisions[i] = window.Decision{Allowed: true, Remaining: checks[i].Limit.Hits}
	}
	return true, nil
}

func (*emptyStore) Close() error { return nil }
