package main

import (
	"errors"
	"net"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/bench/internal/traffic"
)

// TestFrameReader calls the frame reader with a real client of gRPC.
func TestFrameReader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- serveFrames(l, &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}) }()
	conn, err := traffic.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := limited("allowed", strings.Repeat(largeKey, 100), 3, rlsv3.RateLimitResponse_OK)
	for range 100 { // more bytes than the client may send without a WINDOW_UPDATE
		answer := new(rlsv3.RateLimitResponse)
		if err := conn.Invoke(t.Context(), s.Method, s.Request, answer); err != nil || answer.GetOverallCode() != rlsv3.RateLimitResponse_OK {
			t.Fatalf("answer %v, %v", answer, err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestGoals has one server miss each goal by a little.
func TestGoals(t *testing.T) {
	servers := func(micros, micros7, redis, three, memory, added float64) []*contender {
		of := func(name string, straight, three, micros, added float64) *contender {
			return &contender{
				target: target{name: name, peer: name == framesName || name == referenceName}, straight: []sample{{rate: straight}}, three: []sample{{rate: three}},
				busy: []sample{{cpu: micros / 1e6}}, single: []sample{{}}, added: []float64{added / 1e6},
			}
		}
		return []*contender{of(framesName, 1000, 0, 5, 100), of(onMemory, memory, 0, micros7, 100), of(onRedis, redis, three, micros, added), of(referenceName, 100, 100, 80, 300)}
	}
	for name, all := range map[string][]*contender{
		"":                   servers(16, 7, 600, 400, 950, 240),
		"connections, Redis": servers(16.1, 7, 600, 400, 950, 240),
		"from memory":        servers(16, 7.1, 600, 400, 950, 240),
		"straight, Redis":    servers(16, 7, 599, 400, 950, 240),
		"three descriptors":  servers(16, 7, 600, 399, 950, 240),
		"straight, memory":   servers(16, 7, 600, 400, 949, 240),
		"one connection":     servers(16, 7, 600, 400, 950, 241),
	} {
		var out strings.Builder
		writeGoals(&out, all)
		for line := range strings.Lines(out.String()) {
			if missed := strings.HasSuffix(line, "| no |\n"); missed != (name != "" && strings.Contains(line, name)) {
				t.Errorf("%q is to be missed: %s", name, line)
			}
		}
	}
}
