package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/cache"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// expect compares the series of some metrics.
func expect(t *testing.T, registry *prometheus.Registry, want string, names ...string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			got = append(got, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(f.GetName(), "slidegate_"), strings.Join(labels, ","), m.GetCounter().GetValue()))
		}
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

const (
	decisions = "slidegate_decisions_total"
	shadow    = "slidegate_shadow_decisions_total"
	detail    = "slidegate_detail_decisions_total"
	near      = "slidegate_near_limit_total"

	denialsName = "slidegate_limit_denials_total"
)

// TestDecisions counts every outcome once, and denials twice.
func TestDecisions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	first := m.Meter("edge", "per-key")
	if m.Meter("edge", "per-key") != first {
		t.Error("the same rule of two generations has two meters")
	}
	m.Meter("edge", "never-asked")
	for o := range decide.Outcomes {
		first.Count(decide.Outcome(o))
	}
	first.Count(decide.OutcomeDenied)
	m.Meter("edge", "").Count(decide.OutcomeNoRule)
	m.UnknownDomain()
	expect(t, registry, `
decisions_total{domain="edge",outcome="allowed",rule="per-key"} 1
decisions_total{domain="edge",outcome="denied",rule="per-key"} 2
decisions_total{domain="edge",outcome="error",rule="per-key"} 1
decisions_total{domain="edge",outcome="never",rule="per-key"} 1
decisions_total{domain="edge",outcome="no_rule",rule=""} 1
decisions_total{domain="edge",outcome="no_rule",rule="per-key"} 1
decisions_total{domain="edge",outcome="not_charged",rule="per-key"} 1
decisions_total{domain="edge",outcome="passed_over",rule="per-key"} 1
decisions_total{domain="edge",outcome="refunded",rule="per-key"} 1
decisions_total{domain="edge",outcome="repeated",rule="per-key"} 1
decisions_total{domain="edge",outcome="replaced",rule="per-key"} 1
decisions_total{domain="edge",outcome="unlimited",rule="per-key"} 1
shadow_decisions_total{domain="edge",outcome="allowed",rule="per-key"} 1
shadow_decisions_total{domain="edge",outcome="denied",rule="per-key"} 1
unknown_domain_requests_total{} 1`, decisions, shadow, "slidegate_unknown_domain_requests_total")
}

// TestNear counts hits near limits, and ends their series with their rule.
func TestNear(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	stays, goes := m.Meter("edge", "stays"), m.Meter("edge", "goes")
	m.Loaded()
	stays.Near(2)
	goes.Near(1)
	m.Meter("edge", "stays").Near(3)
	expect(t, registry, `
near_limit_total{domain="edge",rule="goes"} 1
near_limit_total{domain="edge",rule="stays"} 5`, near)
	m.Loaded()
	goes.Near(1)
	expect(t, registry, `
near_limit_total{domain="edge",rule="stays"} 5`, near)
}

// TestThresholds counts thresholds of budgets, and ends their series with their rule.
func TestThresholds(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	m.Meter("edge", "stays")
	m.Meter("edge", "goes")
	m.Loaded()
	m.Meter("edge", "stays")
	m.Threshold("edge", "stays", 80)
	m.Threshold("edge", "stays", 100)
	m.Threshold("edge", "goes", 80)
	m.Threshold("edge", "unknown", 80)
	const name = "slidegate_budget_events_total"
	expect(t, registry, `
budget_events_total{domain="edge",rule="goes",threshold="80"} 1
budget_events_total{domain="edge",rule="stays",threshold="100"} 1
budget_events_total{domain="edge",rule="stays",threshold="80"} 1`, name)
	m.Loaded()
	m.Threshold("edge", "goes", 80)
	expect(t, registry, `
budget_events_total{domain="edge",rule="stays",threshold="100"} 1
budget_events_total{domain="edge",rule="stays",threshold="80"} 1`, name)
}

