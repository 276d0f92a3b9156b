package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// all registers every metric and gives each a series.
func all(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	m := New(registry, "v0")
	Memory(registry, func() memstore.Stats { return memstore.Stats{} })
	m.Meter("edge", "per-key").Count(policy.OutcomeDenied)
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

func TestDecisions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, "v0")
	first := m.Meter("edge", "per-key")
	if m.Meter("edge", "per-key") != first {
		t.Error("the same rule of two generations has two meters")
	}
	first.Count(policy.OutcomeDenied)
	first.Count(policy.OutcomeDenied)
	m.Meter("edge", "").Count(policy.OutcomeNoRule)
	m.UnknownDomain()
	want := `
# HELP slidegate_decisions_total Descriptors decided, by domain, rule and outcome. Rule is empty for descriptors that no rule limits.
# TYPE slidegate_decisions_total counter
slidegate_decisions_total{domain="edge",outcome="allowed",rule=""} 0
slidegate_decisions_total{domain="edge",outcome="allowed",rule="per-key"} 0
slidegate_decisions_total{domain="edge",outcome="denied",rule=""} 0
slidegate_decisions_total{domain="edge",outcome="denied",rule="per-key"} 2
slidegate_decisions_total{domain="edge",outcome="error",rule=""} 0
slidegate_decisions_total{domain="edge",outcome="error",rule="per-key"} 0
slidegate_decisions_total{domain="edge",outcome="no_rule",rule=""} 1
slidegate_decisions_total{domain="edge",outcome="no_rule",rule="per-key"} 0
slidegate_decisions_total{domain="edge",outcome="not_charged",rule=""} 0
slidegate_decisions_total{domain="edge",outcome="not_charged",rule="per-key"} 0
# HELP slidegate_unknown_domain_requests_total Requests for a domain that has no rules; they are allowed.
# TYPE slidegate_unknown_domain_requests_total counter
slidegate_unknown_domain_requests_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "slidegate_decisions_total", "slidegate_unknown_domain_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestConfigState(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, "v0")
	m.Loaded(1000)
	m.Refused()
	if got := testutil.ToFloat64(m.configBroken); got != 1 {
		t.Errorf("broken after a refusal = %v, want 1", got)
	}
	m.Loaded(2000)
	if broken, at := testutil.ToFloat64(m.configBroken), testutil.ToFloat64(m.configLoaded); broken != 0 || at != 2000 {
		t.Errorf("broken = %v, loaded at %v, want 0 and 2000", broken, at)
	}
}

func TestMemory(t *testing.T) {
	registry := prometheus.NewRegistry()
	Memory(registry, func() memstore.Stats { return memstore.Stats{Logs: 1, Bytes: 2, Evicted: 3, Refused: 4} })
	want := `
# HELP slidegate_store_memory_bytes Memory taken by the logs of the memory store.
# TYPE slidegate_store_memory_bytes gauge
slidegate_store_memory_bytes 2
# HELP slidegate_store_memory_evicted_total Logs dropped to make room although something in them still counted.
# TYPE slidegate_store_memory_evicted_total counter
slidegate_store_memory_evicted_total 3
# HELP slidegate_store_memory_keys Logs held by the memory store, one for each key and window.
# TYPE slidegate_store_memory_keys gauge
slidegate_store_memory_keys 1
# HELP slidegate_store_memory_refused_total Store calls refused because the memory store was full of logs that all limited somebody.
# TYPE slidegate_store_memory_refused_total counter
slidegate_store_memory_refused_total 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestDocumented compares the metrics with the table in docs/operate.md.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(slidegate_[a-z_]+)").FindAllSubmatch(page, -1) {
		documented = append(documented, string(m[1]))
	}
	slices.Sort(documented)
	families, err := all(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "slidegate_") {
			exported = append(exported, f.GetName())
		}
	}
	slices.Sort(exported)
	if !slices.Equal(documented, exported) {
		t.Errorf("docs/operate.md has %v\nthe code has        %v", documented, exported)
	}
}
