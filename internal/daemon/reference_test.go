package daemon

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// referenceRules have one rule for each way to count and to name.
const referenceRules = `
domain: edge
descriptors:
  - key: plain
    value: ten
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: free
    rate_limit: {unlimited: true}
  - key: detailed
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: open
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value: GET
        descriptors:
          - key: user
            rate_limit: {unit: hour, requests_per_unit: 100}
  - key: file
    value: "a*"
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: api_key
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: masked_remote_address
    value: 10.0.0.0/8
    rate_limit: {unit: hour, requests_per_unit: 100}
`

// referenceCalls are calls with descriptors of one entry, and the counters that they add to, by
// hand from the rules of envoyproxy/ratelimit.
var referenceCalls = []struct {
	what, request string
	times         int
	adds          map[string]int
}{
	{
		"within, near (the threshold is 8), over",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "plain", "value": "ten"}]}]}`, 12,
		map[string]int{"edge.plain_ten.total_hits": 12, "edge.plain_ten.within_limit": 10, "edge.plain_ten.near_limit": 2, "edge.plain_ten.over_limit": 2},
	},
	{
		"a denied cost counts as over in full, a question of 0 not at all",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "plain", "value": "ten"}], "hits_addend": 3},
			{"entries": [{"key": "plain", "value": "ten"}], "hits_addend": 0}]}`, 1,
		map[string]int{"edge.plain_ten.total_hits": 3, "edge.plain_ten.over_limit": 3},
	},
	{
		"a cost across the threshold of 80 counts in parts",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "open", "value": "x"}], "hits_addend": 45}]}`, 2,
		map[string]int{"edge.open.total_hits": 90, "edge.open.within_limit": 90, "edge.open.near_limit": 10},
	},
	{
		"shadow",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "shadow", "value": "x"}]}]}`, 3,
		map[string]int{"edge.shadow.total_hits": 3, "edge.shadow.within_limit": 2, "edge.shadow.near_limit": 1, "edge.shadow.over_limit": 1, "edge.shadow.shadow_mode": 1},
	},
	{"unlimited", `{"domain": "edge", "descriptors": [{"entries": [{"key": "free", "value": "x"}]}]}`, 1, nil},
	{"no rule", `{"domain": "edge", "descriptors": [{"entries": [{"key": "none", "value": "x"}]}]}`, 1, nil},
	{
		"detailed_metric",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "detailed", "value": "some:value"}]}, {"entries": [{"key": "detailed"}]}]}`, 1,
		map[string]int{
			"edge.detailed_some_value.total_hits": 1, "edge.detailed_some_value.within_limit": 1,
			"edge.detailed_.total_hits": 1, "edge.detailed_.within_limit": 1,
		},
	},
	{
		"value_to_metric",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "route", "value": "api"}, {"key": "method", "value": "GET"}, {"key": "user", "value": "7"}]}]}`, 1,
		map[string]int{"edge.route_api.method_GET.user.total_hits": 1, "edge.route_api.method_GET.user.within_limit": 1},
	},
	{
		"a wildcard without flags shows the pattern",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "file", "value": "abc"}]}]}`, 1,
		map[string]int{"edge.file_a*.total_hits": 1, "edge.file_a*.within_limit": 1},
	},
	{
		"an API key is not shown",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "` + secretKey + `"}]}]}`, 1,
		map[string]int{"edge.api_key.total_hits": 1, "edge.api_key.within_limit": 1},
	},
	{
		"the dots of an address become underscores",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "masked_remote_address", "value": "10.0.0.0/8"}]}]}`, 1,
		map[string]int{"edge.masked_remote_address_10_0_0_0/8.total_hits": 1, "edge.masked_remote_address_10_0_0_0/8.within_limit": 1},
	},
	{
		"a limit that comes with a descriptor has all entries, but no API key",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "open", "value": "y"}, {"key": "empty"}, {"key": "api_key", "value": "` + secretKey + `"}],
			"limit": {"requests_per_unit": 5, "unit": "HOUR"}}]}`, 1,
		map[string]int{"edge.open_y.empty.api_key.total_hits": 1, "edge.open_y.empty.api_key.within_limit": 1},
	},
	{
		"an unknown domain counts each descriptor",
		`{"domain": "a|b", "descriptors": [{"entries": [{"key": "x", "value": "y"}]}, {"entries": [{"key": "z", "value": "y"}]}]}`, 1,
		map[string]int{"a_b.domain_not_found": 2},
	},
}

const secretKey = "secret-key-of-a-customer"

// TestReference compares the metrics of envoyproxy/ratelimit with what its rules say, over
// Prometheus and over statsd with both protocols.
func TestReference(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) { testReference(t, protocol) })
	}
}

