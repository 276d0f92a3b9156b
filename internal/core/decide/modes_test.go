package decide

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// newModes returns a decider on an embedded store whose clock shows *now.
func newModes(t *testing.T, prepare func(*rules.Rules), now *time.Duration, loaded ...rules.Rule) (*Decider, counts) {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)})
	if prepare != nil {
		prepare(rs)
	}
	for _, r := range loaded {
		if r.Domain == "" {
			r.Domain = "edge"
		}
		if err := rs.Add(r); err != nil {
			t.Fatalf("Add(%s): %v", r.Name, err)
		}
	}
	store := memstore.New(memstore.Options{Clock: func() time.Duration { return *now }, SweepInterval: -1})
	t.Cleanup(func() { store.Close() })
	return newDecider(t, rs, pausingStore{store})
}

// say describes a verdict in a line: the codes of the descriptors and the decisive limit.
func say(v *Verdict) string {
	var b strings.Builder
	b.WriteString(map[bool]string{true: "OK", false: "OVER"}[v.Allowed])
	for i, at := range v.Strictest {
		switch m := v.Matches[i]; {
		case m.ReplacedBy != nil:
			b.WriteString(" replaced")
		case m.Unlimited:
			b.WriteString(" unlimited")
		case at < 0:
			b.WriteString(" none")
		case v.Limits[at].Over():
			fmt.Fprintf(&b, " over:%d", v.Limits[at].Decision.Remaining)
		default:
			fmt.Fprintf(&b, " ok:%d", v.Limits[at].Decision.Remaining)
		}
	}
	if v.Decisive >= 0 {
		fmt.Fprintf(&b, " by %s", v.Limits[v.Decisive].Rule.Name)
		if !v.Allowed {
			if s := &v.Limits[v.Decisive]; s.Decision.Never {
				b.WriteString(", never")
			} else {
				fmt.Fprintf(&b, " in %v", s.Wait())
			}
		}
	}
	if v.Shadowed >= 0 {
		fmt.Fprintf(&b, " shadow %s", v.Limits[v.Shadowed].Rule.Name)
	}
	return b.String()
}