// TestBudgets counts what becomes of costs, and ends the series with their rule.
func TestBudgets(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	goes := m.Meter("edge", "goes")
	m.Loaded()
	stays := m.Meter("edge", "stays")
	stays.Budget(inflight.BudgetReserved, 1, 4096)
	stays.Budget(inflight.BudgetReserved, 1, 4)
	stays.Budget(inflight.BudgetSettled, 1, 5000)
	stays.Budget(inflight.BudgetAboveEstimate, 1, 904)
	goes.Budget(inflight.BudgetUnknown, 1, 0)
	names := []string{"slidegate_budget_requests_total", "slidegate_budget_units_total"}
	expect(t, registry, `
budget_requests_total{domain="edge",outcome="above_estimate",rule="stays"} 1
budget_requests_total{domain="edge",outcome="reserved",rule="stays"} 2
budget_requests_total{domain="edge",outcome="settled",rule="stays"} 1
budget_requests_total{domain="edge",outcome="unknown",rule="goes"} 1
budget_units_total{domain="edge",outcome="above_estimate",rule="stays"} 904
budget_units_total{domain="edge",outcome="reserved",rule="stays"} 4100
budget_units_total{domain="edge",outcome="settled",rule="stays"} 5000
budget_units_total{domain="edge",outcome="unknown",rule="goes"} 0`, names...)
	m.Loaded()
	goes.Budget(inflight.BudgetUnknown, 1, 1)
	if n := testutil.CollectAndCount(registry, names...); n != 6 {
		t.Errorf("got %d series, want the 6 of stays", n)
	}
}

// TestDenials counts denials by the limits of rules, and ends their series with their rule.
func TestDenials(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	stays, goes := m.Meter("edge", "stays"), m.Meter("edge", "goes")
	m.Loaded()
	m.Meter("edge", "stays")
	stays.Denied("free", window.Sliding, time.Minute)
	stays.Denied("free", window.Sliding, time.Minute)
	stays.Denied("free", window.Sliding, 24*time.Hour)
	stays.Denied("", window.Sliding, 0)
	goes.Denied("", window.Sliding, time.Second)
	const kept = `
limit_denials_total{domain="edge",rule="stays",tier="",window="override"} 1
limit_denials_total{domain="edge",rule="stays",tier="free",window="1d"} 1
limit_denials_total{domain="edge",rule="stays",tier="free",window="1m"} 2`
	expect(t, registry, `
limit_denials_total{domain="edge",rule="goes",tier="",window="1s"} 1`+kept, denialsName)
	m.Loaded()
	goes.Denied("", window.Sliding, time.Second)
	expect(t, registry, kept, denialsName)
}

func TestAnswers(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	m.IgnoredOverride()
	m.DegradedAnswer(rules.StoreErrorLocal)
	m.DegradedAnswer(rules.StoreErrorLocal)
	m.DegradedAnswer(rules.StoreErrorReported) // not counted: the call fails
	expect(t, registry, `
degraded_answers_total{choice="allow"} 0
degraded_answers_total{choice="deny"} 0
degraded_answers_total{choice="local"} 2
ignored_overrides_total{} 1`, "slidegate_degraded_answers_total", "slidegate_ignored_overrides_total")
}

// TestRulesThatGo reloads the rules. The series of a removed rule end, and the others
// continue.
func TestRulesThatGo(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{MaxDetailSeries: 2})
	generation := func(rules ...string) (meters []decide.Meter) {
		for _, r := range rules {
			meters = append(meters, m.Meter("edge", r))
		}
		m.Loaded()
		return meters
	}
	first := generation("stays", "goes")
	for _, meter := range first {
		meter.Count(decide.OutcomeAllowed)
		meter.Count(decide.OutcomeShadowDenied)
		meter.Detail([]byte("a"), decide.OutcomeAllowed)
		meter.Detail([]byte("b"), decide.OutcomeAllowed) // counts as other for the second rule
	}
	second := generation("stays")
	if second[0] != first[0] {
		t.Error("a rule that stays has another meter")
	}
	second[0].Count(decide.OutcomeAllowed)
	// These requests began under the first generation.
	first[1].Count(decide.OutcomeAllowed)
	first[1].Count(decide.OutcomeDenied)
	first[1].Detail([]byte("c"), decide.OutcomeAllowed)
	first[1].Detail(make([]byte, maxValues+1), decide.OutcomeDenied)
	expect(t, registry, `
decisions_total{domain="edge",outcome="allowed",rule="stays"} 2
detail_decisions_total{domain="edge",outcome="allowed",rule="stays",values="a"} 1
detail_decisions_total{domain="edge",outcome="allowed",rule="stays",values="b"} 1
shadow_decisions_total{domain="edge",outcome="denied",rule="stays"} 1`, decisions, shadow, detail)

	third := generation("goes")
	third[0].Count(decide.OutcomeAllowed)
	third[0].Detail([]byte("c"), decide.OutcomeAllowed) // the ended series have made room
	expect(t, registry, `
decisions_total{domain="edge",outcome="allowed",rule="goes"} 1
detail_decisions_total{domain="edge",outcome="allowed",rule="goes",values="c"} 1`, decisions, shadow, detail)
}

