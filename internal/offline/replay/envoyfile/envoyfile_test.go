package envoyfile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

// TestBad compares the problems of every file of testdata/bad with those that are wanted.
func TestBad(t *testing.T) {
	configtest.BadFiles(t, 10, func(t *testing.T, file string) error {
		t.Helper()
		switch kind, _, _ := strings.Cut(filepath.Base(file), "-"); kind {
		case "map":
			_, err := ReadMap(file, false)
			return err
		case "fields":
			_, err := ReadMap(file, true)
			return err
		}
		_, err := Read(file)
		return err
	})
}

// TestPlaces reads managers, routes and a node wherever Envoy has them.
func TestPlaces(t *testing.T) {
	const hcm = `"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`
	const filter = `http_filters: [{name: rl, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: edge}}]`
	const routes = `virtual_hosts: [{name: a, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: a, rate_limits: [{actions: [{remote_address: {}}]}]}}]}]`
	bootstrap := `{node: {cluster: edge}, static_resources: {listeners: [{name: in, address: {socket_address: {port_value: 8000}}, filter_chains: [{filters: [{typed_config: {` + hcm + `, ` + filter + `, route_config: {` + routes + `}}}]}]}]}}`
	for name, text := range map[string][]string{
		"bootstrap": {bootstrap},
		"rds":       {`{node: {cluster: edge}}`, `{resources: [{name: in, address: {socket_address: {port_value: 8000}}, default_filter_chain: {filters: [{typed_config: {` + hcm + `, ` + filter + `, rds: {route_config_name: r}}}]}}]}`, `{name: r, ` + routes + `}`},
		// A dump repeats what the bootstrap has. Some programs write it with capital letters.
		"dump": {`{configs: [{"@type": type.googleapis.com/envoy.admin.v3.BootstrapConfigDump, bootstrap: ` + bootstrap + `},
		  {staticListeners: [{warmingState: {}, listener: {name: in, address: {socketAddress: {portValue: 8000}}, filterChains: [{filters: [{typedConfig: {` + hcm + `, ` + strings.NewReplacer("http_filters", "httpFilters", "typed_config", "typedConfig").Replace(filter) + `, routeConfig: {` + strings.NewReplacer("virtual_hosts", "virtualHosts", "rate_limits", "rateLimits", "remote_address", "remoteAddress").Replace(routes) + `}}}]}]}}]}]}`},
		"aliases": {`x: &x {` + hcm + `, ` + filter + `, route_config: {` + routes + "}}\nnode: {cluster: edge}\nlisteners: [{name: in, address: {socket_address: {port_value: 8000}}, filter_chains: [{filters: [{typed_config: *x}]}]}]"},
		"json":    {`{"node": {"cluster": "edge"}, "l": {"name": "in", "address": {"socket_address": {"port_value": 8000}}, "filter_chains": [{"filters": [{"typed_config": {` + hcm[:9] + `"` + hcm[9:] + `", "http_filters": [{"name": "rl", "typed_config": {"@type": "x/xds.type.v3.TypedStruct", "type_url": "x/envoy.extensions.filters.http.ratelimit.v3.RateLimit", "value": {"domain": "edge"}}}], "route_config": {"virtual_hosts": [{"name": "a", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "a", "rate_limits": [{"actions": [{"remote_address": {}}]}]}}]}]}}}]}]}}`},
	} {
		dir := t.TempDir()
		for i, part := range text {
			tree.Write(t, filepath.Join(dir, string(rune('a'+i))+".yaml"), part)
		}
		c, err := Read(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m := c.Managers[len(c.Managers)-1]
		if c.Cluster != "edge" || m.Listener != "in" || m.Port != 8000 || len(m.Filters) != 1 || m.Filters[0].Domain != "edge" ||
			len(m.Routes.Hosts) != 1 || len(m.Routes.Hosts[0].Routes[0].Limits[0].Actions) != 1 || name != "aliases" && len(c.Managers) != 1 {
			t.Errorf("%s: got %+v of %d, cluster %q", name, m, len(c.Managers), c.Cluster)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no file") {
		t.Errorf("an empty directory: got %v", err)
	}
	if _, err := Read("nowhere.yaml"); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
		t.Errorf("no file: got %v", err)
	}
}

// TestProtobufSpellings reads one configuration in two spellings. Envoy accepts both, see
// TestEnvoyAcceptsSpellings.
func TestProtobufSpellings(t *testing.T) {
	plain, err := Read("testdata/protobuf/plain.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spelled, err := Read("testdata/protobuf/spelled.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inPlain := cmp.Transformer("file", func(p Location) int { return p.Line })
	if diff := cmp.Diff(plain, spelled, inPlain, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-plain +spelled)\n%s", diff)
	}
}

// TestLogs reads the formats of access logs in each of their forms, and leaves out what it cannot read.
func TestLogs(t *testing.T) {
	const logger = `{typed_config: {"@type": x/envoy.extensions.access_loggers.file.v3.FileAccessLog, `
	text := `- "@type": x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
  route_config: {virtual_hosts: []}
  access_log:
  - ` + logger + `log_format: {json_format: {remoteAddress: "%DOWNSTREAM_REMOTE_ADDRESS%", a: {b: "%REQ(X-B)%", c: 1}, d: "%REQ(x):3%", e: "x%REQ(e)%", f: "%", g: ["%PROTOCOL%"]}}}}
  - ` + logger + `log_format: {text_format_source: {inline_string: "%START_TIME% %REQ(a)%\n"}}}}
  - ` + logger + `logFormat: {textFormat: "%START_TIME%"}}}
  - ` + logger + `json_format: {t: "%START_TIME%"}}}
  - ` + logger + `format: "[%START_TIME%]"}}
  - ` + logger + `log_format: {text_format_source: {filename: /etc/f}}}}
  - ` + logger + `log_format: no}}
  - ` + logger + `path: /dev/stdout}}
  - {name: other}
`
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	tree.Write(t, file, text)
	c, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []accesslog.Written{
		{Name: file + ":4", Fields: map[string]accesslog.Attribute{"remoteAddress": "DOWNSTREAM_REMOTE_ADDRESS", "a.b": "REQ(x-b)"}},
		{Name: file + ":5", Text: "%START_TIME% %REQ(a)%\n"},
		{Name: file + ":6", Text: "%START_TIME%"},
		{Name: file + ":7", Fields: map[string]accesslog.Attribute{"t": "START_TIME"}},
		{Name: file + ":8", Text: "[%START_TIME%]"},
	}
	if diff := cmp.Diff(want, c.Logs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	for format, want := range map[string][]Part{
		"":                   nil,
		"100%% sure":         {{Text: "100% sure"}},
		"%REQ(X-Tenant)%":    {{Attribute: "REQ(x-tenant)"}},
		"a%PROTOCOL%b":       {{Text: "a"}, {Attribute: "PROTOCOL"}, {Text: "b"}},
		"%REQ(x):3%":         {{Attribute: "REQ(x)", Most: 3}},
		"%START_TIME(%s)%":   {{Attribute: "START_TIME(%s)"}},
		"%CEL(a('x') % 2)%":  {{Attribute: "CEL(a('x') % 2)"}},
		"%PROTOCOL:2%":       {{Attribute: "PROTOCOL", Most: 2}},
		"%REQ(A?:PATH)%%%%%": {{Attribute: "REQ(a?:path)"}, {Text: "%%"}},
	} {
		if got, err := Parse(format); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", format, got, err, want)
		}
	}
	for _, format := range []string{"%", "%REQ", "%REQ(x)", "%req(x)%", "%REQ(x:3%", "%REQ(x):0%", "%REQ(x):a%", "%()%"} {
		if got, err := Parse(format); err == nil || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%q: got %+v, %v, want an error of one line", format, got, err)
		}
	}
}