func TestModes(t *testing.T) {
	const minute = time.Minute
	quota := func(r *rules.Rule) { r.Quota = true }
	watch := func(r *rules.Rule) { r.Terms.Observe = 1 }
	always := func(r *rules.Rule) { r.Charge.Always = true }
	a, b, c := rule("a", per(1, minute), anyOf("a")), rule("b", per(2, minute), anyOf("b")), rule("c", per(3, minute), anyOf("c"))
	type ask struct {
		at   time.Duration
		req  *Request
		want string
	}
	costs := func(r *Request, costs ...uint64) *Request {
		for i, n := range costs {
			r.Descriptors[i].Cost = n
		}
		return r
	}
	refund := func(r *Request) *Request {
		r.Descriptors[0].Refund = true
		return r
	}
	limited := func(r *Request, hits uint64) *Request {
		r.Descriptors[0].Override = &window.Limit{Hits: hits, Window: minute}
		return r
	}
	for _, tt := range []struct {
		name    string
		prepare func(*rules.Rules)
		rules   []rules.Rule
		asks    []ask
		counts  counts
	}{
		{"shadow never denies, and is charged where it has room", nil, []rules.Rule{with(a, watch), b}, []ask{
			{0, request("a=x", "b=x"), "OK ok:0 ok:1 by b"},
			{1 * time.Second, request("a=x", "b=x"), "OK ok:0 ok:0 by b shadow a"},
			{2 * time.Second, request("a=x", "b=x"), "OVER ok:0 over:0 by b in 58s shadow a"},
			{2 * time.Second, request("a=y", "b=x"), "OVER ok:1 over:0 by b in 58s"}, // denied by b, so not charged
		}, counts{"edge/a shadow_allowed": 2, "edge/a shadow_denied": 2, "edge/b allowed": 2, "edge/b denied": 2}},
		{"only observed: nothing speaks", nil, []rules.Rule{with(a, watch)}, []ask{
			{0, request("a=x"), "OK ok:0"},
			{0, request("a=x"), "OK ok:0 shadow a"},
		}, nil},
		{"all observed by setting, overrides too", (*rules.Rules).ObserveAll, []rules.Rule{a}, []ask{
			{0, request("a=x"), "OK ok:0"},
			{0, request("a=x"), "OK ok:0 shadow a"},
			{0, limited(request("a=x"), 1), "OK ok:0"},
			{0, limited(request("a=x"), 1), "OK ok:0 shadow a"},
		}, nil},
		{"an override is not observed where its rule is", nil, []rules.Rule{with(a, watch)}, []ask{
			{0, limited(request("a=x"), 1), "OK ok:0 by a"},
			{0, limited(request("a=x"), 1), "OVER over:0 by a in 1m0s"},
		}, nil},
		{"of quota rules one must have room", nil, []rules.Rule{with(a, quota), with(b, quota), c}, []ask{
			{0, request("a=x", "b=x", "c=x"), "OK ok:0 ok:1 ok:2 by b"},
			{1 * time.Second, request("a=x", "b=x", "c=x"), "OK over:0 ok:0 ok:1 by b"},
			// The first of them has room again when a's hit is a minute old.
			{2 * time.Second, request("a=x", "b=x", "c=x"), "OVER over:0 over:0 ok:1 by a in 58s"},
			{minute, request("a=x", "b=x", "c=x"), "OK ok:0 ok:0 ok:1 by a"},
		}, counts{"edge/a allowed": 2, "edge/a passed_over": 1, "edge/a denied": 1, "edge/b allowed": 3, "edge/b denied": 1, "edge/c allowed": 3, "edge/c not_charged": 1}},
		{"another rule denies whatever the quota says", nil, []rules.Rule{with(a, quota), with(b, quota), rule("c", per(1, minute), anyOf("c"))}, []ask{
			{0, request("c=x"), "OK ok:0 by c"},
			{1 * time.Second, request("a=x", "b=x", "c=x"), "OVER ok:1 ok:2 over:0 by c in 59s"},
			{1 * time.Second, request("a=x", "b=x"), "OK ok:0 ok:1 by b"}, // nothing was charged before
		}, nil},
		{"both deny: the longer wait", nil, []rules.Rule{with(a, quota), rule("c", per(1, time.Hour), anyOf("c"))}, []ask{
			{0, request("a=x", "c=x"), "OK ok:0 ok:0 by c"},
			{time.Second, request("a=x", "c=x"), "OVER over:0 over:0 by c in 59m59s"},
		}, nil},
		{"an observed quota rule passes, so the others cannot deny", nil, []rules.Rule{with(with(a, quota), watch), with(b, quota)}, []ask{
			{0, costs(request("b=x"), 2), "OK ok:0 by b"},
			{0, request("a=x", "b=x"), "OK ok:0 over:0"},
		}, nil},
		{"an unlimited one is no alternative", nil, []rules.Rule{with(rule("a", rules.Terms{Unlimited: true}, anyOf("a")), quota), with(rule("b", per(1, minute), anyOf("b")), quota)}, []ask{
			{0, request("a=x", "b=x"), "OK unlimited ok:0 by b"},
			{0, request("a=x", "b=x"), "OVER unlimited over:0 by b in 1m0s"},
			{0, request("a=x"), "OK unlimited"},
		}, nil},
		{"nor is one that is unlimited for a tier", nil, []rules.Rule{
			with(rules.Rule{Name: "k", Path: []descriptors.Node{anyOf("api_key")}, ByTier: map[string]rules.Terms{"starter": {Unlimited: true}}, Terms: per(1, minute)}, quota), with(rule("b", per(1, minute), anyOf("b")), quota),
		}, []ask{
			{0, request("api_key=acme-key", "b=x"), "OK unlimited ok:0 by b"},
			{0, request("api_key=acme-key", "b=x"), "OVER unlimited over:0 by b in 1m0s"},
		}, nil},
		{"nor is one where all are quota rules", (*rules.Rules).QuotaAll, []rules.Rule{rule("a", rules.Terms{Unlimited: true}, anyOf("a")), rule("b", per(1, minute), anyOf("b"))}, []ask{
			{0, request("a=x", "b=x"), "OK unlimited ok:0 by b"},
			{0, request("a=x", "b=x"), "OVER unlimited over:0 by b in 1m0s"},
		}, nil},
		{"all are quota rules by setting", (*rules.Rules).QuotaAll, []rules.Rule{a, b}, []ask{
			{0, request("a=x", "b=x"), "OK ok:0 ok:1 by b"},
			{0, request("a=x", "b=x"), "OK over:0 ok:0 by b"},
			{0, request("a=x", "b=x"), "OVER over:0 over:0 by a in 1m0s"},
			{0, request("a=x", "b=x", "other=x"), "OK over:0 over:0 none"},
		}, nil},
		{"a usage update is recorded over the limit", nil, []rules.Rule{with(b, always)}, []ask{
			{0, costs(request("b=x"), 1), "OK ok:1 by b"},
			{1 * time.Second, costs(request("b=x"), 5), "OVER over:0 by b, never"}, // above the limit: never
			{2 * time.Second, costs(request("b=x"), 0), "OVER over:0 by b in 59s"},
			{61 * time.Second, costs(request("b=x"), 0), "OK ok:2 by b"},
		}, nil},
		{"refunds give back, floored at zero, and always pass", nil, []rules.Rule{b}, []ask{
			{0, costs(request("b=x"), 2), "OK ok:0 by b"},
			{0, request("b=x"), "OVER over:0 by b in 1m0s"},
			{0, refund(request("b=x")), "OK ok:1"},
			{0, refund(costs(request("b=x"), 9)), "OK ok:2"},
			{0, request("b=x"), "OK ok:1 by b"},
		}, counts{"edge/b allowed": 2, "edge/b denied": 1, "edge/b refunded": 2}},
		{"a rule's factor", nil, []rules.Rule{with(c, func(r *rules.Rule) { r.Charge.Factor = 2 })}, []ask{
			{0, request("c=x"), "OK ok:1 by c"},
			{0, costs(request("c=x"), math.MaxUint64), "OVER over:1 by c, never"},
			{0, costs(request("c=x"), 0), "OK ok:1 by c"},
			{0, refund(request("c=x")), "OK ok:3"},
		}, nil},
		{"unlimited, by rule and by tier", nil, []rules.Rule{
			rule("a", rules.Terms{Unlimited: true}, anyOf("a")),
			{Name: "k", Path: []descriptors.Node{anyOf("api_key")}, ByTier: map[string]rules.Terms{"starter": {Unlimited: true}}, Terms: per(1, minute)},
		}, []ask{
			{0, request("a=x", "api_key=acme-key"), "OK unlimited unlimited"},
			{0, request("api_key=hobby-key"), "OK ok:0 by k"},
		}, counts{"edge/a unlimited": 1, "edge/k unlimited": 1, "edge/k allowed": 1}},
		{"replaces, across the descriptors of one request", nil, []rules.Rule{a, with(b, func(r *rules.Rule) { r.Replaces = []string{"a"} })}, []ask{
			{0, request("a=x", "b=x"), "OK replaced ok:1 by b"},
			{0, request("b=x", "a=x"), "OK ok:0 replaced by b"},
			{0, request("a=x"), "OK ok:0 by a"},
			{0, request("a=x"), "OVER over:0 by a in 1m0s"},
		}, counts{"edge/a replaced": 2, "edge/a allowed": 1, "edge/a denied": 1, "edge/b allowed": 2}},
		{"an unlimited rule replaces too", nil, []rules.Rule{a, with(rule("b", rules.Terms{Unlimited: true}, anyOf("b")), func(r *rules.Rule) { r.Replaces = []string{"a"} })}, []ask{
			{0, request("a=x", "b=x"), "OK replaced unlimited"},
		}, nil},
		{"a limit of the request is not replaced", nil, []rules.Rule{a, with(b, func(r *rules.Rule) { r.Replaces = []string{"a"} })}, []ask{
			{0, limited(request("a=x", "b=x"), 9), "OK ok:8 ok:1 by b"},
		}, nil},
		{"wildcards tell logs apart unless they share", nil, []rules.Rule{
			rule("own", per(1, minute), descriptors.Node{Key: "f", Value: "a*", Pattern: true}),
			with(rule("one", per(1, minute), descriptors.Node{Key: "f", Value: "b*", Pattern: true}), func(r *rules.Rule) { r.OneLog = []bool{true} }),
			with(rule("deep", per(1, minute), descriptors.Node{Key: "f", Value: "c*", Pattern: true}, anyOf("u")), func(r *rules.Rule) { r.OneLog = []bool{true, false} }),
		}, []ask{
			{0, request("f=a1"), "OK ok:0 by own"},
			{0, request("f=a2"), "OK ok:0 by own"},
			{0, request("f=b1"), "OK ok:0 by one"},
			{0, request("f=b2"), "OVER over:0 by one in 1m0s"},
			{0, request("f=c1 u=1"), "OK ok:0 by deep"},
			{0, request("f=c2 u=1"), "OVER over:0 by deep in 1m0s"},
			{0, request("f=c2 u=2"), "OK ok:0 by deep"},
		}, nil},
		{"an override replaces the limit alone: cost and charge stay", nil, []rules.Rule{with(with(b, always), func(r *rules.Rule) { r.Charge.Factor = 3 })}, []ask{
			{0, limited(request("b=x"), 10), "OK ok:7 by b"},
			{0, limited(costs(request("b=x"), 3), 10), "OVER over:0 by b in 1m0s"},
			{0, limited(costs(request("b=x"), 0), 10), "OVER over:0 by b in 1m0s"},
		}, nil},
		{"where all is observed, usage updates do not keep other limits from being charged", (*rules.Rules).ObserveAll, []rules.Rule{with(b, always), c}, []ask{
			{0, costs(request("b=x"), 9), "OK ok:0 shadow b"},
			{0, request("b=x", "c=x"), "OK ok:0 ok:2 shadow b"},
			{0, request("c=x"), "OK ok:1"},
		}, nil},
		{"one log has the strictest of its modes", nil, []rules.Rule{
			{
				Name: "s", Path: []descriptors.Node{{Key: "consumer", Value: "*", Pattern: true}}, OneLog: []bool{true},
				Terms: per(3, minute), ByTier: map[string]rules.Terms{"starter": {Limits: per(2, minute).Limits, Observe: 1}},
			},
		}, []ask{
			{0, request("consumer=acme", "consumer=hobby"), "OK ok:0 ok:0 by s"},
			{0, request("consumer=acme"), "OK ok:0 shadow s"},
			{0, request("consumer=acme", "consumer=hobby"), "OVER over:0 over:0 by s in 1m0s"},
		}, nil},
		{"several limits of one rule in one pass", nil, []rules.Rule{rule("m", rules.Terms{Limits: append(per(1, time.Second).Limits, per(2, minute).Limits...)}, anyOf("m"))}, []ask{
			{0, request("m=x"), "OK ok:0 by m"},
			{0, request("m=x"), "OVER over:0 by m in 1s"},
			{time.Second, request("m=x"), "OK ok:0 by m"},
			{2 * time.Second, request("m=x"), "OVER over:0 by m in 58s"},
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var now time.Duration
			d, got := newModes(t, tt.prepare, &now, tt.rules...)
			for i, ask := range tt.asks {
				now = ask.at
				v := decide(t, d, ask.req)
				if got := say(&v); got != ask.want {
					t.Errorf("%d at %v: %s, want %s", i, ask.at, got, ask.want)
				}
			}
			if tt.counts != nil {
				if diff := cmp.Diff(tt.counts, got); diff != "" {
					t.Errorf("counts: (-want +got)\n%s", diff)
				}
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	var now time.Duration
	quota := func(name string, m map[string]any) rules.Rule {
		r := rule(name, per(1, time.Minute), anyOf(name))
		r.Quota, r.Answer.Metadata = true, m
		return r
	}
	d, _ := newModes(t, nil, &now,
		quota("a", map[string]any{"backend": "a", "deep": map[string]any{"x": "a"}}),
		quota("b", map[string]any{"backend": "b", "deep": map[string]any{"x": "b", "y": "b"}}),
	)
	ask := func(req *Request) map[string]any {
		v := decide(t, d, req)
		return v.Metadata()
	}
	if diff := cmp.Diff(map[string]any{"backend": "a", "deep": map[string]any{"x": "a", "y": "b"}}, ask(request("a=1", "b=1"))); diff != "" {
		t.Errorf("both have room: (-want +got)\n%s", diff)
	}
	ask(request("a=2"))
	if diff := cmp.Diff(map[string]any{"backend": "b", "deep": map[string]any{"x": "b", "y": "b"}}, ask(request("a=2", "b=2"))); diff != "" {
		t.Errorf("a has none: (-want +got)\n%s", diff)
	}
	if got := ask(request("a=2", "b=2")); got != nil {
		t.Errorf("none has room: %v, want nothing", got)
	}
	if got := ask(request("other=1")); got != nil {
		t.Errorf("no rule: %v, want nothing", got)
	}
}

func TestDetail(t *testing.T) {
	var now time.Duration
	pattern := func(key, value string) descriptors.Node {
		return descriptors.Node{Key: key, Value: value, Pattern: true}
	}
	d, got := newModes(t, nil, &now,
		with(rule("v", per(9, time.Minute), anyOf("route"), anyOf("method"), anyOf("user")), func(r *rules.Rule) { r.Metric.Values = []bool{true, true, false} }),
		with(rule("d", per(9, time.Minute), anyOf("path"), anyOf("api_key")), func(r *rules.Rule) { r.Metric.Detailed = true }),
		with(rule("p", per(9, time.Minute), pattern("f", "a*"), one("g", "1"), pattern("h", "*")), func(r *rules.Rule) { r.Metric.Values = []bool{false, false, true} }),
		with(rule("s", per(9, time.Minute), pattern("s", "a*"), anyOf("u")), func(r *rules.Rule) { r.OneLog, r.Metric.Detailed = []bool{true, false}, true }),
	)
	for _, req := range []*Request{
		request("route=api method=GET user=7"), request("path=/x api_key=acme-key"), request("f=ab g=1 h=z"), request("s=ab u=7"),
	} {
		decide(t, d, req)
	}
	want := counts{
		"edge/v allowed": 1, "edge/v route_api.method_GET.user allowed": 1,
		"edge/d allowed": 1, "edge/d path_/x.api_key allowed": 1,
		"edge/p allowed": 1, "edge/p f_a*.g_1.h_z allowed": 1,
		"edge/s allowed": 1, "edge/s s_a*.u_7 allowed": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts: (-want +got)\n%s", diff)
	}
}

// TestOnStoreError decides requests by the choices of their rules while the store is away.
func TestOnStoreError(t *testing.T) {
	boom := errors.New("boom")
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for name, choice := range map[string]rules.OnStoreError{"report": rules.StoreErrorReported, "allow": rules.StoreErrorAllow, "deny": rules.StoreErrorDeny, "local": rules.StoreErrorLocal} {
		r := rule(name, per(1, time.Minute), anyOf(name))
		r.Domain, r.Storage.OnError = "edge", choice
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	watch := with(rule("watch", per(1, time.Minute), anyOf("watch")), func(r *rules.Rule) { r.Domain, r.Terms.Observe = "edge", 1 })
	if err := rs.Add(watch); err != nil {
		t.Fatal(err)
	}
	local := memstore.New(memstore.Options{Clock: func() time.Duration { return 0 }})
	defer local.Close()
	decide := func(ctx context.Context, local window.Store, req *Request) (string, error) {
		d, _ := newDecider(t, rs, &recordingStore{err: boom})
		d.opts.Local = local
		v, err := decideErr(ctx, d, req)
		if err == nil && !v.Degraded {
			t.Error("not degraded")
		}
		return say(&v), err
	}
	for _, tt := range []struct {
		req   *Request
		local window.Store
		want  string // empty: the store's error
	}{
		{request("report=x"), local, ""},
		{request("allow=x"), local, "OK none"},
		{request("deny=x"), local, "OVER over:0 by deny in 1s"},
		{request("local=x"), local, "OK ok:0 by local"},
		{request("local=x"), local, "OVER over:0 by local in 1m0s"},
		{request("local=x"), nil, ""},
		{request("allow=x", "report=x"), local, ""},
		{request("deny=x", "report=x"), local, "OVER over:0 none by deny in 1s"},
		{request("deny=x", "local=z"), local, "OVER over:0 none by deny in 1s"},
		{request("allow=x", "local=y"), local, "OK none ok:0 by local"},
		{request("watch=x"), local, "OK none"},
		{request("watch=x", "report=x"), local, ""},
	} {
		got, err := decide(t.Context(), tt.local, tt.req)
		if (tt.want == "") != errors.Is(err, boom) || tt.want != "" && got != tt.want {
			t.Errorf("%v: %s, error %v, want %s", tt.req.Descriptors, got, err, tt.want)
		}
	}
}

// TestDefaultOnStoreError proves that rules without a choice, and limits that come with a
// request, follow each default. The strictest choice of a request counts.
func TestDefaultOnStoreError(t *testing.T) {
	boom := errors.New("no store")
	for _, tt := range []struct {
		choice rules.OnStoreError
		want   []string // empty: the store's error
	}{
		{rules.StoreErrorUnset, []string{"", "", "", "OVER none over:0 by deny in 1s"}},
		{rules.StoreErrorReported, []string{"", "", "", "OVER none over:0 by deny in 1s"}},
		{rules.StoreErrorAllow, []string{"OK none", "OK none", "OK none none", "OVER none over:0 by deny in 1s"}},
		{rules.StoreErrorDeny, []string{"OVER over:0 by plain in 1s", "OVER over:0 by override in 1s", "OVER over:0 none by plain in 1s", "OVER over:0 over:0 by plain in 1s"}},
		{rules.StoreErrorLocal, []string{"OK ok:1 by plain", "OK ok:0 by override", "OK ok:0 none by plain", "OVER none over:0 by deny in 1s"}},
	} {
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		if tt.choice != rules.StoreErrorUnset {
			rs.SetOnStoreError(tt.choice)
		}
		for name, own := range map[string]rules.OnStoreError{"plain": rules.StoreErrorUnset, "allow": rules.StoreErrorAllow, "deny": rules.StoreErrorDeny} {
			if err := rs.Add(with(rule(name, per(2, time.Minute), anyOf(name)), func(r *rules.Rule) { r.Domain, r.Storage.OnError = "edge", own })); err != nil {
				t.Fatal(err)
			}
		}
		local := memstore.New(memstore.Options{Clock: func() time.Duration { return 0 }})
		d, _ := newDecider(t, rs, &recordingStore{err: boom})
		d.opts.Local = local
		override := request("unknown=x")
		override.Descriptors[0].Override = &window.Limit{Hits: 1, Window: time.Minute}
		for i, req := range []*Request{request("plain=x"), override, request("plain=x", "allow=x"), request("plain=x", "deny=x")} {
			v, err := decideErr(t.Context(), d, req)
			if got := say(&v); (tt.want[i] == "") != errors.Is(err, boom) || tt.want[i] != "" && got != tt.want[i] {
				t.Errorf("default %v, request %d: %s, error %v, want %s", tt.choice, i, got, err, tt.want[i])
			}
		}
		local.Close()
	}
	for o := rules.StoreErrorAllow; o <= rules.StoreErrorReported; o++ {
		if got, ok := rules.ParseOnStoreError(o.String()); got != o || !ok {
			t.Errorf("%v is read as %v, %t", o, got, ok)
		}
	}
	for _, text := range []string{"", "Local"} {
		if got, ok := rules.ParseOnStoreError(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// TestWhoseDeadline proves that a store that is too late counts as a store error, and that
// a caller who has left does not.
func TestWhoseDeadline(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	if err := rs.Add(with(rule("r", per(1, time.Minute), anyOf("r")), func(r *rules.Rule) { r.Domain, r.Storage.OnError = "edge", rules.StoreErrorAllow })); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		store window.Store
		want  error // nil: degraded
	}{
		{"the store's own", t.Context(), &recordingStore{err: context.DeadlineExceeded}, nil},
		{"the store's own, to cancel", t.Context(), &recordingStore{err: context.Canceled}, nil},
		{"the caller's", late, new(stuckStore), context.DeadlineExceeded},
		{"the caller is gone", gone, new(stuckStore), context.Canceled},
	} {
		got := counts{}
		d := NewDecider(rs, Options{Store: tt.store, Meters: got, Log: dropAll})
		v, err := decideErr(tt.ctx, d, request("r=x"))
		want := counts{"edge/r error": 1}
		if tt.want != nil {
			want = counts{}
		}
		if !errors.Is(err, tt.want) || v.Degraded != (tt.want == nil) || !cmp.Equal(want, got) {
			t.Errorf("%s: error %v, degraded %t, counts %v; want error %v, counts %v", tt.name, err, v.Degraded, got, tt.want, want)
		}
	}
}

// TestLeaseReachesTheStore proves that a check has the lease of its limit.
func TestLeaseReachesTheStore(t *testing.T) {
	lease := window.Lease{Length: 50 * time.Millisecond, Hits: 10}
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	leased := rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 100, Window: time.Second}, Lease: lease}}}
	if err := rs.Add(with(rule("r", leased, anyOf("r")), func(r *rules.Rule) { r.Domain = "edge" })); err != nil {
		t.Fatal(err)
	}
	s := new(recordingStore)
	d := NewDecider(rs, Options{Store: s, Meters: counts{}, Log: dropAll})
	decide(t, d, request("r=x"))
	if got := s.checks[0].Lease; got != lease {
		t.Errorf("got %+v, want %+v", got, lease)
	}
}

// learningStore is a local store that records the calls of Learn.
type learningStore struct {
	window.Store
	told []string
}

func (p *learningStore) Learn(c *window.Check, d *window.Decision) {
	p.told = append(p.told, fmt.Sprintf("%s of %d remains %d", c.Key, c.Limit.Hits, d.Remaining))
}

// TestLearner proves that a local store learns the decisions of the store for its rules,
// and nothing while the store cannot decide.
func TestLearner(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for name, choice := range map[string]rules.OnStoreError{"local": rules.StoreErrorLocal, "allow": rules.StoreErrorAllow} {
		if err := rs.Add(with(rule(name, per(3, time.Minute), anyOf(name)), func(r *rules.Rule) { r.Domain, r.Storage.OnError = "edge", choice })); err != nil {
			t.Fatal(err)
		}
	}
	store := memstore.New(memstore.Options{Clock: func() time.Duration { return 0 }})
	defer store.Close()
	local := memstore.New(memstore.Options{Clock: func() time.Duration { return 0 }})
	defer local.Close()
	p := &learningStore{Store: local}
	d := NewDecider(rs, Options{Store: store, Local: p, Meters: counts{}, Log: dropAll})
	for range 2 {
		decide(t, d, request("allow=x", "local=x"))
	}
	d = NewDecider(rs, Options{Store: &recordingStore{err: errors.New("boom")}, Local: p, Meters: counts{}, Log: dropAll})
	decide(t, d, request("allow=x", "local=x"))
	want := []string{"{x}:edge|local:x of 3 remains 2", "{x}:edge|local:x of 3 remains 1"}
	if diff := cmp.Diff(want, p.told); diff != "" {
		t.Errorf("told: (-want +got)\n%s", diff)
	}
}
