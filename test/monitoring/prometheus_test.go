package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/tree"
)

// patience is how long a condition may take to become true. It decides how long a broken test takes
// to fail, never how long a good one takes.
const patience = 60 * time.Second

// A prometheus is a Prometheus that scrapes and evaluates every second.
type prometheus struct {
	t   *testing.T
	url string
}

var (
	durations = regexp.MustCompile(`(?m)for: [1-9]\d*m$`)
	windows   = regexp.MustCompile(`\[\d+[mh]\]`)
)

// shortened returns the alerts with short windows and durations. The threshold of SlidegateSlow becomes
// one that a busy machine does not reach: one call in a hundred in the last bucket of the histogram,
// above a second. Below that, the quantile is a guess between 0.1 and 1.
func shortened(t *testing.T) string {
	t.Helper()
	text := tree.Text(t, alertsFile)
	text = durations.ReplaceAllString(text, "for: 1s")
	text = windows.ReplaceAllString(text, "[6s]")
	slow := strings.Replace(text, "> 0.015", "> 0.99", 1)
	if slow == text {
		t.Fatalf("%s has no threshold of 0.015", alertsFile)
	}
	return slow
}

// startPrometheus starts one for the time of the test. targets are job names and addresses.
func startPrometheus(t *testing.T, slidegate []string, envoy string) *prometheus {
	t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		process.Missing(t, "prometheus", "make test-servers installs it")
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: slidegate
  static_configs: [{targets: [%s]}]
- job_name: envoy
  metrics_path: /stats/prometheus
  static_configs: [{targets: [%s]}]
`, strings.Join(slidegate, ", "), envoy)
	for file, text := range map[string]string{"prometheus.yml": config, "rules.yaml": shortened(t)} {
		tree.Write(t, filepath.Join(dir, file), text)
	}
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yml"))
	p := &prometheus{t: t}
	err := process.Launch(func(port int) error {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "prometheus",
			"--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
			"--web.listen-address="+process.Address(port), "--log.level=warn")
		server, err := process.Start("prometheus", cmd)
		if err != nil {
			return err
		}
		p.url = "http://" + process.Address(port)
		err = server.Until(func() error {
			_, err := p.get("/-/ready", nil)
			return err
		})
		if err != nil {
			server.Kill()
			return err
		}
		t.Cleanup(server.Kill)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *prometheus) get(path string, query url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, err
}

// api calls Prometheus's API.
func (p *prometheus) api(path string, query url.Values, into any) error {
	body, err := p.get("/api/v1/"+path, query)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, &struct{ Data any }{into})
}

// A sample is a series of an answer with its value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query returns the present values of an expression.
func (p *prometheus) query(expr string) ([]sample, error) {
	var out struct{ Result []sample }
	err := p.api("query", url.Values{"query": {expr}}, &out)
	return out.Result, err
}

// firing returns the names of the alerts that fire now.
func (p *prometheus) firing() (map[string]bool, error) {
	var out struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := p.api("alerts", nil, &out); err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for _, a := range out.Alerts {
		if a.State == "firing" {
			names[a.Labels["alertname"]] = true
		}
	}
	return names, nil
}

// wait waits until the alerts fire, or until they do not.
func (p *prometheus) wait(fires bool, names ...string) {
	p.t.Helper()
	eventually(p.t, func() error {
		now, err := p.firing()
		if err != nil {
			return err
		}
		for _, name := range names {
			if now[name] != fires {
				return fmt.Errorf("%s fires: %v, want %v; firing now: %v", name, now[name], fires, now)
			}
		}
		return nil
	})
}

// eventually calls f until it returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}