func TestDetail(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{MaxDetailSeries: 6})
	a, b := m.Meter("edge", "a"), m.Meter("edge", "b")
	for _, tt := range []struct {
		meter  decide.Meter
		values string
		o      decide.Outcome
	}{
		{a, "route_x", decide.OutcomeAllowed},
		{a, "route_x", decide.OutcomeAllowed},
		{a, "route_x", decide.OutcomeShadowDenied},
		{b, "route_x", decide.OutcomeAllowed},
		{b, "route_\xff\xfe", decide.OutcomeAllowed},                // not UTF-8
		{b, "route_\x1b\u0085", decide.OutcomeAllowed},              // controls a terminal
		{b, strings.Repeat("x", maxValues+1), decide.OutcomeDenied}, // too long
		{b, strings.Repeat("x", maxValues), decide.OutcomeDenied},   // takes the last series
		{a, "route_x", decide.OutcomeDenied},
		{a, "route_y", decide.OutcomeAllowed},
		{a, "route_z", decide.OutcomeAllowed},
		{b, "route_z", decide.OutcomeAllowed},
		{a, "route_x", decide.OutcomeAllowed}, // has a series
	} {
		values := []byte(tt.values)
		tt.meter.Detail(values, tt.o)
		clear(values) // Detail must not keep it
	}
	expect(t, registry, `
detail_decisions_total{domain="edge",outcome="allowed",rule="a",values="other"} 2
detail_decisions_total{domain="edge",outcome="allowed",rule="a",values="route_x"} 3
detail_decisions_total{domain="edge",outcome="allowed",rule="b",values="other"} 1
detail_decisions_total{domain="edge",outcome="allowed",rule="b",values="route_x"} 1
detail_decisions_total{domain="edge",outcome="allowed",rule="b",values="route_�"} 1
detail_decisions_total{domain="edge",outcome="allowed",rule="b",values="route_��"} 1
detail_decisions_total{domain="edge",outcome="denied",rule="a",values="other"} 1
detail_decisions_total{domain="edge",outcome="denied",rule="b",values="other"} 1
detail_decisions_total{domain="edge",outcome="denied",rule="b",values="`+strings.Repeat("x", maxValues)+`"} 1
detail_decisions_total{domain="edge",outcome="shadow_denied",rule="a",values="route_x"} 1`, detail)
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m := New(prometheus.NewRegistry(), Options{MaxDetailSeries: 1})
	meter := m.Meter("edge", "per-key")
	for what, values := range map[string][]byte{"known": []byte("route_x"), "too many": []byte("route_y"), "too long": make([]byte, 1<<20)} {
		count := func() {
			meter.Count(decide.OutcomeAllowed)
			meter.Detail(values, decide.OutcomeAllowed)
		}
		meter.Detail([]byte("route_x"), decide.OutcomeAllowed)
		count() // begins the series
		if n := testing.AllocsPerRun(100, count); n != 0 {
			t.Errorf("values that are %s: %v allocations, want none", what, n)
		}
	}
}

// TestSeriesThatBeganMeanwhile begins a series twice, as two concurrent requests do.
func TestSeriesThatBeganMeanwhile(t *testing.T) {
	m := New(prometheus.NewRegistry(), Options{MaxDetailSeries: 2})
	meter := m.Meter("edge", "per-key").(*meter)
	first, second := meter.beginDetail("a", decide.OutcomeAllowed), meter.beginDetail("a", decide.OutcomeAllowed)
	if first == nil || first != second {
		t.Errorf("the same values have the series %p and %p", first, second)
	}
	if free := m.rules.free.Load(); free != 1 {
		t.Errorf("%d series are free after one of two has begun", free)
	}
	if meter.beginDetail("b", decide.OutcomeAllowed) == nil || meter.beginDetail("c", decide.OutcomeAllowed) != nil {
		t.Error("not as many series begin as there may be")
	}
}