func testReference(t *testing.T, protocol string) {
	s := testSettings(t)
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, s.Rules.Path, referenceRules)
	s.Tiers.Source = settings.TiersNone
	server := newStatsd(t, protocol)
	s.DropIn.Metrics.Address, s.DropIn.Metrics.Path = "127.0.0.1:0", "/metrics"
	s.DropIn.Statsd = settings.Statsd{Address: server.address, Protocol: protocol, Interval: 10 * time.Millisecond}
	s.DropIn.Tags = map[string]string{"zone": "a.b", "env": "test"}
	r := start(t, s)

	want := map[string]int{
		"ratelimit.service.config_load_success":                  1,
		"ratelimit.service.call.should_rate_limit.service_error": 1,
		"ratelimit_server.ShouldRateLimit.total_requests":        1,
		"ratelimit_server.Check.total_requests":                  1,
	}
	for _, c := range referenceCalls {
		for range c.times {
			if _, err := r.ask(c.request); err != nil {
				t.Fatal(c.what, err)
			}
			want["ratelimit_server.ShouldRateLimit.total_requests"]++
		}
		for name, n := range c.adds {
			want["ratelimit.service.rate_limit."+name] += n
		}
	}
	if _, err := r.ask(`{"domain": "", "descriptors": [{"entries": [{"key": "x"}]}]}`); err == nil {
		t.Error("an empty domain: got no error")
	}
	if _, err := healthv1.NewHealthClient(dial(t, r.GRPC[0])).Check(t.Context(), new(healthv1.HealthCheckRequest)); err != nil {
		t.Fatal(err)
	}

	checkScrape(t, r)
	const tags = ".__env=test.__zone=a_b"
	tagged := make(map[string]int)
	for name, n := range want {
		tagged[name+tags] = n
	}
	waitFor(t, "the counters of statsd", func() bool { return cmp.Equal(server.counters(), tagged) })
	if diff := cmp.Diff(tagged, server.counters()); diff != "" {
		t.Errorf("statsd: (-want +got)\n%s", diff)
	}
	calls := want["ratelimit_server.ShouldRateLimit.total_requests"]
	// The times are a sample: one that is added just as an interval ends may be left out.
	times := func() int { return server.times("ratelimit_server.ShouldRateLimit.response_time" + tags) }
	waitFor(t, "the times of statsd", func() bool { return times() > calls/2 })
	if n := times(); n > calls {
		t.Errorf("statsd has %d times of %d calls", n, calls)
	}
	if text := server.text(); strings.Contains(text, secretKey) {
		t.Error("statsd gets an API key")
	}
}

// checkScrape looks for the tags, for counters of each kind and for those of the process in what
// Prometheus gets. TestReferenceSideBySide compares all counters of rules.
func checkScrape(t *testing.T, r *testRun) {
	t.Helper()
	code, page := get(t, "http://"+r.Reference+"/metrics")
	if code != 200 || strings.Contains(page, secretKey) {
		t.Errorf("status %d, or an API key is in\n%s", code, page)
	}
	for _, want := range []string{
		`ratelimit_service_config_load_success{env="test",zone="a.b"} 1`,
		`ratelimit_service_rate_limit_total_hits{domain="edge",env="test",key1="api_key",zone="a.b"} 1`,
		`ratelimit_service_rate_limit_total_hits{domain="edge",env="test",key1="route_api",key2="method_GET",zone="a.b"} 1`,
		`ratelimit_service_response_time_seconds_count{env="test",grpc_method="ShouldRateLimit",zone="a.b"} 28`,
		`ratelimit_service_should_rate_limit_error{env="test",err_type="service_error",zone="a.b"} 1`,
		`ratelimit_service_total_requests{env="test",grpc_method="Check",zone="a.b"} 1`,
		"go_memstats_alloc_bytes ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("Prometheus gets no %s:\n%s", want, page)
		}
	}
}

// statsd is a statsd server of the test.
type statsd struct {
	address string
	close   func()

	mu    sync.Mutex
	lines []string
}

// newStatsd returns a server on a free port, until the test ends.
func newStatsd(t *testing.T, protocol string) *statsd {
	t.Helper()
	s := new(statsd)
	var done sync.WaitGroup
	if protocol == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.address, s.close = c.LocalAddr().String(), sync.OnceFunc(func() { _ = c.Close(); done.Wait() })
		done.Go(func() {
			b := make([]byte, 64<<10)
			for {
				n, _, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				if n > 1432 {
					t.Errorf("a datagram has %d bytes", n)
				}
				for _, line := range strings.Split(strings.TrimSuffix(string(b[:n]), "\n"), "\n") {
					s.add(line)
				}
			}
		})
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.address = l.Addr().String()
		s.serve(l, &done)
	}
	t.Cleanup(s.close)
	return s
}

// serve reads lines over TCP.
func (s *statsd) serve(l net.Listener, done *sync.WaitGroup) {
	s.close = sync.OnceFunc(func() { _ = l.Close(); done.Wait() })
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					s.add(in.Text())
				}
			})
		}
	})
}

func (s *statsd) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *statsd) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// counters returns the sums of the counters.
func (s *statsd) counters() map[string]int {
	sums := make(map[string]int)
	for _, line := range strings.Split(s.text(), "\n") {
		name, value, _ := strings.Cut(line, ":")
		var n int
		if rest, ok := strings.CutSuffix(value, "|c"); ok {
			_, _ = fmt.Sscan(rest, &n)
			sums[name] += n
		}
	}
	return sums
}

