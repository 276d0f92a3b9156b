package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/describe"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

const descriptorsConfig = "testdata/envoy-descriptors.yaml"

// asked is a rate-limit service that allows everything and keeps what it is asked.
type asked struct {
	rlsv3.UnimplementedRateLimitServiceServer
	mu    sync.Mutex
	calls map[string][]string // by the number of the request
}

func (a *asked) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	number := strings.Join(md.Get("x-number"), " ")
	var b strings.Builder
	b.WriteString(in.Domain)
	if len(md.Get("x-rls-end")) > 0 {
		b.WriteString(" end")
	}
	for _, d := range in.Descriptors {
		b.WriteString("\n  ")
		for _, e := range d.Entries {
			fmt.Fprintf(&b, "[%s=%s]", e.Key, secretsOf(e.Key, e.Value))
		}
		if d.HitsAddend != nil && d.HitsAddend.Value != 1 {
			fmt.Fprintf(&b, " x%d", d.HitsAddend.Value)
		}
		if d.IsNegativeHits {
			b.WriteString(" refund")
		}
		if l := d.Limit; l != nil {
			fmt.Fprintf(&b, " limit %d %v", l.RequestsPerUnit, map[typev3.RateLimitUnit]string{typev3.RateLimitUnit_MINUTE: "1m0s", typev3.RateLimitUnit_HOUR: "1h0m0s"}[l.Unit])
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[number] = append(a.calls[number], b.String())
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// of returns the calls for a request, sorted: calls at the end come in any order.
func (a *asked) of(number string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(a.calls[number])), "\n")
}

// count returns the number of calls for a request.
func (a *asked) count(number string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls[number])
}

var testSecrets = tier.NewSecrets([]string{"api_key", "authorization"}, nil)

// secretsOf returns the value of an entry as rls keeps it.
func secretsOf(key, value string) string { return testSecrets.Value(key, value) }

// questionsOf writes questions as asked does.
func questionsOf(qs []replay.Question) string {
	var all []string
	for _, q := range qs {
		var b strings.Builder
		b.WriteString(q.Domain)
		if q.AtEnd {
			b.WriteString(" end")
		}
		for _, d := range q.Descriptors {
			b.WriteString("\n  ")
			for _, e := range d.Entries {
				fmt.Fprintf(&b, "[%s=%s]", e.Key, e.Value)
			}
			if d.Cost != 1 {
				fmt.Fprintf(&b, " x%d", d.Cost)
			}
			if d.Refund {
				b.WriteString(" refund")
			}
			if l := d.Override; l != nil {
				fmt.Fprintf(&b, " limit %d %v", l.Hits, l.Window)
			}
		}
		all = append(all, b.String())
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// serveAsked serves until the test ends. It returns host:port.
func serveAsked(t *testing.T, a *asked) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, a)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("the rate-limit service: %v", err)
		}
	})
	return listener.Addr().String()
}

// shape is one request.
type shape struct {
	method, path, host string // empty: GET, and api.example
	headers            []string
	// as is the request that a replay sees instead. Nil: the same.
	as *shape
}

