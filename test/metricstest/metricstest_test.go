package metricstest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/tier/cache"
	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/migrate/compare"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// all registers every metric and gives each a series.
func all(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	m := metrics.New(registry, metrics.Options{Version: "v0"})
	metrics.Memory(registry, func() memstore.Stats { return memstore.Stats{} })
	metrics.Store(registry, func() redisstore.Stats {
		return redisstore.Stats{Failures: map[failure.Class]uint64{"timeout": 1}, Refused: map[window.Priority]uint64{window.PriorityLow: 1}, Nodes: []redisstore.NodeStats{{Address: "h:1", ClockKnown: true, Policy: "noeviction"}}}
	})
	metrics.Local(registry, func() uint64 { return 0 })
	metrics.Tiers(registry, func() cache.Stats { return cache.Stats{} }, func() uint64 { return 0 })
	metrics.NewTransport(registry)
	metrics.XDS(registry, func() bool { return true })
	comparisons := m.Comparisons(registry)
	comparisons.Compared("", "", compare.OK, compare.OverLimit, compare.Other)
	metrics.Authorization(registry).WithLabelValues("limited").Inc()
	m.Meter("edge", "per-key").Count(decide.OutcomeDenied)
	m.Meter("edge", "per-key").Count(decide.OutcomeShadowDenied)
	m.Meter("edge", "per-key").Detail([]byte("api_key"), decide.OutcomeDenied)
	m.Meter("edge", "per-key").Near(1)
	m.Threshold("edge", "per-key", 80)
	m.Meter("edge", "per-key").Budget(inflight.BudgetSettled, 1, 1)
	metrics.Webhook(registry)
	m.Meter("edge", "per-key").Denied("free", window.Sliding, time.Minute)
	registry.MustRegister(metrics.SpansLost())
	m.RPC("/s/M", "OK").Observe(0.001)
	return registry
}

func TestNamesAndHelp(t *testing.T) {
	problems, err := testutil.GatherAndLint(all(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// families returns what a scrape shows.
func families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	all, err := all(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDescriptions compares the descriptions with what a scrape shows.
func TestDescriptions(t *testing.T) {
	want, got := make(map[string]string), make(map[string]string)
	for _, f := range families(t) {
		if !strings.HasPrefix(f.GetName(), "slidegate_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		want[f.GetName()] = strings.Join(labels, ",") + ": " + f.GetHelp()
	}
	for _, d := range Descriptions() {
		slices.Sort(d.Labels)
		got[d.Name] = strings.Join(d.Labels, ",") + ": " + d.Help
		if !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: the help is no sentence: %s", d.Name, d.Help)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("descriptions (-scraped +described):\n%s", diff)
	}
}

// TestLabelValues compares the explained values with those that the code has.
func TestLabelValues(t *testing.T) {
	outcomes := slices.DeleteFunc(slices.Clone(decide.Outcomes[:]), func(o string) bool { return strings.HasPrefix(o, "shadow_") })
	var results []string
	for _, r := range extauthz.Results() {
		results = append(results, r.String())
	}
	want := map[string][]string{
		"slidegate_decisions_total":       outcomes,
		"slidegate_budget_requests_total": slices.Clone(inflight.BudgetOutcomes[:]),
		"slidegate_authorizations_total":  results,
		"slidegate_grpc_goaways_total":    slices.Clone(unary.Reasons),
	}
	for _, f := range families(t) {
		if name := f.GetName(); name == "slidegate_tiers_answers_total" || name == "slidegate_tiers_lookups_total" {
			for _, m := range f.GetMetric() {
				want[name] = append(want[name], m.GetLabel()[0].GetValue())
			}
		}
	}
	got := make(map[string][]string)
	for _, d := range Descriptions() {
		for _, v := range d.Values {
			value, _, _ := strings.Cut(v, ": ")
			got[d.Name] = append(got[d.Name], value)
		}
	}
	for _, all := range []map[string][]string{want, got} {
		for values := range maps.Values(all) {
			slices.Sort(values)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-code +explained):\n%s", diff)
	}
}
