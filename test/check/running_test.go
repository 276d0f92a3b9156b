package check

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// A patch replaces a part of a configuration: find, or all from find up to until. find must be there
// once.
type patch struct{ find, until, put string }

// text returns the text after the patch, which must fit.
func (p patch) text(text string) string {
	before, after, _ := strings.Cut(text, p.find)
	if p.until != "" {
		_, rest, _ := strings.Cut(after, p.until)
		after = p.until + rest
	}
	return before + p.put + after
}

// apply fails the test if the patch does not fit the text.
func (p patch) apply(t *testing.T, text string) string {
	t.Helper()
	if n := strings.Count(text, p.find); n != 1 {
		t.Fatalf("the configuration has %d times %q, want once", n, p.find)
	}
	if _, after, _ := strings.Cut(text, p.find); !strings.Contains(after, p.until) {
		t.Fatalf("the configuration has no %q after %q", p.until, p.find)
	}
	return p.text(text)
}

// A setup is an Envoy with a configuration that is changed, and the rls that it asks.
type setup struct {
	// since is the first minor version of Envoy 1 that accepts it.
	since   int
	base    string // a file of envoy/; empty: ratelimit.yaml
	patches []patch
	rls     service
	// calls is the address that Envoy has for rls, in place of the real one. $HTTP is the HTTP port of rls,
	// and $FREE a free port.
	calls string
	// own: the test stops its rls, so no other test shares it.
	own bool
	// second: Envoy calls another rls, too, on the port $OTHER.
	second bool
	// printed returns the configuration, in place of base.
	printed func(*edge.RLSServer) string
	// file: routes or listener, which Envoy then has by a file that it watches.
	file string
}

// A service is an rls: the settings that differ from those of the usual one.
type service struct {
	rules  string // empty: usualRules
	tiers  string // empty: the built-in example
	env    string // NAME=value, separated by spaces
	tls    bool
	ends   time.Duration // until Envoy's certificate expires; zero: 30 days
	socket bool
}

// A running is a setup that runs.
type running struct {
	t     *testing.T
	app   *stack.Application
	rls   *edge.RLSServer
	envoy *edge.EnvoyServer
	dir   string // the files of Envoy
	from  string // an address of the loopback network that no other test uses
}

// usualRules has a rule for each descriptor of the files. Three requests tell whether a limit is in
// force.
const usualRules = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 50000}}
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 50000}}
  - {key: subject, rate_limit: {name: per-subject, window: 1h, requests: 50000}}
  - {key: tier, rate_limit: {name: tier, unlimited: true}}
  - key: route
    value: search
    descriptors:
      - {key: api_key, rate_limit: {name: search-per-key, window: 1h, requests: 2}}
      - {key: subject, rate_limit: {name: search-per-subject, subject: subject, window: 1h, requests: 2}}
  - {key: route, value: login, descriptors: [{key: remote_address, rate_limit: {name: login-per-address, window: 1h, requests: 2}}]}