// TestConcurrentCounting proves that no count is lost while series begin, and while series of
// other rules end.
func TestConcurrentCounting(t *testing.T) {
	const workers, rounds, values = 8, 300, 40
	registry := prometheus.NewRegistry()
	m := New(registry, Options{MaxDetailSeries: values / 2})
	stays, goes := m.Meter("edge", "stays"), m.Meter("edge", "goes")
	m.Loaded()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range rounds {
				stays.Count(decide.OutcomeAllowed)
				stays.Detail(fmt.Appendf(nil, "v%d", i%values), decide.OutcomeDenied)
				goes.Count(decide.Outcome(i % len(decide.Outcomes)))
				goes.Detail(fmt.Appendf(nil, "v%d", i%values), decide.OutcomeDenied)
			}
		})
	}
	wg.Go(func() {
		m.Meter("edge", "stays")
		m.Loaded()
		m.Meter("edge", "stays")
	})
	wg.Wait()
	if got := testutil.ToFloat64(m.rules.decisions.WithLabelValues("edge", "stays", "allowed")); got != workers*rounds {
		t.Errorf("%v counted, want %d", got, workers*rounds)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, own := 0.0, 0
	for _, f := range families {
		for _, series := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case labels["rule"] == "goes":
				t.Errorf("%s: %v: the rule is gone", f.GetName(), labels)
			case f.GetName() == detail:
				sum += series.GetCounter().GetValue()
				if labels["values"] != other {
					own++
				}
			}
		}
	}
	if sum != workers*rounds || own > values/2 {
		t.Errorf("%v details counted in %d series, want %d in at most %d", sum, own, workers*rounds, values/2)
	}
	if free := m.rules.free.Load(); free != int64(values/2-own) {
		t.Errorf("%d series are free, want %d: ended series make room", free, values/2-own)
	}
}

func TestConfigState(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	m.Loaded()
	m.Refused()
	if got := testutil.ToFloat64(m.configBroken); got != 1 {
		t.Errorf("broken after a refusal = %v, want 1", got)
	}
	m.Loaded()
	if broken := testutil.ToFloat64(m.configBroken); broken != 0 {
		t.Errorf("broken = %v, want 0", broken)
	}
}