// gauge returns the last value of a gauge, or -1.
func (s *statsd) gauge(name string) int {
	last := -1
	for _, line := range strings.Split(s.text(), "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok && strings.HasSuffix(value, "|g") {
			_, _ = fmt.Sscan(strings.TrimSuffix(value, "|g"), &last)
		}
	}
	return last
}

// times returns how many times of a timer came.
func (s *statsd) times(name string) (n int) {
	for _, line := range strings.Split(s.text(), "\n") {
		if strings.HasPrefix(line, name+":") && strings.HasSuffix(line, "|ms") {
			n++
		}
	}
	return n
}

// TestReferenceSideBySide sends the calls to envoyproxy/ratelimit too, and compares what Prometheus
// gets from both.
func TestReferenceSideBySide(t *testing.T) {
	binary := servers.ReferenceBinary(t)
	calls := slices.Clone(referenceCalls)
	for _, cost := range []int{10, 10, 10, 1} { // the third does not fit
		calls = append(calls, referenceCalls[0])
		calls[len(calls)-1].request = fmt.Sprintf(`{"domain": "edge", "descriptors": [{"entries": [{"key": "usage", "value": "x"}], "hits_addend": %d}]}`, cost)
		calls[len(calls)-1].times = 1
	}
	rules := referenceRules + `
  - key: usage
    rate_limit: {unit: hour, requests_per_unit: 25}
`
	theirs := freeAddress(t)
	reference := servers.StartReference(t, servers.ReferenceOptions{
		Binary: binary, Rules: rules, Redis: servers.StartRedis(t).Addr(),
		Env: map[string]string{"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": theirs},
	})
	s := testSettings(t)
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, s.Rules.Path, rules)
	s.Tiers.Source = settings.TiersNone
	s.DropIn.UsageReports = true
	s.DropIn.Metrics.Address, s.DropIn.Metrics.Path = "127.0.0.1:0", "/metrics"
	r := start(t, s)
	for _, c := range calls {
		for range c.times {
			if _, err := r.ask(c.request); err != nil {
				t.Fatal(c.what, err)
			}
			if _, err := askAt(t, reference.GRPC(), c.request); err != nil {
				t.Fatal(c.what, err)
			}
		}
	}
	hits := func(address string) []string {
		_, page := get(t, "http://"+address+"/metrics")
		var lines []string
		for _, line := range strings.Split(page, "\n") {
			if strings.HasPrefix(line, "ratelimit_service_rate_limit_") && !strings.Contains(line, "api_key") {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		return lines
	}
	var diff string
	for range 100 { // the reference hands its counts over at intervals
		if diff = cmp.Diff(hits(theirs), hits(r.Reference)); diff == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("(-envoyproxy/ratelimit +rls)\n%s", diff)
}

// TestReferenceLocalCache asks what is counted of denials from memory, in the order of the suite
// of envoyproxy/ratelimit: the first denial comes from Redis there.
func TestReferenceLocalCache(t *testing.T) {
	redis := servers.StartRedis(t)
	for _, counts := range []bool{true, false} {
		s := testSettings(t)
		onRedis(t, &s, redis.Addr())
		s.Store.Timeout = 5 * time.Second
		s.Store.Redis.KeyPrefix = fmt.Sprint(counts, ":")
		s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
		write(t, s.Rules.Path, referenceRules)
		server := newStatsd(t, "tcp")
		s.DropIn.LocalCache = counts
		s.DropIn.Statsd = settings.Statsd{Address: server.address, Protocol: "tcp", Interval: 10 * time.Millisecond}
		r := start(t, s)
		for range 15 {
			if _, err := r.ask(`{"domain": "edge", "descriptors": [{"entries": [{"key": "plain", "value": "ten"}]}]}`); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "the counters", func() bool { return server.counters()["ratelimit.service.rate_limit.edge.plain_ten.over_limit"] == 5 })
		local := server.counters()["ratelimit.service.rate_limit.edge.plain_ten.over_limit_with_local_cache"]
		most, hits, misses := 0, -1, -1
		if counts { // a denial is remembered for a second, which a slow machine may need for the others
			most, hits, misses = 4, local, 15-local
		}
		if local > most || counts && local == 0 {
			t.Errorf("over_limit_with_local_cache: got %d, want up to %d", local, most)
		}
		for name, want := range map[string]int{"hitCount": hits, "missCount": misses, "lookupCount": max(hits+misses, -1)} {
			waitFor(t, fmt.Sprint(name, " is ", want), func() bool { return server.gauge("ratelimit.localcache."+name) == want })
		}
		if n := server.gauge("ratelimit.redis_pool.cx_active"); n < 1 {
			t.Errorf("cx_active: got %d", n)
		}
		if n := server.counters()["ratelimit.redis_pool.cx_total"]; n < 1 {
			t.Errorf("cx_total: got %d", n)
		}
	}
}