// TestWholeText compares regular expressions with what RE2::FullMatch does with them.
func TestWholeText(t *testing.T) {
	for text, want := range map[string][2]string{ // what matches, and what does not
		"a|ab":    {"ab", "abc"},
		`\Q/a.b`:  {"/a.b", "/axb"},
		`x\Q)`:    {"x)", "x"},
		`\Qa\E.`:  {"ab", "a"},
		"(?i)a|b": {"B", "bb"},
	} {
		re, err := WholeText(text)
		if err != nil || !re.MatchString(want[0]) || re.MatchString(want[1]) {
			t.Errorf("%s: %v, %v", text, re, err)
		}
	}
	for _, text := range []string{"a)|(b", "(", `\E`, strings.Repeat("(", 1000) + strings.Repeat(")", 1000)} {
		if re, err := WholeText(text); err == nil {
			t.Errorf("%s: %v", text, re)
		}
	}
}

// read reads any text as both kinds of files. It returns whether either is right.
func read(t *testing.T, data []byte) bool {
	t.Helper()
	r := &reader{report: &strict.Report{}, config: &Config{}}
	r.file("x", data)
	r.finish([]string{"x"})
	checkProblems(t, data, r.report.Sorted())
	_, err := parseMap("x", data, false, &strict.Report{})
	_, fieldsErr := parseMap("x", data, true, &strict.Report{})
	for _, err := range []error{err, fieldsErr} {
		if problems := (strict.Problems{}); errors.As(err, &problems) {
			checkProblems(t, data, problems)
		}
	}
	return r.report.Count() == 0 || err == nil
}

