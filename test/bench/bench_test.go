package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

const loadOutput = `starting benchmark...
spawning thread #0: 8 total client(s). 50000 total requests
Application protocol: h2c
progress: 100% done

finished in 1.50s, 33333.33 req/s, 9.71MB/s
requests: 50000 total, 50000 started, 50000 done, 49999 succeeded, 1 failed, 1 errored, 0 timeout
status codes: 49998 2xx, 0 3xx, 0 4xx, 1 5xx
traffic: 14.57MB (15274440) total, 488.86KB (500590) headers (space savings 95.53%), 12.06MB (12650000) data
                     min         max         mean         sd        +/- sd
time for request:      276us     48.35ms      6.80ms      4.48ms    72.31%
`

func TestParseLoad(t *testing.T) {
	got, err := parseLoad(loadOutput)
	if err != nil {
		t.Fatal(err)
	}
	want := load{rate: 33333.33, total: 50000, succeeded: 49999, status2xx: 49998, data: 12650000}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(load{})); diff != "" {
		t.Errorf("parseLoad (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(loadOutput) {
		if name, _, _ := strings.Cut(line, " "); name == "finished" || name == "requests:" || name == "status" || name == "traffic:" {
			if _, err := parseLoad(strings.Replace(loadOutput, line, "", 1)); err == nil {
				t.Errorf("without %q: got no error", line)
			}
		}
	}
}

func TestLoadCheck(t *testing.T) {
	good := load{total: 100, succeeded: 100, status2xx: 100, data: 100 * 205}
	for _, tt := range []struct {
		name   string
		change func(*load)
		ok     bool
	}{
		{"as asked", func(*load) {}, true},
		{"a digit more in each", func(l *load) { l.data += 300 }, true},
		{"one failed", func(l *load) { l.succeeded-- }, false},
		{"one not 2xx", func(l *load) { l.status2xx-- }, false},
		{"fewer sent", func(l *load) { l.total-- }, false},
		{"errors in trailers, without a message", func(l *load) { l.data = 0 }, false},
		{"a fifth without a message", func(l *load) { l.data = 80 * 205 }, false},
		{"longer answers", func(l *load) { l.data *= 2 }, false},
	} {
		l := good
		tt.change(&l)
		if err := l.check(100, 200); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %t", tt.name, err, tt.ok)
		}
	}
}

func TestScenarios(t *testing.T) {
	for _, c := range comparisons(true) {
		for _, s := range c.scenarios {
			frame, err := s.frame()
			if err != nil {
				t.Fatal(err)
			}
			if n := int(frame[3])<<8 | int(frame[4]); frame[0] != 0 || n != len(frame)-5 {
				t.Errorf("%s/%d: frame % x of %d bytes", s.name, s.descriptors, frame[:5], len(frame))
			}
			for _, m := range []proto.Message{
				newAnswer(s.method), // without a word
				&rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK},
				&rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT},
				&authv3.CheckResponse{Status: new(status.Status)},
			} {
				if m.ProtoReflect().Type() == newAnswer(s.method).ProtoReflect().Type() && s.check(m) == nil {
					t.Errorf("%s/%d takes the answer %v", s.name, s.descriptors, m)
				}
			}
		}
	}
}

// TestServices finds each service of a comparison where it is looked for by name.
func TestServices(t *testing.T) {
	for _, c := range comparisons(true) {
		if c.second != "" && !slices.Contains(c.services, c.second) {
			t.Errorf("%s: %s is not among %q", c.what, c.second, c.services)
		}
		for _, service := range c.services {
			if transport := transportOf(service); (transport != "") != (c.what == transportName) || !strings.HasPrefix(service, transport) {
				t.Errorf("%s/%s: the transport is %q", c.what, service, transport)
			}
			if hasRedis(service) != strings.Contains(service, "redis") {
				t.Errorf("%s/%s: with Redis is %t", c.what, service, hasRedis(service))
			}
		}
	}
}

