package monitoring

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	alertsFile = "../../deploy/prometheus/rules.yaml"
	// alertsTests are tests of them for promtool.
	alertsTests = "testdata/alerts.yaml"
	operator    = "../../deploy/kubernetes/shared/components/monitoring/prometheusrule.yaml"
	chart       = "../../deploy/helm/slidegate/files/alerts.yaml"
)

// An alert is one of rules.yaml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readAlerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(tree.Text(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("%s: got %d groups, want one with alerts", alertsFile, len(file.Groups))
	}
	return file.Groups[0].Rules
}

// TestCopies compares the alerts for the Prometheus operator and those of the chart with
// deploy/prometheus/rules.yaml. All link to the page of the chart's version. With -update it writes
// them and the links.
func TestCopies(t *testing.T) {
	for _, path := range []string{alertsFile, alertsTests} {
		original := tree.Text(t, path)
		pages := strings.TrimSuffix(page, "operate.md")
		linked := regexp.MustCompile(`https://github.com/slidegate/slidegate/blob/[^/]+/docs/`).ReplaceAllString(original, pages)
		if *configtest.Update {
			tree.Write(t, path, linked)
		} else if linked != original {
			t.Errorf("%s does not link to %s; run: go test ./test/monitoring -run TestCopies -update", path, pages)
		}
	}
	_, groups, ok := strings.Cut(tree.Text(t, alertsFile), "\ngroups:\n")
	head, _, ok2 := strings.Cut(tree.Text(t, operator), "\nspec:\n")
	if !ok || !ok2 {
		t.Fatalf("%s has no groups, or %s has no spec", alertsFile, operator)
	}
	groups = "groups:\n" + groups
	var spec strings.Builder
	for line := range strings.Lines(groups) {
		spec.WriteString("  " + line)
	}
	for path, want := range map[string]string{chart: groups, operator: head + "\nspec:\n" + spec.String()} {
		if *configtest.Update {
			tree.Write(t, path, want)
		}
		if diff := cmp.Diff(want, tree.Text(t, path)); diff != "" {
			t.Errorf("%s differs from %s (-); run: go test ./test/monitoring -run TestCopies -update\n%s", path, alertsFile, diff)
		}
	}
}

// TestAlerts checks that each alert says what it means, what to look at and what to do, and links to
// its section of docs/reference/alerts.md.
func TestAlerts(t *testing.T) {
	page := tree.Text(t, "../../docs/reference/alerts.md")
	for _, a := range readAlerts(t) {
		if a.Annotations["runbook_url"] != runbook+"#"+strings.ToLower(a.Alert) {
			t.Errorf("%s: runbook_url is %q", a.Alert, a.Annotations["runbook_url"])
		}
		if !strings.Contains(page, "\n## "+a.Alert+"\n") {
			t.Errorf("docs/reference/alerts.md has no section %s", a.Alert)
		}
		for _, name := range []string{"summary", "description", "look_at", "do"} {
			if text := a.Annotations[name]; !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "?") {
				t.Errorf("%s: the annotation %s is no sentence: %q", a.Alert, name, text)
			}
		}
	}
}

// promtool runs promtool, which must succeed.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		process.Missing(t, "promtool", "make test-servers installs Debian's prometheus")
	}
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestPromtool checks the alerts, and each with series in which it fires and ends:
// testdata/alerts.yaml. It also checks the example of a configuration of Prometheus.
func TestPromtool(t *testing.T) {
	promtool(t, "check", "config", "../../deploy/prometheus/prometheus.yaml")
	promtool(t, "check", "rules", alertsFile)
	promtool(t, "test", "rules", alertsTests)
	var file struct {
		Tests []struct {
			Cases []struct {
				Alertname string
				Fires     []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(tree.Text(t, "testdata/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, ends := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Fires) > 0 {
				fires[c.Alertname] = true
			} else if fires[c.Alertname] {
				ends[c.Alertname] = true
			}
		}
	}
	for _, a := range readAlerts(t) {
		if !fires[a.Alert] || !ends[a.Alert] {
			t.Errorf("testdata/alerts.yaml: %s fires %v, and ends after that %v; want both", a.Alert, fires[a.Alert], ends[a.Alert])
		}
	}
}
