package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/slidegate/slidegate/test/peer"
)

// The load is few connections with many streams each, as Envoy's are.
const (
	h2load      = "h2load"
	connections = 8
	streams     = 32
)

// A load is what h2load reports of one measurement.
type load struct {
	rate      float64 // requests a second
	total     int
	succeeded int
	status2xx int
	data      int // bytes of response bodies
}

// runLoad sends n requests of a method with the body in file.
func runLoad(ctx context.Context, address, method, file string, n int) (load, error) {
	return h2loads(ctx,
		"-c", strconv.Itoa(connections), "-m", strconv.Itoa(streams), "-n", strconv.Itoa(n), "-d", file,
		"-H", "content-type: application/grpc", "-H", "te: trailers",
		"http://"+address+method)
}

// h2loads runs h2load.
func h2loads(ctx context.Context, args ...string) (load, error) {
	out, err := exec.CommandContext(ctx, h2load, args...).CombinedOutput()
	if err != nil {
		return load{}, fmt.Errorf("%s: %w\n%s", h2load, err, out)
	}
	l, err := parseLoad(string(out))
	if err != nil {
		return load{}, fmt.Errorf("%s: %w\n%s", h2load, err, out)
	}
	return l, nil
}

var (
	loadRate     = regexp.MustCompile(`(?m)^finished in [^,]+, ([0-9.]+) req/s`)
	loadRequests = regexp.MustCompile(`(?m)^requests: (\d+) total, \d+ started, \d+ done, (\d+) succeeded`)
	loadStatus   = regexp.MustCompile(`(?m)^status codes: (\d+) 2xx`)
	loadTraffic  = regexp.MustCompile(`(?m)^traffic: .* \((\d+)\) data$`)
)

func parseLoad(text string) (load, error) {
	var l load
	for _, p := range []struct {
		pattern *regexp.Regexp
		values  []any
	}{
		{loadRate, []any{&l.rate}},
		{loadRequests, []any{&l.total, &l.succeeded}},
		{loadStatus, []any{&l.status2xx}},
		{loadTraffic, []any{&l.data}},
	} {
		m := p.pattern.FindStringSubmatch(text)
		if m == nil {
			return l, fmt.Errorf("its output has no line %q", p.pattern)
		}
		for i, v := range p.values {
			if _, err := fmt.Sscan(m[i+1], v); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// check fails unless every one of n requests was answered with a message of about
// size bytes. gRPC reports errors in trailers with status 200, so only a missing body
// shows them. Sizes differ by the digits of the numbers in the messages.
func (l load) check(n, size int) error {
	frame := size + len(peer.Frame(nil))
	switch {
	case l.total != n || l.succeeded != n || l.status2xx != n:
		return fmt.Errorf("of %d requests %d succeeded, %d with a status 2xx", n, l.succeeded, l.status2xx)
	case l.data < n*frame*9/10 || l.data > n*frame*11/10:
		return fmt.Errorf("the answers have %d bytes, want about %d times %d", l.data, n, frame)
	}
	return nil
}
