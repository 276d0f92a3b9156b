package stats

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is what a request of cost 1 does that has room.
var one = decide.Hits{Total: 1, Within: 1, Decided: true}

// rules returns the rules of a generation, all of the domain d.
func rulesOf(t testing.TB, all ...rules.Rule) []*rules.Rule {
	t.Helper()
	g := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	for _, r := range all {
		r.Domain = "d"
		if err := g.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return g.All()
}

// node returns a level of a rule. An empty value is any value.
func node(key, value string) descriptors.Node {
	return descriptors.Node{Key: key, Value: value, AnyValue: value == "", Pattern: strings.Contains(value, "*")}
}

func entries(pairs ...string) descriptors.Descriptor {
	var d descriptors.Descriptor
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, descriptors.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// names returns the counters that are not zero, without prefix.
func names(s *Stats) map[string]uint64 {
	got := make(map[string]uint64)
	for _, c := range s.counters() {
		got[strings.TrimPrefix(c.name, prefixRule)] += c.read()
	}
	return got
}

// scrape returns the lines of ratelimit_ metrics, sorted.
func scrape(t testing.TB, s *Stats, log *zap.Logger) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler("/m", log).ServeHTTP(w, httptest.NewRequest("GET", "/m", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var lines []string
	for _, l := range strings.Split(w.Body.String(), "\n") {
		if l != "" && l[0] != '#' && !strings.HasPrefix(l, "go_") && !strings.HasPrefix(l, "process_") {
			lines = append(lines, l)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestNames compares the names of rules with those of envoyproxy/ratelimit, by hand.
func TestNames(t *testing.T) {
	secret := strings.Repeat("s", 20)
	for _, tt := range []struct {
		rule    rules.Rule
		entries descriptors.Descriptor
		want    string
	}{
		{rules.Rule{Path: []descriptors.Node{node("a", "")}}, entries("a", "x"), "d.a"},
		{rules.Rule{Path: []descriptors.Node{node("a", "x"), node("b", "")}}, entries("a", "x", "b", "y"), "d.a_x.b"},
		{rules.Rule{Path: []descriptors.Node{node("a", "x*")}}, entries("a", "xy"), "d.a_x*"},
		{rules.Rule{Path: []descriptors.Node{node("a", ""), node("b", "1")}, Metric: rules.Metric{Detailed: true}}, entries("a", "", "b", "1"), "d.a_.b_1"},
		{rules.Rule{Path: []descriptors.Node{node("a", "x*"), node("b", "")}, Metric: rules.Metric{Detailed: true}, OneLog: []bool{true, false}}, entries("a", "xy", "b", ""), "d.a_x*.b"},
		{rules.Rule{Path: []descriptors.Node{node("a", "x*"), node("b", "")}, Metric: rules.Metric{Values: []bool{true, true}}}, entries("a", "xy", "b", ""), "d.a_xy.b"},
		{rules.Rule{Path: []descriptors.Node{node("a", "x*")}, Metric: rules.Metric{Values: []bool{true}}, OneLog: []bool{true}}, entries("a", "xy"), "d.a_x*"},
		{rules.Rule{Path: []descriptors.Node{node("api_key", ""), node("b", "")}, Metric: rules.Metric{Detailed: true}}, entries("api_key", secret, "b", "1"), "d.api_key.b_1"},
		{rules.Rule{Path: []descriptors.Node{node("api_key", secret)}}, entries("api_key", secret), "d.api_key"},
		{rules.Rule{Path: []descriptors.Node{node("a", "")}, Metric: rules.Metric{Detailed: true}}, entries("a", "1:2|3\n4\x00\xff 10.1.2.3 1.2.3"), "d.a_1_2_3_4__ 10_1_2_3 1.2.3"},
	} {
		s := New(Options{MaxNames: 10})
		s.Rule(rulesOf(t, tt.rule)[0]).Count(tt.entries, one)
		want := map[string]uint64{tt.want + ".total_hits": 1, tt.want + ".within_limit": 1}
		if diff := cmp.Diff(want, names(s)); diff != "" {
			t.Errorf("%v: (-want +got)\n%s", tt.rule.Path, diff)
		}
	}
}

// TestNamesAreBounded counts values beyond the bound as other, and gives names back when their
// rule goes.
func TestNamesAreBounded(t *testing.T) {
	s := New(Options{MaxNames: 2})
	detailed := rules.Rule{Path: []descriptors.Node{node("a", "")}, Metric: rules.Metric{Detailed: true}}
	m := s.Rule(rulesOf(t, detailed)[0])
	s.Loaded()
	for i := range 10 {
		m.Count(entries("a", fmt.Sprint(i%5)), one)
	}
	m.Count(entries("a", strings.Repeat("x", 10_000)), one)
	want := map[string]uint64{
		"d.a_0.total_hits": 2, "d.a_0.within_limit": 2, "d.a_1.total_hits": 2, "d.a_1.within_limit": 2,
		"d.a_other.total_hits": 7, "d.a_other.within_limit": 7, "ratelimit.service.config_load_success": 1,
	}
	if diff := cmp.Diff(want, names(s)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// A generation with the same rule goes on; one without it ends its names.
	s.Rule(rulesOf(t, detailed)[0])
	s.Loaded()
	m.Count(entries("a", "0"), one)
	if got := names(s)["d.a_0.total_hits"]; got != 3 {
		t.Errorf("after a reload: got %d hits, want 3", got)
	}
	other := s.Rule(rulesOf(t, rules.Rule{Path: []descriptors.Node{node("b", "")}, Metric: rules.Metric{Detailed: true}})[0])
	s.Loaded()
	m.Count(entries("a", "0"), one) // a request that still runs
	m.Count(entries("a", "9"), one)
	other.Count(entries("b", "1"), one)
	other.Count(entries("b", "2"), one)
	want = map[string]uint64{
		"d.b_1.total_hits": 1, "d.b_1.within_limit": 1, "d.b_2.total_hits": 1, "d.b_2.within_limit": 1,
		"ratelimit.service.config_load_success": 3,
	}
	if diff := cmp.Diff(want, names(s)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// Clients can make domains up.
	for i := range 1000 {
		s.UnknownDomain(fmt.Sprint("made-up-", i), 1)
	}
	s.UnknownDomain(strings.Repeat("x", 1000), 2)
	if got := names(s); len(got) > len(want)+maxDomains+1 || got["other.domain_not_found"] != 1000-maxDomains+2 {
		t.Errorf("%d counters, other %d", len(got), got["other.domain_not_found"])
	}
}

// TestOff calls what the daemon calls if there are no metrics.
func TestOff(*testing.T) {
	var s *Stats
	s.Loaded()
	s.Refused()
	s.Method(ShouldRateLimit).Observe(1)
	s.Method(ShouldRateLimit).Invalid()
}

// gatewayFile has the form of the file that Envoy Gateway mounts: the deprecated timer_type, no
// scale, and expressions without an end.
const gatewayFile = `
mappings:
- match: "ratelimit.service.rate_limit.*.*.over_limit"
  name: "ratelimit_service_rate_limit_over_limit"
  timer_type: "histogram"
  labels: {domain: "$1", key1: "$2"}
- match: 'ratelimit\.service\.rate_limit\.([^\.]*)\.([^\.]*)\.([^\.]*)(\..*)?\.over_limit'
  match_type: regex
  name: "ratelimit_service_rate_limit_over_limit"
  timer_type: "histogram"
  labels: {domain: "$1", key1: "$2", key2: "$3"}
- match: "ratelimit_server.*.response_time"
  name: "ratelimit_service_response_time_seconds"
  timer_type: histogram
  histogram_options: {buckets: [5, 50]}
  labels: {grpc_method: "$1"}
- match: "ratelimit.service.config_load_success"
  name: "dropped"
  action: drop
`

// TestMappings makes names by the built-in mappings and by a file.
func TestMappings(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func() (*Mapping, error)
		want string
	}{
		{"built in", func() (*Mapping, error) { return BuiltIn(nil, false) }, `
ratelimit_service_config_load_success 1
ratelimit_service_rate_limit_d_a_over_limit_with_local_cache 2
ratelimit_service_rate_limit_d_b_1_c_e_over_limit_with_local_cache 2
ratelimit_service_rate_limit_over_limit{domain="d",key1="a"} 2
ratelimit_service_rate_limit_over_limit{domain="d",key1="b_1",key2="c"} 4
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.01"} 0
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.025"} 1
ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 1
ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 0.02
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 1`},
		{"built in, milliseconds", func() (*Mapping, error) { return BuiltIn(map[string]string{"my-env": "x"}, true) }, `
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",my_env="x",le="10"} 0
ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit",my_env="x"} 1
ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit",my_env="x"} 20
ratelimit_service_total_requests{grpc_method="ShouldRateLimit",my_env="x"} 1`},
		{"a file", func() (*Mapping, error) { return NewMapping(gatewayFile, nil) }, `
ratelimit_server_ShouldRateLimit_total_requests 1
ratelimit_service_rate_limit_over_limit{domain="d",key1="a"} 2
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="5"} 0
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="50"} 1
ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 20`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := tt.make()
			if err != nil {
				t.Fatal(err)
			}
			s := New(Options{Mapping: m, Memory: true})
			all := rulesOf(t,
				rules.Rule{Path: []descriptors.Node{node("a", "")}},
				rules.Rule{Path: []descriptors.Node{node("b", "1"), node("c", ""), node("e", "")}},
				rules.Rule{Path: []descriptors.Node{node("b", "1"), node("c", ""), node("f", "")}})
			s.Rule(all[0]).Count(entries("a", "x"), decide.Hits{Total: 2, Over: 2, Remembered: true})
			s.Rule(all[1]).Count(entries("b", "1", "c", "x", "e", "x"), decide.Hits{Total: 2, Over: 2, Remembered: true})
			s.Rule(all[2]).Count(entries("b", "1", "c", "x", "f", "x"), decide.Hits{Total: 2, Over: 2})
			s.Loaded()
			s.Method(ShouldRateLimit).Observe(0.020)
			page := scrape(t, s, zap.NewNop())
			for _, line := range strings.Split(strings.TrimSpace(tt.want), "\n") {
				if !strings.Contains("\n"+page+"\n", "\n"+line+"\n") {
					t.Errorf("no line %s in\n%s", line, page)
				}
			}
			if strings.Contains(page, "dropped") {
				t.Error("a dropped metric is there")
			}
		})
	}
}

// TestMappingConflict gives two kinds of metrics one name: the first is shown, and one warning
// says so.
func TestMappingConflict(t *testing.T) {
	m, err := NewMapping(`{mappings: [{match: "ratelimit.*", name: same}, {match: ratelimit.service.*, name: same, help: other}]}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Mapping: m})
	s.Gauge("gauge", func() uint64 { return 7 })
	s.Loaded()
	core, logs := observer.New(zapcore.DebugLevel)
	for range 3 {
		if page := scrape(t, s, zap.New(core)); page != "same 1" {
			t.Errorf("got %s", page)
		}
	}
	if logs.Len() != 1 {
		t.Errorf("got %d warnings: %v", logs.Len(), logs.All())
	}
}

// TestBadMappings refuses files that the libraries would panic on, or that make no sense.
func TestBadMappings(t *testing.T) {
	for text, want := range map[string]string{
		"mappings: [":                                          "yaml",
		"mappings: [{match: a}]":                               "metric name",
		"mappings: [{match: 'a b', name: x}]":                  "invalid match",
		"mappings: [{match: '(', match_type: regex, name: x}]": "regex",
		"mappings: [{match: a, name: x, labels: {le: y}}]":     "reserved",
		"mappings: [{match: a, name: x, labels: {__x: y}}]":    "reserved",
		"mappings: [{match: a, name: x, observer_type: histogram, histogram_options: {buckets: [2, 1]}}]":                  "ascending",
		"mappings: [{match: a, name: x, observer_type: summary, summary_options: {quantiles: [{quantile: 2, error: 1}]}}]": "quantile",
		"mappings: [{match: a, name: x, observer_type: summary, summary_options: {age_buckets: 4000000000}}]":              "range",
		"defaults: {histogram_options: {buckets: [2, 1]}}":                                                                 "defaults",
	} {
		if _, err := NewMapping(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzMapping(f *testing.F) {
	f.Add(gatewayFile)
	f.Add(builtIn)
	f.Add(`{defaults: {observer_type: summary}, mappings: [{match: "ratelimit.*", name: "$1", labels: {ab: "$2"}, scale: -1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := NewMapping(text, map[string]string{"a-b": "c\xff"})
		if err != nil {
			return
		}
		s := New(Options{Mapping: m, MaxNames: 10})
		s.Rule(rulesOf(t, rules.Rule{Path: []descriptors.Node{node("a", "")}, Metric: rules.Metric{Detailed: true}})[0]).Count(entries("a", text[:min(len(text), 100)]), one)
		s.Gauge("gauge", func() uint64 { return 7 })
		s.Loaded()
		s.Method(HealthCheck).Observe(1)
		w := httptest.NewRecorder()
		s.Handler("/", zap.NewNop()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a:b|c 10.0.0.1\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := clean(text)
		if strings.ContainsAny(got, ":|\n\r\x00") || clean(got) != got {
			t.Errorf("clean(%q) = %q", text, got)
		}
		if got != strings.ToValidUTF8(got, "") {
			t.Errorf("clean(%q) is not UTF-8", text)
		}
	})
}

func TestRate(t *testing.T) {
	for n := uint64(2); n < 100_000; n++ {
		var r float64
		if _, err := fmt.Sscan(rate(n), &r); err != nil || uint64(1/r) != n {
			t.Fatalf("1/%s is not %d", rate(n), n)
		}
	}
}

// TestTimesAreBounded sends a sample of many times, which stands for all.
func TestTimesAreBounded(t *testing.T) {
	s := New(Options{Times: true})
	for i := range 2500 {
		s.Method(ShouldRateLimit).Observe(float64(i) / 1000)
	}
	sender := NewSender(s, SenderOptions{Network: "tcp", Log: zap.NewNop()})
	if err := sender.times(); err != nil {
		t.Fatal(err)
	}
	total, lines := 0.0, strings.Split(strings.TrimSpace(string(sender.lines)), "\n")
	for _, l := range lines {
		var r float64 = 1
		if _, sampled, ok := strings.Cut(l, "|@"); ok {
			_, _ = fmt.Sscan(sampled, &r)
		}
		total += math.Floor(1 / r)
	}
	if total != 2500 || len(lines) > maxTimes {
		t.Errorf("%d lines stand for %v calls, want 2500", len(lines), total)
	}
}

// TestStatsdOutage counts on while the server is away, warns once, and sends the sums when it is
// back.
func TestStatsdOutage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	core, logs := observer.New(zapcore.DebugLevel)
	s := New(Options{Times: true})
	sender := NewSender(s, SenderOptions{Network: "tcp", Address: address, Interval: time.Hour, Log: zap.New(core)})
	s.Loaded()
	for range 5 {
		sender.flush(t.Context(), time.Second)
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s.Loaded()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for round, want := range []string{
		"ratelimit.service.config_load_success:2|c\n",
		"ratelimit.service.config_load_success:1|c\n",
		"ratelimit.service.config_load_error:1|c\n",
	} {
		var sending sync.WaitGroup
		sending.Go(func() { _ = sender.Run(ctx) }) // once, because ctx has ended
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c)
		_ = c.Close()
		sending.Wait()
		if string(b) != want {
			t.Errorf("round %d: got %q, want %q", round, b, want)
		}
		if round == 0 {
			s.Loaded()
		} else {
			s.Refused()
		}
	}
	if n := logs.FilterLevelExact(zapcore.WarnLevel); n.Len() != 1 || !strings.Contains(fmt.Sprint(n.All()), address) {
		t.Errorf("got %v, want one warning", n.All())
	}
}

// TestConcurrent counts while rules change, Prometheus scrapes and a sender sends.
func TestConcurrent(t *testing.T) {
	m, err := BuiltIn(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Mapping: m, MaxNames: 5, Memory: true, Times: true})
	generation := rulesOf(t,
		rules.Rule{Path: []descriptors.Node{node("a", "")}},
		rules.Rule{Path: []descriptors.Node{node("b", "")}, Metric: rules.Metric{Detailed: true}})
	meters := []decide.HitMeter{s.Rule(generation[0]), s.Rule(generation[1])}
	s.Loaded()
	var counting, others sync.WaitGroup
	stop := make(chan struct{})
	const calls = 2000
	for range 4 {
		counting.Go(func() {
			for i := range calls {
				meters[0].Count(entries("a", "x"), one)
				meters[1].Count(entries("b", fmt.Sprint(i%10)), one)
				s.Method(ShouldRateLimit).Observe(0.001)
				s.UnknownDomain(fmt.Sprint(i), 1)
			}
		})
	}
	sender := NewSender(s, SenderOptions{Network: "udp", Address: "127.0.0.1:9", Interval: time.Millisecond, Log: zap.NewNop()})
	ctx, cancel := context.WithCancel(t.Context())
	others.Go(func() { _ = sender.Run(ctx) })
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				scrape(t, s, zap.NewNop())
				s.Rule(generation[0])
				s.Rule(generation[1])
				s.Loaded()
			}
		}
	})
	counting.Wait()
	close(stop)
	cancel()
	others.Wait()
	got, hits := names(s), uint64(0)
	for name, n := range got {
		if strings.HasPrefix(name, "d.b_") && strings.HasSuffix(name, ".total_hits") {
			hits += n
		}
	}
	if got["d.a.total_hits"] != 4*calls || hits != 4*calls {
		t.Errorf("got %d and %d hits, want %d", got["d.a.total_hits"], hits, 4*calls)
	}
}
