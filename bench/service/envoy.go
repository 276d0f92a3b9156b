package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/test/edge"
)

// envoyName is what the measurement behind Envoy is called; the row of a service
// behind it is envoyName and the service's name.
const envoyName = "envoy"

const (
	envoyConnections = 16 // each with one request at a time
	envoyThreads     = 2
	// Latency is measured at pacedRate requests a second of each connection, for
	// pacedTime. That is so few that no request waits for a CPU.
	pacedRate = 50
	pacedTime = 2 * time.Second
)

//go:embed envoy.yaml
var envoyConfig []byte

// An envoySample is one measurement of one service behind Envoy.
type envoySample struct {
	rate    float64 // requests a second, all connections busy
	cpu     float64 // CPU seconds of the service for one request, meanwhile
	latency float64 // median seconds of a request, at the paced rate
	alone   float64 // the same of requests for which Envoy does not call the service
}

// behindEnvoy is the samples behind Envoy, by service, from the same rounds.
type behindEnvoy struct {
	services []string // in the order of the table, the bare server first
	samples  map[string][]envoySample
}

// measureEnvoy measures the chosen services.
func (b *bench) measureEnvoy(ctx context.Context) (*behindEnvoy, error) {
	r := &behindEnvoy{services: []string{bareName}, samples: make(map[string][]envoySample)}
	for _, service := range []string{onUnary, onStandard} {
		if b.only.MatchString(envoyName + "/" + service) {
			r.services = append(r.services, service)
		}
	}
	if len(r.services) == 1 {
		return nil, nil //nolint:nilnil // nothing was chosen
	}
	config := filepath.Join(b.dir, "envoy.yaml")
	if err := os.WriteFile(config, envoyConfig, 0o600); err != nil {
		return nil, err
	}
	s := limited("allowed", largeKey, 1, rlsv3.RateLimitResponse_OK)
	proxies, targets := make(map[string]*edge.EnvoyServer), make(map[string]target)
	for _, name := range slices.Backward(r.services) { // the bare server answers what a service did
		var t target
		var err error
		if name == bareName {
			answer, err := s.sample(ctx, targets[r.services[1]].grpc, 1)
			if err != nil {
				return nil, err
			}
			var stop func()
			if t, stop, err = b.bare(bareName, s.Method, answer); err != nil {
				return nil, err
			}
			defer stop()
		} else if t, err = b.service(name); err != nil {
			return nil, err
		}
		e := edge.Envoy(b.t, edge.EnvoyOptions{Binary: b.envoy, Config: config, RLS: t.grpc, Concurrency: envoyThreads})
		defer e.Stop()
		proxies[name], targets[name] = e, t
	}
	for round := range b.rounds + 1 { // the first warms up
		order := slices.Clone(r.services)
		if round%2 == 1 { // no service is always first
			slices.Reverse(order)
		}
		for _, name := range order {
			taken, err := b.sampleEnvoy(ctx, targets[name], proxies[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if round == 0 {
				continue
			}
			r.samples[name] = append(r.samples[name], taken)
			fmt.Fprintf(b.progress, "round %d  %-8s %s  %7.0f req/s  %5.1f us CPU  %6.0f us, alone %6.0f us\n",
				round, name, envoyName, taken.rate, taken.cpu*1e6, taken.latency*1e6, taken.alone*1e6)
		}
	}
	return r, nil
}

// sampleEnvoy measures once, and checks that Envoy has called the service for each
// request and got an answer.
func (b *bench) sampleEnvoy(ctx context.Context, t target, e *edge.EnvoyServer) (s envoySample, err error) {
	withKey := []string{"-H", "x-api-key: " + largeKey}
	n := b.requests / 2 // each takes longer than without Envoy
	before, err := b.read(ctx, t)
	if err != nil {
		return s, err
	}
	l, err := b.envoyLoad(ctx, e, envoyConnections, n, n, withKey...)
	if err != nil {
		return s, err
	}
	after, err := b.read(ctx, t)
	if err != nil {
		return s, err
	}
	s.rate, s.cpu = l.rate, (after.CPU-before.CPU)/float64(n)

	paced := int(pacedRate * envoyConnections * pacedTime.Seconds())
	for _, p := range []struct {
		into    *float64
		calls   int
		headers []string
	}{{&s.alone, 0, nil}, {&s.latency, paced, withKey}} {
		file := filepath.Join(b.dir, "times")
		args := append([]string{"--rps", strconv.Itoa(pacedRate), "--log-file", file}, p.headers...)
		if _, err := b.envoyLoad(ctx, e, envoyConnections, paced, p.calls, args...); err != nil {
			return s, err
		}
		if *p.into, err = readTimes(file); err != nil {
			return s, err
		}
		if err := os.Remove(file); err != nil { // h2load would add to it
			return s, err
		}
	}
	return s, nil
}

// envoyLoad sends n requests on connections that have one request at a time each. It fails unless the
// service allowed calls of them.
func (b *bench) envoyLoad(ctx context.Context, e *edge.EnvoyServer, clients, n, calls int, args ...string) (load, error) {
	const answered = "cluster.rls.ratelimit.ok"
	before, err := e.Stat(answered)
	if err != nil {
		return load{}, err
	}
	l, err := h2loads(ctx, append(args, "-c", strconv.Itoa(clients), "-m", "1", "-n", strconv.Itoa(n), e.URL()+"/")...)
	if err != nil {
		return l, err
	}
	after, err := e.Stat(answered)
	if err != nil {
		return l, err
	}
	if l.succeeded != n || l.status2xx != n {
		return l, fmt.Errorf("of %d requests %d succeeded, %d with a status 2xx", n, l.succeeded, l.status2xx)
	}
	if got := int(after - before); got != calls {
		return l, fmt.Errorf("%d of %d requests were allowed by the service, want %d", got, n, calls)
	}
	return l, nil
}

// readTimes returns the median time of a request in h2load's log, in seconds.
func readTimes(file string) (float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return parseTimes(f)
}

// parseTimes reads lines with the start of a request, its status, and its time in
// microseconds.
func parseTimes(in io.Reader) (float64, error) {
	var times []float64
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			return 0, fmt.Errorf("the log of %s has the line %q", h2load, lines.Text())
		}
		micros, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return 0, err
		}
		times = append(times, micros/1e6)
	}
	if len(times) == 0 {
		return 0, fmt.Errorf("the log of %s is empty", h2load)
	}
	return figures.Median(times), lines.Err()
}