func checkProblems(t *testing.T, data []byte, problems strict.Problems) {
	t.Helper()
	for _, p := range problems {
		if p.Message == "" || strings.ContainsAny(p.String(), "\n\r") {
			t.Errorf("%q: bad problem %q", data, p)
		}
	}
}

// TestBomb: a few lines cannot stand for a billion values.
func TestBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [{x: 1}]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	r := &reader{report: &strict.Report{}, config: &Config{}}
	r.file("x", []byte(b.String()))
	if got := r.report.Sorted(); len(got) != 1 || !strings.Contains(got[0].Message, "aliases stand for more") {
		t.Errorf("got %v", got)
	}
}

func seeds(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, pattern := range []string{"testdata/bad/*.yaml", "../../../../envoy/*.yaml", "../../../../test/replay/testdata/envoy-descriptors.yaml", "../../../../docs/examples/replay-*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 0 {
				all = append(all, data)
			}
		}
	}
	return all
}

func FuzzRead(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { read(t, data) })
}

// TestAnyText reads 1,000 texts that lines of the seeds make.
func TestAnyText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all, right := seeds(t), 0
	for range 1000 {
		// Small files are as good as large ones, and faster.
		lines := slices.Collect(strings.Lines(string(all[r.IntN(len(all))])))
		if at := r.IntN(len(lines)); len(lines) > 60 {
			lines = lines[at:min(len(lines), at+60)]
		}
		for range r.IntN(4) {
			at := r.IntN(len(lines))
			switch other := all[r.IntN(len(all))]; r.IntN(4) {
			case 0:
				lines = slices.Delete(lines, at, at+1)
			case 1:
				lines[at] = lines[at][:r.IntN(len(lines[at])+1)]
			case 2:
				lines[at] += string(other[r.IntN(len(other)):][:1])
			default:
				lines[at], lines[0] = lines[0], lines[at]
			}
			if len(lines) == 0 {
				break
			}
		}
		if read(t, []byte(strings.Join(lines, ""))) {
			right++
		}
	}
	if right == 0 {
		t.Error("no text was right")
	}
}

// TestSchema compares the schema in docs with that of the types.
func TestSchema(t *testing.T) {
	const file = "../../../../docs/replay-map.schema.json"
	operator := configtest.Object{"type": "string", "pattern": "^%.+%$"}
	entries := configtest.Object{"type": "array", "minItems": 1, "items": configtest.Object{"type": "string", "pattern": "^([^=?]|[?][^=])[^=]*=.+$"}}
	s := configtest.Schemas{
		Fields: map[string]configtest.Object{
			"entries": entries, "descriptors": {"minItems": 1}, "domain": {"minLength": 1},
			"fields": {"type": "object", "additionalProperties": operator},
			"cost":   {"anyOf": []any{configtest.Object{"type": "integer", "minimum": 0, "maximum": MaxCost}, operator}},
		},
		Definitions: configtest.Object{},
	}
	s.Special = func(s *configtest.Schemas, t reflect.Type) configtest.Object {
		if t == reflect.TypeFor[mappedDescriptor]() {
			return configtest.Object{"anyOf": []any{entries, s.Of(reflect.TypeFor[descriptorKeys]())}}
		}
		return nil
	}
	root := s.Struc(reflect.TypeFor[mapFile]())
	root["$schema"], root["title"] = configtest.Draft, "Descriptors of the requests of an access log"
	root["definitions"] = s.Definitions
	configtest.Described(t, root)
	// Beside --envoy the file has fields alone.
	root["anyOf"] = []any{
		configtest.Object{"required": root["required"]},
		configtest.Object{"required": []string{"fields"}, "properties": configtest.Object{"domain": false, "descriptors": false}},
	}
	delete(root, "required")
	configtest.CompareSchema(t, file, root)
	configtest.Valid(t, file, "../../../../docs/examples/replay-map.yaml", true)
	configtest.Valid(t, file, "../../../../docs/examples/replay-one-hop.yaml", true)
	configtest.Valid(t, file, configtest.Write(t, "fields.yaml", `fields: {ts: "%START_TIME%"}`), true)
	for _, bad := range []string{"testdata/bad/map-all.yaml", "testdata/bad/map-none.yaml", "testdata/bad/fields-more.yaml"} {
		configtest.Valid(t, file, bad, false)
	}
}