// shapes are requests of all kinds for the configuration of the test. joins says that Envoy matches
// all values of a header joined by a comma; its log has the first one.
func shapes(joins bool) (all []shape) {
	get := func(path string, headers ...string) { all = append(all, shape{path: path, headers: headers}) }
	to := func(host, path string, headers ...string) {
		all = append(all, shape{path: path, host: host, headers: headers})
	}
	// Virtual hosts.
	for _, path := range []string{"/", "/override", "/include", "/include-per-route", "/ignore", "/only-second-stage"} {
		to("exact.example", path)
	}
	for _, host := range []string{"EXACT.example", "exact.example:80", "ports.example", "ports.example:8443", "a.wild.example", "wild.example", ".wild.example", "a.very.wild.example", "tenant.", "tenant.a", "Tenant.A.b", "other.example"} {
		to(host, "/")
	}
	to("tenant.a", "/hidden")
	// Routes.
	for _, header := range []string{
		"x-a: One", "x-a: one", "x-a: PREfix", "x-a: a Post", "x-a: a post", "x-a: in the MIDDLE", "x-a: aaa", "x-a: ab", "x-a: abb", "x-a:",
		"x-n1: -10", "x-n1: 10", "x-n1: 9", "x-n1: 9a", "x-n1: +5", "x-n2: 5", "x-n2: 15", "x-n2: x", "x-want-empty: 1", "x-e: full",
		"content-type: application/grpc", "content-type: application/grpc+proto", "content-type: application/grpc-web", "content-type: application/grpc; a=b",
		"x-gone: 1", "x-b: 1",
	} {
		get("/match", header)
	}
	get("/match", "x-want-empty: 1", "x-e: full")
	twice := shape{path: "/match", headers: []string{"x-a: One", "x-a: Two"}}
	if joins {
		twice.as = &shape{path: "/match", headers: []string{"x-a: One"}}
	}
	all = append(all, twice)
	for _, query := range []string{"?q=a%20b", "?q=a+b", "?q=abc", "?q=%61b", "?q=b&q=a", "?present", "?present=1&absent", "?%70resent=1"} {
		get("/match" + query)
	}
	all = append(all, shape{method: "PUT", path: "/match"}, shape{method: "PUT", path: "/Match"})
	for _, path := range []string{
		"/folded", "/FOLDED?x", "/folded/", "/pre", "/PREFIX", "/separated", "/separated/", "/separated?x=1", "/separatedx", "/separated/x",
		"/a", "/ab", "/ac", "/regex/12", "/regex/1x", "/regex/12?x", "//regex///12", "/x/../regex/7", "/regex/%31", "/regex%2f1", "/regex;x/1", "/..;/a",
		"/%zz", "/redirect", "/gone-cluster", "/nothing/here", "/a#b", "/rewritten/x?y=1", "/rewritten/%7e",
	} {
		get(path)
	}
	get("/rewritten/x", "x-once: a", "x-once: b", "x-envoy-original-path: /forged")
	// What no log tells. Envoy logs an empty header as none, and - stands for none. It changes some
	// headers later, and a client of its own may name the original path.
	for _, h := range []string{"x-tenant:", "x-tenant: -", "x-once:", "x-plan: -"} {
		all = append(all, shape{path: "/actions", headers: []string{h}, as: &shape{path: "/actions"}})
	}
	all = append(all, shape{path: "/changed", headers: []string{"x-removed: here", "x-added: by-client"}, as: &shape{path: "/changed"}},
		shape{path: "/a", headers: []string{"x-envoy-original-path: /nothing"}, as: &shape{path: "/nothing"}})
	get("/changed")
	get("/a", "x_a: 1")
	get("/actions", "x-deny: 1")
	get("/actions", "x-envoy-fault-abort-request: 503")
	get("/a", "x-envoy-internal: true")
	get("/a", "x-forwarded-for: 8.8.8.8", "x-envoy-internal: true")
	// Actions.
	for _, address := range []string{"10.1.2.3", "192.0.2.77", "2001:db8:1:2:3:4:5:6", "2001:0DB8::0001", "::ffff:192.0.2.1", "fe80::1", "not-an-address", "10.1.2.3, 203.0.113.9"} {
		get("/actions", "x-forwarded-for: "+address)
	}
	for _, headers := range [][]string{
		{"x-tenant: t1"},
		{"x-tenant: t2", "x-a: One"},
		{"x-tenant: a,b"},
		{"x-tenant: a", "x-tenant: b"},
		{"x-tenant: t 1"},
		{"x-tenant: null"},
		{`x-tenant: "quoted\"`},
		{"x-tenant: é"},
		{"x-tenant: 42"},
		{"x-tier: gold"},
		{"x-once: a", "x-once: b"},
		{"x-api-key: k1"},
		{"x-api-key: Bearer k1"},
		{"authorization: Bearer k1"},
		{"authorization: bearer   k1"},
		{"authorization: Basic dTpw"},
		{"x-plan: gold"},
		{"x-plan:"},
		{"x-plan: 42"},
	} {
		get("/actions", headers...)
	}
	for _, query := range []string{
		"?q=x", "?q", "?q=", "?q=a%20b", "?q=a+b", "?q=1&q=2", "?%71=x", "?a%20b=c", "?a+b=c", "?q=%", "?q=%4", "?q=%zz", "?p=1;q=2", "?q=a=b", "?&&q=x&", "?q=x#q=y", "?Q=x", "?",
	} {
		get("/actions" + query)
	}
	all = append(all, shape{method: "DELETE", path: "/actions/x", headers: []string{"x-tenant: t1"}})
	// Costs.
	for _, cost := range []string{"", "5", "0", "1000000000", "1000000001", "-1", "1.9", "1e3", "0x10", "x", "NaN", "inf", " 7 ", "+3", "1_000", "0b1", ".5", "5.", "1e-3", "0x1p4"} {
		get("/costs", "x-cost: "+cost)
	}
	get("/costs")
	get("/awake")
	return all
}

