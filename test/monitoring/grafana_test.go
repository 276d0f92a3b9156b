package monitoring

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/metricstest"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	grafana = "../../deploy/grafana/"
	// columns is the width of Grafana's grid.
	columns = 24
)

// page is docs/operate.md of the version that the manifests run, and runbook the page of the alerts.
var (
	page    = docs.URL(chartVersion(), "operate.md")
	runbook = docs.URL(chartVersion(), "reference/alerts.md")
)

// chartVersion returns the version in Chart.yaml, which is that of the service too. Without one, the
// pages would be those of main, and tests fail.
func chartVersion() string {
	text, _ := os.ReadFile("../../deploy/helm/slidegate/Chart.yaml")
	_, version, _ := strings.Cut(string(text), "\nappVersion: ")
	version, _, _ = strings.Cut(version, "\n")
	return version
}

// A board is the description of a dashboard.
type board struct {
	file, title, about string
	// variables stand after the data source.
	variables []variable
	rows      []row
}

// A variable is a list at the top of a dashboard. query is label_values(metric, label).
type variable struct {
	name, label, query, about string
	// isSingle: one value is chosen, not all.
	isSingle bool
}

// A row is a title and its panels. All have one height.
type row struct {
	title  string
	height int
	panels []panel
}

// A panel shows queries. width counts columns of the grid; zero: 8.
type panel struct {
	title, about, unit string
	kind               string // timeseries if empty
	width              int
	queries            []query
	// warn and bad are the values from which the panel turns orange and red. Zero: it does not.
	warn, bad float64
	// stacked: the series add up.
	stacked bool
	// words name values of a stat.
	words map[string]string
}

// A query is PromQL. @ stands for the labels that the variables choose, [r] for the interval.
type query struct{ expr, legend string }

// orNone returns a query that yields one zero while the series of expr do not exist. Without it, a
// panel of faults would say "no data" on a good day.
func orNone(expr, label string) string {
	if label == "" {
		return expr + " or on () vector(0)"
	}
	return expr + ` or on () label_replace(vector(0), "` + label + `", "none", "", "")`
}

type object = map[string]any

// json returns the dashboard as Grafana reads it.
func (b board) json() ([]byte, error) {
	var panels []object
	y, id := 0, 0
	for _, r := range b.rows {
		id++
		panels = append(panels, object{
			"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []any{},
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1},
		})
		y++
		x := 0
		for _, p := range r.panels {
			if p.width == 0 {
				p.width = 8
			}
			if x+p.width > columns {
				x, y = 0, y+r.height
			}
			id++
			o := p.object(id)
			o["gridPos"] = object{"x": x, "y": y, "w": p.width, "h": r.height}
			panels = append(panels, o)
			x += p.width
		}
		y += r.height
	}
	list := []object{{
		"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0,
		"regex": "", "refresh": 1, "multi": false, "includeAll": false, "options": []any{}, "current": object{},
	}}
	for _, v := range b.variables {
		list = append(list, v.object())
	}
	d := object{
		"uid": "slidegate-" + strings.TrimSuffix(b.file, ".json"), "title": b.title, "description": b.about,
		"tags": []string{"slidegate"}, "schemaVersion": 38, "version": 1, "editable": true, "graphTooltip": 1,
		"refresh": "30s", "timezone": "", "time": object{"from": "now-1h", "to": "now"}, "timepicker": object{},
		"fiscalYearStartMonth": 0, "liveNow": false, "style": "dark", "weekStart": "",
		"templating": object{"list": list}, "panels": panels,
		"annotations": object{"list": []object{{
			"name": "Rules loaded", "enable": true, "hide": false, "iconColor": "blue", "datasource": source(),
			"expr": "changes(slidegate_config_reloads_total{result=\"loaded\"}[1m]) > 0", "titleFormat": "rules loaded", "textFormat": "{{instance}}", "step": "60s",
		}}},
		"links": []object{
			{"title": "Slidegate", "type": "dashboards", "tags": []string{"slidegate"}, "asDropdown": true, "keepTime": true, "includeVars": true, "targetBlank": false, "icon": "external link", "tooltip": "", "url": ""},
			{"title": "What to do", "type": "link", "url": page, "targetBlank": true, "icon": "doc", "tooltip": "docs/operate.md", "tags": []string{}, "asDropdown": false, "keepTime": false, "includeVars": false},
		},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(d)
	return out.Bytes(), err
}