func TestMemory(t *testing.T) {
	registry := prometheus.NewRegistry()
	Memory(registry, func() memstore.Stats { return memstore.Stats{Logs: 1, Bytes: 2, Evicted: 3, Refused: 4} })
	want := `
# HELP slidegate_store_memory_bytes Memory of these counters, as store.memory.max_bytes counts it.
# TYPE slidegate_store_memory_bytes gauge
slidegate_store_memory_bytes 2
# HELP slidegate_store_memory_evicted_total Counters in use that the memory store dropped to make room. The store is too small, or a client invents keys.
# TYPE slidegate_store_memory_evicted_total counter
slidegate_store_memory_evicted_total 3
# HELP slidegate_store_memory_keys Counters in the memory store, one for each key and window.
# TYPE slidegate_store_memory_keys gauge
slidegate_store_memory_keys 1
# HELP slidegate_store_memory_refused_total Store calls refused because the memory store, or the part that one rule may fill, was full of counters that deny.
# TYPE slidegate_store_memory_refused_total counter
slidegate_store_memory_refused_total 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestStore(t *testing.T) {
	registry := prometheus.NewRegistry()
	Store(registry, func() redisstore.Stats {
		return redisstore.Stats{
			Sent: 120, Batches: 9, BatchSizes: [7]uint64{1, 2, 0, 3, 0, 2, 1}, NotTakenBack: 12, Instances: 3,
			Failures: map[failure.Class]uint64{"timeout": 6, "oom": 7},
			Refused:  map[window.Priority]uint64{window.PriorityLow: 8, window.PriorityHigh: 9},
			Nodes: []redisstore.NodeStats{
				{Address: "10.0.0.1:6379", Refuses: true, Policy: "allkeys-lru", Queued: 8, InFlight: 2},
				{Address: "10.0.0.2:6379", Open: true},
			},
		}
	})
	want := `
# HELP slidegate_store_batch_calls Number of store calls sent to Redis in one command. Near 64, Redis or the network is the bottleneck.
# TYPE slidegate_store_batch_calls histogram
slidegate_store_batch_calls_bucket{le="1"} 1
slidegate_store_batch_calls_bucket{le="2"} 3
slidegate_store_batch_calls_bucket{le="4"} 3
slidegate_store_batch_calls_bucket{le="8"} 6
slidegate_store_batch_calls_bucket{le="16"} 6
slidegate_store_batch_calls_bucket{le="32"} 8
slidegate_store_batch_calls_bucket{le="64"} 9
slidegate_store_batch_calls_bucket{le="+Inf"} 9
slidegate_store_batch_calls_sum 120
slidegate_store_batch_calls_count 9
# HELP slidegate_store_errors_total Requests that Redis did not decide, by class of the failure.
# TYPE slidegate_store_errors_total counter
slidegate_store_errors_total{class="oom"} 7
slidegate_store_errors_total{class="timeout"} 6
# HELP slidegate_store_node_evicts 1 while the server's maxmemory-policy is not noeviction: when its memory is full, it deletes counters, and their limits start from zero.
# TYPE slidegate_store_node_evicts gauge
slidegate_store_node_evicts{node="10.0.0.1:6379"} 1
# HELP slidegate_store_node_open 1 while a server is not asked because it failed five times in a row. rls probes it every 100 ms.
# TYPE slidegate_store_node_open gauge
slidegate_store_node_open{node="10.0.0.1:6379"} 0
slidegate_store_node_open{node="10.0.0.2:6379"} 1
# HELP slidegate_store_node_queued Store calls that wait to be sent to the server.
# TYPE slidegate_store_node_queued gauge
slidegate_store_node_queued{node="10.0.0.1:6379"} 8
slidegate_store_node_queued{node="10.0.0.2:6379"} 0
# HELP slidegate_store_node_refuses 1 while a server refuses to write (oom, noreplicas, misconf): it decides denials only.
# TYPE slidegate_store_node_refuses gauge
slidegate_store_node_refuses{node="10.0.0.1:6379"} 1
slidegate_store_node_refuses{node="10.0.0.2:6379"} 0
# HELP slidegate_store_not_taken_back_total Hits of denied requests that could not be rolled back. They use quota until they expire.
# TYPE slidegate_store_not_taken_back_total counter
slidegate_store_not_taken_back_total 12
# HELP slidegate_store_refused_total Store calls not sent because too many waited, by the priority of their rules. on_store_error decides them.
# TYPE slidegate_store_refused_total counter
slidegate_store_refused_total{priority="high"} 9
slidegate_store_refused_total{priority="low"} 8
# HELP slidegate_store_replicas Instances that share the store, as they count themselves in Redis. While Redis is unavailable, local divides each limit by this number.
# TYPE slidegate_store_replicas gauge
slidegate_store_replicas 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestLocal(t *testing.T) {
	registry := prometheus.NewRegistry()
	Local(registry, func() uint64 { return 7 })
	want := `
# HELP slidegate_local_denials_total Requests denied by a cached denial, without asking Redis.
# TYPE slidegate_local_denials_total counter
slidegate_local_denials_total 7
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestTiers(t *testing.T) {
	registry := prometheus.NewRegistry()
	stats := cache.Stats{
		Hits: 1, NegativeHits: 2, Asked: 3, Stale: 4, Unavailable: 5,
		Found: 6, Unknown: 7, BadRecords: 8, Timeouts: 9, Errors: 10, Limited: 11, Refused: 12,
		Pushes: 13, Open: true, Watching: true,
	}
	Tiers(registry, func() cache.Stats { return stats }, func() uint64 { return 19 })(0.02)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "slidegate_tiers_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			// A metric has only one of these kinds, so the others are zero.
			got = append(got, fmt.Sprint(name, " ", m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount())))
		}
	}
	want := []string{
		"answers_total asked 3", "answers_total hit 1", "answers_total hit_unknown 2", "answers_total stale 4", "answers_total unavailable 5",
		"lookups_total bad_record 8", "lookups_total error 10", "lookups_total found 6", "lookups_total limited 11",
		"lookups_total refused 12", "lookups_total timeout 9", "lookups_total unknown 7",
		"previous_secret_total 19", "pushes_total 13", "source_open 1", "source_seconds 1", "watching 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// TestRPCsAreApart proves that each method and code has its own histogram.
func TestRPCsAreApart(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	var wg sync.WaitGroup
	names := []string{"a", "b", "c", "d"}
	const rounds = 50
	for i := range names {
		wg.Go(func() {
			for range rounds {
				for j := range names {
					m.RPC("/s/"+names[(i+j)%len(names)], names[i]).Observe(1)
				}
			}
		})
	}
	wg.Wait()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if f.GetName() != "slidegate_rpc_seconds" {
			continue
		}
		for _, series := range f.GetMetric() {
			seen++
			if n := series.GetHistogram().GetSampleCount(); n != rounds {
				t.Errorf("%v: %d calls, want %d", series.GetLabel(), n, rounds)
			}
		}
	}
	if want := len(names) * len(names); seen != want {
		t.Errorf("%d series, want %d", seen, want)
	}
	if n := testing.AllocsPerRun(100, func() { m.RPC("/s/a", "a").Observe(1) }); n != 0 {
		t.Errorf("observing a call allocates %v times", n)
	}
}

// TestDenialsByPolicy has a rule whose tiers have limits of several policies. A denial counts for
// the limit that denied longest, and the number of series does not depend on who asks.
func TestDenialsByPolicy(t *testing.T) {
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	subjects := map[string]string{"acme": "pro"}
	for i := range 100 {
		subjects[fmt.Sprint("free-", i)] = "free"
	}
	dir, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	for id, tierOf := range subjects {
		if err := dir.Add(tier.Subject{ID: id, Tier: tierOf}, secrets.Digest(id)); err != nil {
			t.Fatal(err)
		}
	}
	year, err := calendar.New(calendar.Spec{Unit: "year"})
	if err != nil {
		t.Fatal(err)
	}
	limit := func(p window.Policy, hits uint64, win time.Duration) rules.Limit {
		return rules.Limit{Limit: window.Limit{Policy: p, Hits: hits, Window: win}}
	}
	bucket, annual := limit(window.TokenBucket, 3, time.Minute), limit(window.Calendar, 5, year.Unit().Nominal())
	bucket.Rate, annual.Calendar = 1, year
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	if err := rs.Add(rules.Rule{
		Domain: "edge", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, Name: "mixed",
		ByTier: map[string]rules.Terms{
			"free": {Limits: []rules.Limit{bucket, annual, limit(window.SlidingCounter, 7, time.Hour)}},
			"pro":  {Limits: []rules.Limit{limit(window.Fixed, 4, 24*time.Hour), limit(window.Sliding, 2, time.Hour)}},
		},
	}); err != nil {
		t.Fatal(err)
	}

	now := time.Duration(time.Date(2030, 3, 4, 5, 0, 0, 0, time.UTC).UnixNano())
	clock := func() time.Duration { return now }
	store := memstore.New(memstore.Options{Clock: clock, SweepInterval: -1})
	t.Cleanup(func() { store.Close() })
	registry := prometheus.NewRegistry()
	decider := decide.NewDecider(rs, decide.Options{Store: store, Meters: New(registry, Options{}), Clock: clock})
	ask := func(key string, cost uint64, allowed bool) {
		t.Helper()
		req := decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{
			Entries: descriptors.Descriptor{{Key: "api_key", Value: secrets.Value("api_key", key)}}, Cost: cost,
		}}}
		var c decide.Call
		decider.Begin(&c, req)
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil || c.Verdict().Allowed != allowed {
			t.Fatalf("%s, cost %d: got %+v, error %v, want allowed %t", key, cost, c.Verdict(), err, allowed)
		}
	}
	for key, tierOf := range subjects {
		if tierOf != "free" {
			continue
		}
		ask(key, 3, true)
		ask(key, 3, false) // the bucket waits 3 minutes, the year until it ends
		ask(key, 1, false) // the bucket
	}
	ask("acme", 2, true)
	ask("acme", 1, false) // the hour
	now += time.Hour
	ask("acme", 2, true)
	ask("acme", 1, false) // the hour, and the day until midnight
	now += time.Hour
	ask("acme", 1, false) // the day
	expect(t, registry, `
limit_denials_total{domain="edge",rule="mixed",tier="free",window="bucket-1m"} 100
limit_denials_total{domain="edge",rule="mixed",tier="free",window="year"} 100
limit_denials_total{domain="edge",rule="mixed",tier="pro",window="1h"} 1
limit_denials_total{domain="edge",rule="mixed",tier="pro",window="fixed-1d"} 2`, denialsName)
}

// TestDenialWindows counts a denial by each policy with the same window: each has series of its
// own, which end with the rule.
func TestDenialWindows(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	meter := m.Meter("edge", "r")
	m.Loaded()
	month := calendar.Month.Nominal()
	for p := window.Sliding; p <= window.InFlight; p++ {
		meter.Denied("free", p, month)
		meter.Denied("free", p, month)
	}
	expect(t, registry, `
limit_denials_total{domain="edge",rule="r",tier="free",window="30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="bucket-30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="counter-30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="fixed-30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="in_flight"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="month"} 2`, denialsName)
	m.Loaded()
	if n, err := testutil.GatherAndCount(registry, denialsName); err != nil || n != 0 {
		t.Errorf("the rule is gone: got %d series and %v, want none", n, err)
	}
}
