package main

import (
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/traffic"
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
				traffic.NewAnswer(s.Method), // without a word
				&rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK},
				&rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT},
				&authv3.CheckResponse{Status: new(status.Status)},
			} {
				if m.ProtoReflect().Type() == traffic.NewAnswer(s.Method).ProtoReflect().Type() && s.Check(m) == nil {
					t.Errorf("%s/%d takes the answer %v", s.name, s.descriptors, m)
				}
			}
		}
	}
}