func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

func (v variable) object() object {
	query := strings.ReplaceAll(v.query, "@job", `job=~"$job"`)
	o := object{
		"name": v.name, "label": v.label, "description": v.about, "type": "query", "datasource": source(), "hide": 0,
		"query": object{"query": query, "refId": "variable"}, "definition": query, "refresh": 2, "regex": "", "sort": 1,
		"multi": !v.isSingle, "includeAll": !v.isSingle, "options": []any{}, "skipUrlSync": false, "current": object{},
	}
	if !v.isSingle {
		o["current"] = object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
		// Also series without the label.
		o["allValue"] = ".*"
	}
	return o
}

func (p panel) object(id int) object {
	kind := p.kind
	if kind == "" {
		kind = "timeseries"
	}
	var targets []object
	for i, q := range p.queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source(), "expr": fill(q.expr), "legendFormat": q.legend, "editorMode": "code", "range": true, "instant": false}
		if kind == "table" || kind == "stat" {
			t["range"], t["instant"] = kind == "stat", kind == "table"
		}
		if kind == "table" {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	steps := []object{{"color": "green", "value": nil}}
	if p.warn != 0 {
		steps = append(steps, object{"color": "orange", "value": p.warn})
	}
	if p.bad != 0 {
		steps = append(steps, object{"color": "red", "value": p.bad})
	}
	defaults := object{"unit": p.unit, "min": 0, "thresholds": object{"mode": "absolute", "steps": steps}, "mappings": []any{}, "color": object{"mode": "palette-classic"}}
	if strings.Contains(p.title, "offset") {
		delete(defaults, "min")
	}
	o := object{
		"id": id, "type": kind, "title": p.title, "description": p.about, "datasource": source(), "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}},
	}
	switch kind {
	case "stat":
		defaults["color"] = object{"mode": "thresholds"}
		if p.words != nil {
			options := object{}
			for value, word := range p.words {
				options[value] = object{"text": word}
			}
			defaults["mappings"] = []object{{"type": "value", "options": options}}
		}
		o["options"] = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
		}
	case "table":
		o["options"] = object{"showHeader": true, "cellHeight": "sm"}
		o["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true}, "indexByName": object{}, "renameByName": object{}}}}
	default:
		stacking, fill, style := "none", 10, "off"
		if p.stacked {
			stacking, fill = "normal", 30
		}
		if p.warn != 0 || p.bad != 0 {
			style = "line"
		}
		defaults["custom"] = object{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "spanNulls": false,
			"stacking": object{"mode": stacking, "group": "A"}, "thresholdsStyle": object{"mode": style},
		}
		o["options"] = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []any{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	}
	return o
}

// fill writes out the abbreviations of a query.
func fill(expr string) string {
	expr = strings.ReplaceAll(expr, "@", `job=~"$job",instance=~"$instance"`)
	return strings.ReplaceAll(expr, "[r]", "[$__rate_interval]")
}

// TestDashboards compares deploy/grafana with the descriptions. With -update it writes the files.
func TestDashboards(t *testing.T) {
	var files []string
	for _, b := range boards {
		want, err := b.json()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b.file)
		if *configtest.Update {
			if err := os.WriteFile(grafana+b.file, want, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := tree.Text(t, grafana+b.file)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs from its description (-); run: go test ./test/monitoring -run TestDashboards -update\n%s", b.file, diff)
		}
	}
	entries, err := os.ReadDir(grafana)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(files, e.Name()) {
			t.Errorf("%s is not written by this test", grafana+e.Name())
		}
	}
}

// A dashboard is what the tests read of a file of Grafana.
type dashboard struct {
	UID, Title, Description, Refresh string
	SchemaVersion                    int
	Templating                       struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ UID string }
		Targets                  []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ UID string }
		}
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	all := make(map[string]dashboard)
	for _, b := range boards {
		text, err := os.ReadFile(grafana + b.file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", b.file, err)
		}
		all[b.file] = d
	}
	return all
}

var (
	variables = regexp.MustCompile(`\$([a-z_]\w*)`)
	ours      = regexp.MustCompile(`\bslidegate_\w+`)
)

