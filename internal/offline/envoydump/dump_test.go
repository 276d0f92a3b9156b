package envoydump

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small is a dump with one resource of each kind.
const small = `{"configs": [
 {"@type": "x/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"cluster": "edge"}, "admin": {"address": {"socket_address": {"address": "0.0.0.0", "port_value": 9901}}}, "static_resources": {"listeners": [{"name": "twice"}]}}},
 {"dynamic_listeners": [
  {"name": "in", "error_state": {"details": "bad port"}, "active_state": {"listener": {"name": "in", "address": {"socket_address": {"port_value": 10000}},
   "default_filter_chain": {"filters": [{"name": "m", "typed_config": {"@type": "x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "rds": {"route_config_name": "r"}, "http_filters": [{"name": "envoy.filters.http.ratelimit", "typed_config": {"@type": "x/xds.type.v3.TypedStruct",
     "type_url": "x/envoy.extensions.filters.http.ratelimit.v3.RateLimit", "value": {"domain": "edge", "timeout": "0.05s"}}}]}}]}}}},
  {"name": "other", "warming_state": {"listener": {"name": "other"}}}]},
 {"static_route_configs": [{"route_config": {"name": "r", "virtual_hosts": [{"name": "v", "routes": [{"name": "a", "match": {"prefix": ""},
  "route": {"cluster": "c", "rate_limits": [{"actions": [{"remote_address": {}}, {"generic_key": {"descriptor_value": "x"}}]}]}}]}]}}]},
 {"dynamic_active_clusters": [{"cluster": {"name": "c", "type": "EDS"}}]},
 {"dynamic_endpoint_configs": [{"endpoint_config": {"cluster_name": "c"}}]},
 {"ecds_filters": [{"ecds_filter": {"name": "e", "typed_config": {"@type": "x/envoy.extensions.filters.http.lua.v3.Lua", "inline_code": ":path"}}}]},
 {"inline_scoped_route_configs": []}]}`