`

// A fleet has the services that the tests of a table share.
type fleet struct {
	t     *testing.T    // outlives the tests
	slots chan struct{} // an Envoy takes a core while it starts
	mu    sync.Mutex
	all   map[service]*edge.RLSServer
	tests int
}

func newFleet(t *testing.T) *fleet {
	return &fleet{t: t, slots: make(chan struct{}, 3), all: make(map[service]*edge.RLSServer)}
}

// serve returns an rls with the settings of s, which tests share unless s.own is true, and an address of
// the loopback network that no other test has.
func (f *fleet) serve(t *testing.T, s setup) (*edge.RLSServer, string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tests++
	from := fmt.Sprintf("127.7.%d.%d", f.tests/250, 1+f.tests%250)
	if rls := f.all[s.rls]; rls != nil && !s.own {
		return rls, from
	}
	if !s.own {
		t = f.t
	}
	o := edge.RLSOptions{Rules: s.rls.rules, Tiers: s.rls.tiers, Env: map[string]string{stack.EnvTrustedEntry: "tier"}, Way: edge.Way{Listen: edge.TCP}}
	if o.Rules == "" {
		o.Rules = usualRules
	}
	for setting := range strings.FieldsSeq(s.rls.env) {
		name, value, _ := strings.Cut(setting, "=")
		o.Env[name] = value
	}
	if s.rls.tls {
		o.TLS = servers.NewAuthority(t)
		if s.rls.ends > 0 {
			if err := o.TLS.RenewClientUntil(time.Now().Add(s.rls.ends)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.rls.socket {
		o.Env[stack.EnvGRPCAddress] = "unix://" + filepath.Join(edge.SocketDir(t), "grpc.sock")
	}
	rls := edge.RLS(t, o)
	if !s.own {
		f.all[s.rls] = rls
	}
	return rls, from
}

// start runs a setup. An impatient one has the times of the file.
func (f *fleet) start(t *testing.T, s setup, impatient bool) *running {
	t.Helper()
	f.slots <- struct{}{}
	t.Cleanup(func() { <-f.slots })
	r := &running{t: t, app: stack.NewApplication(t), dir: t.TempDir()}
	r.rls, r.from = f.serve(t, s)
	if s.base == "" {
		s.base = "ratelimit.yaml"
	}
	data := tree.Text(t, filepath.Join("../../envoy", s.base))
	text := data
	if s.printed != nil {
		text = s.printed(r.rls)
	}
	for _, p := range s.patches {
		text = p.apply(t, text)
	}
	if s.second {
		other, _ := f.serve(t, setup{rls: service{env: "SLIDEGATE_LOG_LEVEL=info"}})
		_, port, _ := net.SplitHostPort(other.GRPC())
		text = strings.Replace(text, "$OTHER", port, 1)
	}
	text = s.addresses(r, text)
	if !impatient {
		// On a busy machine an answer may take longer, and the counters would then be those of a fault.
		text = strings.NewReplacer("timeout: 0.05s", "timeout: 10s", "timeout: 0.2s", "timeout: 10s").Replace(text)
	}
	text = s.split(r, text)
	file := filepath.Join(r.dir, "envoy.yaml")
	tree.Write(t, file, text)
	r.envoy = edge.Envoy(t, edge.EnvoyOptions{Config: file, Upstream: r.app.Addr})
	return r
}

// addresses puts the addresses of rls and of files into the text. Handshakes and health checks get time.
func (s setup) addresses(r *running, text string) string {
	r.t.Helper()
	grpc := strings.TrimPrefix(r.rls.GRPC(), "unix://")
	free, err := process.FreePort()
	if err != nil {
		r.t.Fatal(err)
	}
	if s.calls != "" {
		grpc = strings.NewReplacer("$HTTP", strings.TrimPrefix(r.rls.HTTP(), "http://"), "$FREE", process.Address(free)).Replace(s.calls)
	}
	host, port, _ := strings.Cut(grpc, ":")
	changes := []string{
		"$DIR", r.dir,
		"socket_address: {address: rls, port_value: 8081}", fmt.Sprintf("socket_address: {address: %s, port_value: %s}", host, port),
		"/run/rls/grpc.sock", grpc, "timeout: 0.25s", "timeout: 10s", "timeout: 0.5s", "timeout: 10s",
		"matcher: {exact: rls}", "matcher: {exact: localhost}",
	}
	authority := r.rls.Authority()
	if authority == nil && strings.Contains(text, stack.EnvoyCA) {
		authority = servers.NewAuthority(r.t) // rls has no TLS, but Envoy
	}
	if authority != nil {
		ca, cert, key := authority.ClientFiles()
		changes = append(changes, stack.EnvoyCA, ca, stack.EnvoyCert, cert, stack.EnvoyKey, key)
	}
	return strings.NewReplacer(changes...).Replace(text)
}

// split moves the routes or the listener to a file that Envoy watches.
func (s setup) split(r *running, text string) string {
	r.t.Helper()
	name := filepath.Join(r.dir, s.file+".yaml")
	source := fmt.Sprintf("{resource_api_version: V3, path_config_source: {path: %q}}", name)
	switch s.file {
	case "routes":
		before, rest, _ := strings.Cut(text, "          route_config:\n")
		routes, after, _ := strings.Cut(rest, "          http_filters:\n")
		tree.Write(r.t, name, "resources:\n- \"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n"+strings.ReplaceAll("\n"+routes, "\n          ", "\n"))
		return before + "          rds: {route_config_name: edge, config_source: " + source + "}\n          http_filters:\n" + after
	case "listener":
		before, rest, _ := strings.Cut(text, "  listeners:\n")
		listeners, after, _ := strings.Cut(rest, "\n  clusters:\n")
		listeners = strings.ReplaceAll("\n"+listeners, "\n  ", "\n")
		listeners = strings.ReplaceAll(listeners, "\n- name: ", "\n- \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n  name: ")
		tree.Write(r.t, name, "resources:"+strings.Replace(listeners, anyAddress, "socket_address: {address: 127.0.0.1, port_value: 0}", 1)+"\n")
		return "# in another file: " + anyAddress + "\ndynamic_resources: {lds_config: " + source + "}\n" + before + "  clusters:\n" + after
	}
	return text
}

// anyAddress is the listener of the files.
const anyAddress = "socket_address: {address: 0.0.0.0, port_value: 10000}"

// get sends n requests, and returns the statuses.
func (r *running) get(n int, path string, header ...string) (statuses []int) {
	r.t.Helper()
	client := r.client()
	for range n {
		statuses = append(statuses, client.Get(path, header...).Status)
	}
	return statuses
}

func (r *running) client() *stack.Client { return stack.NewClient(r.t, r.envoy.URL(), r.from) }

// stat waits until a counter of Envoy is above 0.
func (r *running) stat(name string) {
	r.t.Helper()
	process.Eventually(r.t, name, func() bool {
		n, err := r.envoy.Stat(name)
		if err != nil {
			r.t.Error(err)
		}
		return n > 0
	})
}

// post asks Envoy's admin port to do something.
func (r *running) post(path string) {
	r.t.Helper()
	resp, err := http.Post(r.envoy.Admin()+path, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("POST %s: %s", path, resp.Status)
	}
}

// A report is what rls check prints as JSON.
type report struct {
	Findings []finding `json:"findings"`
	NotRead  []string  `json:"not_read"`
	Probed   []struct {
		Where  string
		Status int
		Calls  []probe.Call
	}
}

type finding struct{ Severity, Code, Where, Message, Passes, Fix string }

func (f finding) String() string {
	return fmt.Sprintf("%s %s %s: %s [%s] [%s]", f.Severity, f.Code, f.Where, f.Message, f.Passes, f.Fix)
}

// check runs rls check, with the settings of rls.
func (r *running) check(flags ...string) report {
	r.t.Helper()
	got := r.rls.Run(r.t, append([]string{"check", "--json", "--envoy", r.envoy.Admin()}, flags...)...)
	var out report
	if err := json.Unmarshal([]byte(got.Stdout), &out); err != nil {
		r.t.Fatalf("rls check: %d, %q, %q: %v", got.Code, got.Stdout, got.Stderr, err)
	}
	failed := slices.ContainsFunc(out.Findings, func(f finding) bool { return f.Severity == "error" })
	if (got.Code != 0) != failed {
		r.t.Errorf("rls check: exit code %d, and errors: %v", got.Code, failed)
	}
	return out
}