// write writes the result as a Markdown table.
func (r *behindEnvoy) write(w io.Writer) {
	if r == nil {
		return
	}
	column := func(service string, figure func(envoySample) float64) []float64 {
		return figures.Column(r.samples[service], figure)
	}
	ratio := func(service string, figure func(envoySample) float64) string {
		if service == bareName {
			return ""
		}
		return figures.Spread(figures.Ratios(column(service, figure), column(bareName, figure)), 2)
	}
	rate := func(s envoySample) float64 { return s.rate }
	cpu := func(s envoySample) float64 { return s.cpu }
	added := func(s envoySample) float64 { return s.latency - s.alone }
	figures.Head(w, fmt.Sprintf("| behind Envoy | req/s | ratio to bare | CPU µs | ratio to bare (min–max) | p50 µs at %d req/s | added to Envoy alone µs | ratio to bare (min–max) |",
		pacedRate*envoyConnections))
	for _, name := range r.services {
		fmt.Fprintf(w, "| %s | %.0f | %s | %.1f | %s | %.0f | %.0f | %s |\n", name,
			figures.Median(column(name, rate)), ratio(name, rate), 1e6*figures.Median(column(name, cpu)), ratio(name, cpu),
			1e6*figures.Median(column(name, func(s envoySample) float64 { return s.latency })), 1e6*figures.Median(column(name, added)), ratio(name, added))
	}
	fmt.Fprintln(w)
}