func TestDump(t *testing.T) {
	s := new(Seen)
	if err := s.dump(strings.NewReader(small)); err != nil {
		t.Fatal(err)
	}
	manager := s.Listeners[0].Default.Filters[0].Config.Message.(*Manager)
	route := s.Routes["r"].Hosts[0].Routes[0]
	got := fmt.Sprintln(s.Cluster, s.Admin, len(s.Listeners), s.Rejected, manager.RDS.Name, *manager.Filters[0].Config.Message.(*RateLimitFilter).Timeout,
		*route.Match.Prefix == "", route.Action.Cluster, route.Action.Limits[0].Actions[1].Kind, s.Clusters["c"].Type, s.Assignments["c"].Cluster, s.Discovered["e"].HasPath, s.NotRead)
	if want := "edge {{0.0.0.0 9901} {}} 1 map[in:bad port] r 0.05s true c generic_key EDS c true [scoped routes]\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestDumpOfOtherForms reads what it can, and says what it cannot read.
func TestDumpOfOtherForms(t *testing.T) {
	for given, want := range map[string]string{
		`{"configs": [{"static_listeners": [{"listener": {"name": 7}}]}]}`:                   "[a part of static listener ]",
		`{"configs": [{"static_clusters": [{"cluster": {"name": "c", "type": {"a": 1}}}]}]}`: "[a part of static cluster ]",
		`{"configs": [{"bootstrap": 7}]}`:                                                    "[bootstrap]",
		`{"configs": [{"static_listeners": 7}]}`:                                             "[static_listeners]",
		`{"configs": [`:                                                                      "the dump ends early, or is above 256 MiB",
		`{}`:                                                                                 `the dump has no "configs": give the answer of Envoy's /config_dump?include_eds, or the file that Envoy reads`,
		`<html>`:                                                                             "the dump is not JSON as Envoy writes it: invalid character '<' looking for beginning of value",
		strings.Repeat(`{"configs": [`, 20_000):                                              "the dump is not JSON as Envoy writes it: invalid character '{' exceeded max depth",
	} {
		s := new(Seen)
		got := fmt.Sprint(s.dump(strings.NewReader(given)), s.NotRead)
		if got = strings.TrimSuffix(strings.TrimPrefix(got, "<nil> "), " []"); got != want {
			t.Errorf("%.100s: got %s, want %s", given, got, want)
		}
	}
}

// TestFile reads what Envoy reads, as YAML and as JSON.
func TestFile(t *testing.T) {
	const text = `{node: {cluster: edge}, admin: {address: {socket_address: {port_value: 9901}}}, static_resources: {listeners: [{name: in}], clusters: [{name: c, type: EDS}, {name: d}]}}`
	for _, given := range []string{"# Envoy\n" + text, "---\n" + text, `{"node": {"cluster": "edge"}, "admin": {"address": {"socket_address": {"port_value": 9901}}}, "static_resources": {"listeners": [{"name": "in"}], "clusters": [{"name": "c", "type": "EDS"}, {"name": "d"}]}}`} {
		s, err := Decode(strings.NewReader(given))
		if err != nil {
			t.Errorf("%.20s: %v", given, err)
			continue
		}
		if got := fmt.Sprint(s.Cluster, " ", s.Admin.Socket.Port, " ", s.Listeners[0].Name, " ", len(s.Listeners), " ", s.Clusters["c"].Type, " ", len(s.Clusters), s.Version, s.NotRead); got != "edge 9901 in 1 EDS 2 [0 0 0] [clusters, runtime, stats and certificates: a dump does not have them]" {
			t.Errorf("%.20s: got %s", given, got)
		}
	}
	for given, want := range map[string]string{
		"a: [":        "the file is neither JSON nor YAML",
		"a: {2: 3}":   "the file is not YAML as Envoy reads it",
		"listeners:":  `the dump has no "configs"`,
		"just a text": "the file is neither JSON nor YAML",
		"":            "the dump ends early",
	} {
		if _, err := Decode(strings.NewReader(given)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", given, err, want)
		}
	}
}

// TestAsk reads each page of an admin port, and says which one does not answer.
func TestAsk(t *testing.T) {
	mux := http.NewServeMux()
	for path, answer := range map[string]string{
		"/config_dump": small,
		"/clusters":    `{"cluster_statuses": [{"name": "c", "host_statuses": [{"stats": [{"name": "cx_total", "value": "3"}, {"name": "rq_error"}], "health_status": {"failed_outlier_check": true}}]}]}`,
		"/runtime":     `{"entries": {"ratelimit.http_filter_enabled": {"layer_values": ["0"], "final_value": "0"}}}`,
		"/stats":       `{"stats": [{"name": "cluster.c.ratelimit.ok", "value": 12}, {"name": "text", "value": "12"}, {"histograms": {}}]}`,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	s, err := Ask(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	host := s.Live.Hosts["c"][0]
	got := fmt.Sprintln(len(s.Listeners), host.Stat("cx_total"), host.Stat("rq_error"), host.Health.FailedOutlier, s.Live.Runtime, s.Live.Stats, s.NotRead)
	if want := "1 3 0 true map[ratelimit.http_filter_enabled:0] map[cluster.c.ratelimit.ok:12] [scoped routes /certs: the admin port of Envoy answers 404 Not Found; check that it is the admin port]\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	server.Close()
	if _, err := Ask(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "the admin port of Envoy does not answer") {
		t.Errorf("a port where nothing listens: %v", err)
	}
}

// FuzzDump checks that no dump ends the program, and that decoding again gives the same.
func FuzzDump(f *testing.F) {
	f.Add(small)
	f.Add(`{"configs": [{"static_listeners": [{"listener": null}, 7, {"active_state": {"listener": {"filter_chains": [{}]}}}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		first, second := new(Seen), new(Seen)
		errs := fmt.Sprint(first.dump(strings.NewReader(text)))
		again := fmt.Sprint(second.dump(strings.NewReader(text)))
		if errs != again || len(first.Listeners) != len(second.Listeners) {
			t.Errorf("%q: %s, then %s", text, errs, again)
		}
	})
}

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(name, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(name)
	if err != nil || len(s.NotRead) != 2 || s.Live != nil {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := Read(name + ".missing"); err == nil {
		t.Error("a file that is missing: no error")
	}
}