// text returns the request with its number.
func (s shape) text(number int) string {
	method, host := s.method, s.host
	if method == "" {
		method = "GET"
	}
	if host == "" {
		host = "api.example"
	}
	lines := append([]string{method + " " + s.path + " HTTP/1.1", "Host: " + host, "Connection: close", "x-number: " + strconv.Itoa(number)}, s.headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// formatOf returns a JSON format with all attributes, and their names in the log.
func formatOf(t *testing.T, wants []accesslog.Attribute) (format string, fields map[string]accesslog.Attribute) {
	t.Helper()
	fields = map[string]accesslog.Attribute{"start": accesslog.StartTime, "duration": accesslog.Duration, "number": accesslog.Header("x-number")}
	for i, a := range wants {
		fields["a"+strconv.Itoa(i)] = a
	}
	operators := make(map[string]string)
	for name, a := range fields {
		operators[name] = a.String()
	}
	data, err := json.Marshal(operators)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), fields
}

// descriptorsFor returns the file that this Envoy understands: descriptorsConfig, for an older one
// without the lines whose fields it does not know.
func descriptorsFor(t *testing.T) string {
	t.Helper()
	if version := stack.EnvoyVersion(t); version[0] > 1 || version[1] >= 40 {
		return descriptorsConfig
	}
	text, err := os.ReadFile(descriptorsConfig)
	if err != nil {
		t.Fatal(err)
	}
	file, newer := filepath.Join(t.TempDir(), "envoy.yaml"), []string{"remote_address_match", "is_negative_hits", "rate_limit"}
	for {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), edge.EnvoyProgram(), "--mode", "validate", "--disable-hot-restart", "-c", file).CombinedOutput()
		if err == nil {
			return file
		}
		m := regexp.MustCompile(`'(\w+)'\)\s+has\s+unknown\s+fields`).FindSubmatch(out)
		if m == nil || !slices.Contains(newer, string(m[1])) {
			t.Fatalf("envoy: %v\n%s\nwant it to understand all but %v", err, out, newer)
		}
		// The lines stay, because the test names some by their numbers.
		text = regexp.MustCompile(`(?m)^.*\b`+string(m[1])+`: .*$`).ReplaceAll(text, []byte("#"))
	}
}

