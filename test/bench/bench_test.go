package main

import (
	"bytes"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/figures"
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

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader(`# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
process_cpu_seconds_total 12.34
slidegate_decisions_total{domain="bench",outcome="allowed",rule="per-key"} 5
slidegate_decisions_total{domain="bench",outcome="allowed",rule="per-address"} 1.5e+06
slidegate_decisions_total{domain="bench",outcome="denied",rule="per-key"} 7
slidegate_decisions_total_other 9
`))
	if err != nil {
		t.Fatal(err)
	}
	want := reading{cpu: 12.34, decisions: map[string]float64{"allowed": 1500005, "denied": 7}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(reading{})); diff != "" {
		t.Errorf("parseMetrics (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "process_cpu_seconds_total x\n"} {
		if _, err := parseMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

func TestParseRedisCPU(t *testing.T) {
	got, err := parseRedisCPU("$99\r\n# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:2.250000\r\nused_cpu_sys_children:9.000000\r\n\r\n+OK\r\n")
	if err != nil || got != 3.75 {
		t.Errorf("parseRedisCPU = %v, %v, want 3.75", got, err)
	}
	if _, err := parseRedisCPU("-NOAUTH Authentication required.\r\n"); err == nil {
		t.Error("an error of Redis: got no error")
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 3, 2, 1}, 2.5},
	} {
		if got := figures.Median(tt.in); got != tt.want {
			t.Errorf("figures.Median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios() {
		if n := len(s.request.GetDescriptors()); n != s.descriptors {
			t.Errorf("%s/%d has %d descriptors", s.name, s.descriptors, n)
		}
		frame, err := s.frame()
		if err != nil {
			t.Fatal(err)
		}
		if n := int(frame[3])<<8 | int(frame[4]); frame[0] != 0 || n != len(frame)-5 {
			t.Errorf("%s/%d: frame % x of %d bytes", s.name, s.descriptors, frame[:5], len(frame))
		}
		if err := s.check(&rlsv3.RateLimitResponse{OverallCode: s.want}); err == nil {
			t.Errorf("%s/%d takes an answer with a code and nothing else", s.name, s.descriptors)
		}
	}
}

func TestTable(t *testing.T) {
	r := &row{store: "redis", scenario: scenario{name: "allowed", descriptors: 1}}
	for _, rates := range [][2]float64{{80, 100}, {45, 50}, {170, 200}} {
		r.ours = append(r.ours, sample{rate: rates[0], cpu: 3e-6, redisCPU: 4e-6})
		r.bare = append(r.bare, sample{rate: rates[1], cpu: 2e-6})
	}
	var out bytes.Buffer
	writeTable(&out, []*row{r})
	want := "| redis | allowed | 1 | 80 | 100 | **0.85** (0.80–0.90) | 3.0 | 2.0 | 1.50 | 4.0 |"
	if !strings.Contains(out.String(), want+"\n") {
		t.Errorf("table is\n%s\nwant the row\n%s", &out, want)
	}
}