// withoutPanel are the metrics that no panel shows, with the reason.
var withoutPanel = map[string]string{
	"slidegate_compare_total":               "for a migration alone: docs/migrate.md has the queries",
	"slidegate_cut_updates_total":           "a log line has the rule; nothing to do while no caller is locked out",
	"slidegate_grpc_goaways_total":          "Envoy's panels show the connections to rls",
	"slidegate_grpc_resets_total":           "Envoy's panels show resets",
	"slidegate_tiers_previous_secret_total": "for the time of a change of the secret: docs/customers.md",
	"slidegate_tiers_pushes_total":          "the alert SlidegateTiersNotWatching says when changes do not come",
	"slidegate_tiers_watching":              "the alert SlidegateTiersNotWatching has it",
	"slidegate_xds_connected":               "the alert SlidegateRulesServerAway has it",
}

// TestEveryMetricHasAPanel: each metric is in a panel, or withoutPanel says why not.
func TestEveryMetricHasAPanel(t *testing.T) {
	shown := make(map[string]bool)
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				for _, name := range ours.FindAllString(q.Expr, -1) {
					shown[name] = true
					for _, part := range []string{"_bucket", "_sum", "_count"} {
						shown[strings.TrimSuffix(name, part)] = true
					}
				}
			}
		}
	}
	known := make(map[string]bool)
	for _, d := range metricstest.Descriptions() {
		name := d.Name
		known[name] = true
		switch reason := withoutPanel[name]; {
		case !shown[name] && reason == "":
			t.Errorf("no panel shows %s, and withoutPanel has no reason", name)
		case shown[name] && reason != "":
			t.Errorf("a panel shows %s: remove it from withoutPanel", name)
		}
	}
	for name := range withoutPanel {
		if !known[name] {
			t.Errorf("withoutPanel has %s, which is no metric", name)
		}
	}
	if len(known) < 40 {
		t.Errorf("got %d metrics, want all", len(known))
	}
}

// TestPanels checks what Grafana would not forgive: panels that overlap, twins of an id, variables that
// do not exist. Every panel needs a title, a description, a unit and a legend, and every metric must
// exist.
func TestPanels(t *testing.T) {
	exists := make(map[string]bool)
	for _, d := range metricstest.Descriptions() {
		exists[d.Name] = true
	}
	uids := make(map[string]bool)
	for file, d := range readDashboards(t) {
		if uids[d.UID] || d.UID == "" || len(d.UID) > 40 || d.Title == "" || d.Description == "" || d.Refresh != "30s" || d.SchemaVersion == 0 {
			t.Errorf("%s: bad head: %q %q %q", file, d.UID, d.Title, d.Refresh)
		}
		uids[d.UID] = true
		known := map[string]bool{"__rate_interval": true, "__range": true}
		for _, v := range d.Templating.List {
			for _, m := range variables.FindAllStringSubmatch(v.Definition, -1) {
				if !known[m[1]] {
					t.Errorf("%s: the variable %s uses %s, which comes later or not at all", file, v.Name, m[0])
				}
			}
			known[v.Name] = true
		}
		taken, ids := make(map[[2]int]string), make(map[int]bool)
		for _, p := range d.Panels {
			where := file + ": " + p.Title
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: the id %d is missing or used twice", where, p.ID)
			}
			ids[p.ID] = true
			if g := p.GridPos; g.W < 1 || g.H < 1 || g.X+g.W > columns {
				t.Errorf("%s: the place %v is outside of the grid", where, g)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[at]; other != "" {
						t.Fatalf("%s overlaps %s", where, other)
					}
					taken[at] = where
				}
			}
			if p.Title == "" {
				t.Errorf("%s: a panel without a title", file)
			}
			if p.Type == "row" {
				continue
			}
			if !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: description, unit, data source or query is missing", where)
			}
			for _, q := range p.Targets {
				if q.Datasource.UID != "${datasource}" || (q.LegendFormat == "" && p.Type != "table") {
					t.Errorf("%s: %s: data source or legend is missing", where, q.RefID)
				}
				for _, m := range variables.FindAllStringSubmatch(q.Expr, -1) {
					if !known[m[1]] {
						t.Errorf("%s: the variable %s is unknown", where, m[0])
					}
				}
				for _, m := range ours.FindAllString(q.Expr, -1) {
					m = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_bucket"), "_sum"), "_count")
					if !exists[m] {
						t.Errorf("%s: no metric is called %s", where, m)
					}
				}
			}
		}
	}
}
