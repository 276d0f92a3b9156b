package main

import (
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/test/metricstest"
)

// metricGroups are the sections of the page. A metric is in the first one with a prefix of its name.
var metricGroups = []struct {
	title, note string
	prefixes    []string
}{
	{"Decisions", "", []string{"slidegate_decisions", "slidegate_shadow", "slidegate_detail", "slidegate_near", "slidegate_limit", "slidegate_unknown", "slidegate_cut", "slidegate_ignored", "slidegate_stream", "slidegate_in_flight", "slidegate_authorizations", "slidegate_resets", "slidegate_compare", "slidegate_budget", "slidegate_webhook"}},
	{"The memory store", "With `store.type: memory`.", []string{"slidegate_store_memory"}},
	{"Redis", "With `store.type: redis`. If `store.scopes` is set, each metric here also has the label `scope`. [operate.md](../operate.md#failures) explains the classes.", []string{"slidegate_store_batch", "slidegate_store_errors", "slidegate_store_refused", "slidegate_store_foreign", "slidegate_store_not", "slidegate_store_node", "slidegate_store_replicas", "slidegate_local"}},
	{"The store", "", []string{"slidegate_store_", "slidegate_degraded"}},
	{"The customer source", "With `tiers.source` `postgres`, `redis` or `http`.", []string{"slidegate_tiers"}},
	{"Connections", "With `grpc.transport: unary`, the default.", []string{"slidegate_grpc"}},
	{"The process", "`go_*` and `process_*` are there too.", []string{"slidegate_"}},
}

// metricsText returns the page of the metrics, from the Help of each.
func metricsText() (string, error) {
	var b strings.Builder
	groups := make(map[string][]metricstest.Description)
	for _, d := range metricstest.Descriptions() {
		title := groupOf(d.Name)
		groups[title] = append(groups[title], d)
	}
	for _, g := range metricGroups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.note != "" {
			b.WriteString(wrap(g.note) + "\n")
		}
		for _, d := range groups[g.title] {
			labels := ""
			if len(d.Labels) > 0 {
				labels = " (" + strings.Join(d.Labels, ", ") + ")"
			}
			b.WriteString(item("`" + d.Name + "`" + labels + ": " + d.Help))
			for _, line := range values(d.Values) {
				b.WriteString("  " + strings.ReplaceAll(item(line), "\n  ", "\n    "))
			}
		}
		if g.title == "Decisions" {
			b.WriteString("\nThis query names the limits that deny most:\n\n```promql\ntopk(5, sum by (rule, tier, window) (rate(slidegate_limit_denials_total[5m])))\n```\n")
		}
	}
	return fill(written("metrics"), map[string]string{"METRICS": b.String()})
}

func groupOf(metric string) string {
	for _, g := range metricGroups {
		for _, prefix := range g.prefixes {
			if strings.HasPrefix(metric, prefix) {
				return g.title
			}
		}
	}
	return ""
}

// values returns a line for the values of a label that need no explanation, and one for each other.
func values(all []string) (lines []string) {
	var named []string
	for _, v := range all {
		if value, meaning, ok := strings.Cut(v, ": "); ok {
			lines = append(lines, "`"+value+"`: "+meaning)
		} else {
			named = append(named, "`"+value+"`")
		}
	}
	if len(named) > 0 {
		lines = append([]string{strings.Join(named, ", ")}, lines...)
	}
	return lines
}
