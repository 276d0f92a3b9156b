package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/internal/edge/unary"
)

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
		"slidegate_decisions_total":      outcomes,
		"slidegate_authorizations_total": results,
		"slidegate_grpc_goaways_total":   slices.Clone(unary.Reasons),
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