func TestRulesWithoutTiers(t *testing.T) {
	if strings.Contains(rulesWithoutTiers, "by_tier") || strings.Count(rulesWithoutTiers, "name:") != strings.Count(rules, "name:") {
		t.Errorf("the rules are %s", rulesWithoutTiers)
	}
}

func TestTable(t *testing.T) {
	r := &row{service: onRedis, scenario: scenario{name: "allowed", descriptors: 1}}
	for _, rates := range [][2]float64{{80, 100}, {45, 50}, {170, 200}} {
		r.ours = append(r.ours, sample{rate: rates[0], cpu: 3e-6, redisCPU: 4e-6})
		r.base = append(r.base, sample{rate: rates[1], cpu: 2e-6})
	}
	second := &row{service: onStandardRedis, scenario: r.scenario, ours: r.base, base: r.base, second: r.base}
	r2 := *r
	r2.service, r2.second = onUnaryRedis, r.base
	for _, s := range [][]sample{r2.ours, r2.base} {
		for i := range s {
			s[i].allocs = 30
		}
	}
	var out bytes.Buffer
	m := measured{comparison: comparison{what: "store", base: bareName, services: []string{onMemory, onRedis}}, rows: []*row{r}}
	m.write(&out)
	m = measured{
		comparison: comparison{what: transportName, base: bareName, services: []string{onUnaryRedis, onStandardRedis}, second: onStandardRedis},
		rows:       []*row{&r2, second},
	}
	m.write(&out)
	for _, want := range []string{
		"| store | answer | descriptors | req/s | bare req/s | ratio (min–max) | CPU µs | bare CPU µs | ratio | Redis CPU µs |\n|---|---|---|---|---|---|---|---|---|---|",
		"| redis | allowed | 1 | 80 | 100 | **0.85** (0.80–0.90) | 3.0 | 2.0 | 1.50 | 4.0 |",
		"| transport | answer | descriptors | req/s | bare req/s | ratio (min–max) | CPU µs | bare CPU µs | ratio | ratio to standard-redis (min–max) | of CPU | allocs | bare allocs | Redis CPU µs |",
		"| unary-redis | allowed | 1 | 80 | 100 | **0.85** (0.80–0.90) | 3.0 | 2.0 | 1.50 | **0.85** (0.80–0.90) | 1.50 | 30.0 | 30.0 | 4.0 |",
		"| standard-redis | allowed | 1 | 100 | 100 | **1.00** (1.00–1.00) | 2.0 | 2.0 | 1.00 |  |  | 30.0 | 30.0 | 0.0 |",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("table is\n%s\nwant the row\n%s", &out, want)
		}
	}
}

func TestParseTimes(t *testing.T) {
	got, err := parseTimes(strings.NewReader("1795310769140893\t200\t1981\n1795310769141399\t200\t1000\n1795310769141576\t200\t1372\n"))
	if err != nil || got != 0.001372 {
		t.Errorf("parseTimes = %v, %v, want 1372 microseconds", got, err)
	}
	for _, bad := range []string{"", "1\t200\n", "1\t200\tx\n"} {
		if _, err := parseTimes(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

func TestBehindEnvoyTable(t *testing.T) {
	r := &behindEnvoy{services: []string{bareName, onUnary}, samples: map[string][]envoySample{
		bareName: {{rate: 100, cpu: 50e-6, latency: 900e-6, alone: 500e-6}, {rate: 100, cpu: 40e-6, latency: 700e-6, alone: 500e-6}},
		onUnary:  {{rate: 110, cpu: 10e-6, latency: 700e-6, alone: 500e-6}, {rate: 130, cpu: 10e-6, latency: 650e-6, alone: 500e-6}},
	}}
	var out bytes.Buffer
	r.write(&out)
	for _, want := range []string{
		"| bare | 100 |  | 45.0 |  | 800 | 300 |  |",
		"| unary | 120 | **1.20** (1.10–1.30) | 10.0 | **0.23** (0.20–0.25) | 675 | 175 | **0.62** (0.50–0.75) |",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("table is\n%s\nwant the row\n%s", &out, want)
		}
	}
}