// TestEnvoyAcceptsSpellings holds Envoy to the files whose spellings a replay reads as one.
func TestEnvoyAcceptsSpellings(t *testing.T) {
	t.Parallel()
	if version := stack.EnvoyVersion(t); version[0] == 1 && version[1] < 40 {
		t.Skip("older versions do not know all of its fields")
	}
	for _, name := range []string{"plain", "spelled"} {
		file := "../../internal/offline/replay/envoyfile/testdata/protobuf/" + name + ".yaml"
		if out, err := exec.CommandContext(t.Context(), edge.EnvoyProgram(), "--mode", "validate", "--disable-hot-restart", "-c", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestReplayAsksAsEnvoyDoes sends requests of all kinds through Envoy, and compares what it asks
// with what a replay of its access log asks.
func TestReplayAsksAsEnvoyDoes(t *testing.T) {
	t.Parallel()
	config := descriptorsFor(t)
	c, err := envoyfile.Read(config)
	if err != nil {
		t.Fatal(err)
	}
	d, err := describe.New(c, describe.Options{Secrets: testSecrets})
	if err != nil {
		t.Fatal(err)
	}
	format, fields := formatOf(t, d.Wants())
	service, app := &asked{calls: make(map[string][]string)}, stack.NewApplication(t)
	changes := stack.PatientEnvoy(t, config)
	maps.Copy(changes, map[string]string{"json_format: {}": "json_format: " + format})
	o := edge.EnvoyOptions{Config: config, Upstream: app.Addr, RLS: serveAsked(t, service), Replace: changes}
	envoy := edge.Envoy(t, o)
	requests, sent := shapes(stack.EnvoyVersion(t)[1] < 40), 0
	for i, s := range requests {
		stack.Send(t, envoy.Addr(), s.text(i))
		sent++
		if s.as != nil {
			stack.Send(t, envoy.Addr(), strings.Replace(s.as.text(i), "x-number: ", "x-number: as", 1))
			sent++
		}
	}
	log := filepath.Join(t.TempDir(), "access.log")
	process.Eventually(t, "a line for each request", func() bool {
		var lines strings.Builder
		n := 0
		for line := range strings.Lines(envoy.Output()) {
			if strings.HasPrefix(line, "{") && strings.HasSuffix(line, "}\n") {
				n++
				lines.WriteString(line)
			}
		}
		return n == sent && os.WriteFile(log, []byte(lines.String()), 0o600) == nil
	})
	reader, err := accesslog.Open(accesslog.Options{Paths: []string{log}, Format: "json", Fields: fields, Want: append(slices.Clone(d.Wants()), "REQ(x-number)")})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	n := 0
	for ; ; n++ {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		number := string(r.Values[len(d.Wants())].Text)
		questions := d.Describe(nil, r)
		got := questionsOf(questions)
		i, _ := strconv.Atoi(number)
		if strings.HasPrefix(number, "as") {
			continue
		}
		if requests[i].as != nil {
			number = "as" + number
		}
		// Envoy asks at the end of a request when it writes its line.
		process.Eventually(t, "the calls for a request", func() bool { return service.count(number) >= len(questions) })
		if want := service.of(number); want != got {
			t.Errorf("%q: a replay asks, and Envoy does not:\n%s\nEnvoy asks, and a replay does not:\n%s\nThe log has %s",
				requests[i].text(i), linesOnlyIn(got, want), linesOnlyIn(want, got), show(d.Wants(), r))
		}
	}
	// Envoy refuses a header with _ before it looks at the request: that line is no request.
	if stats := reader.Stats(); n != sent-1 || stats.NoRequest != 1 || stats.Broken > 0 {
		t.Errorf("the log has %d records for %d requests: %+v", n, sent, stats)
	}
	var unreported []string
	for _, u := range d.Unreported() {
		unreported = append(unreported, fmt.Sprintf("%s %s", u.Location, u.Attribute))
	}
	want := []string{":99 %%", ":123 %REQ(x-removed)%", ":124 %REQ(x-added)%", ":167 %%"}
	for i := range want {
		want[i] = config + want[i]
	}
	if !slices.Equal(unreported, want) {
		t.Errorf("unreported: got %q, want %q", unreported, want)
	}
}

// linesOnlyIn returns the lines of a that b does not have.
func linesOnlyIn(a, b string) string {
	has := make(map[string]bool)
	for line := range strings.Lines(b + "\n") {
		has[line] = true
	}
	var out strings.Builder
	for line := range strings.Lines(a + "\n") {
		if !has[line] {
			out.WriteString(line)
		}
	}
	return out.String()
}

// show writes what a log tells of a request.
func show(wants []accesslog.Attribute, r *accesslog.Record) string {
	var b strings.Builder
	for i, a := range wants {
		if v := r.Values[i]; v.State == accesslog.Present {
			fmt.Fprintf(&b, "%s=%q ", a, v.Text)
		} else if v.State == accesslog.Unreported {
			fmt.Fprintf(&b, "%s? ", a)
		}
	}
	return b.String()
}
