package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/program"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// The servers of the goals that are not rls.
const (
	framesName    = "frame reader"
	referenceName = "envoyproxy/ratelimit"
)

// singleRequests are those of one connection behind Envoy.
const singleRequests = 2000

// A contender is a server with its Envoy and what was measured.
type contender struct {
	target
	proxy     *edge.EnvoyServer
	straight  []sample // one descriptor
	three     []sample // three descriptors; not of every server
	busy      []sample // behind Envoy, 16 connections
	single    []sample // behind Envoy, one connection; its rate is that of all requests
	added     []float64
	asksThree bool
}

// reportGoals measures the goals and writes them as a Markdown table, with the figures below.
func reportGoals(ctx context.Context, o options, out, progress io.Writer) (err error) {
	var all []*contender
	failed := process.Run(ctx, func(t process.TB) {
		b := &bench{options: o, t: t, progress: progress, dir: t.TempDir(), ours: make(map[string]target)}
		all, err = b.measureGoals(ctx)
	})
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s; one Envoy worker; medians of %d rounds\n\n", program.Machine("servers, Envoy, Redis and load"), o.rounds)
	writeGoals(out, all)
	writeContenders(out, all)
	return nil
}

// measureGoals measures all servers in every round.
func (b *bench) measureGoals(ctx context.Context) ([]*contender, error) {
	config := filepath.Join(b.dir, "envoy.yaml")
	if err := os.WriteFile(config, envoyConfig, 0o600); err != nil {
		return nil, err
	}
	all, stop, err := b.contenders(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, c := range all {
		c.proxy = edge.Envoy(b.t, edge.EnvoyOptions{Binary: b.envoy, Config: config, RLS: c.grpc, Concurrency: 1})
	}
	for round := range b.rounds + 1 { // the first warms up
		order := slices.Clone(all)
		if round%2 == 1 { // no server is always first
			slices.Reverse(order)
		}
		for _, c := range order {
			if err := b.contend(ctx, c); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			last := len(c.added) - 1
			fmt.Fprintf(b.progress, "round %d  %-20s  straight %7.0f req/s  behind Envoy %6.0f req/s %5.1f us CPU  one connection +%4.0f us %5.1f us CPU\n",
				round, c.name, c.straight[last].rate, c.busy[last].rate, c.busy[last].cpu*1e6, c.added[last]*1e6, c.single[last].cpu*1e6)
			if round == 0 {
				c.straight, c.three, c.busy, c.single, c.added = nil, nil, nil, nil, nil
			}
		}
	}
	return all, nil
}

// contenders starts the servers: the frame reader, rls from memory and with Redis, and
// envoyproxy/ratelimit.
func (b *bench) contenders(ctx context.Context) (all []*contender, stop func(), err error) {
	memory, err := b.service(onMemory)
	if err != nil {
		return nil, nil, err
	}
	shared, err := b.service(onRedis)
	if err != nil {
		return nil, nil, err
	}
	s := limited("allowed", largeKey, 1, rlsv3.RateLimitResponse_OK)
	answer, err := s.sample(ctx, memory.grpc, 1)
	if err != nil {
		return nil, nil, err
	}
	frames, stop, err := b.bare(framesName, s.Method, answer)
	if err != nil {
		return nil, nil, err
	}
	reference := target{name: referenceName, peer: true, redis: redis.NewClient(&redis.Options{Addr: servers.Redis(b.t)})}
	b.t.Cleanup(func() { _ = reference.redis.Close() }) // it has only read
	server := servers.StartReference(b.t, servers.ReferenceOptions{Rules: rulesWithoutTiers, Redis: reference.redis.Options().Addr})
	reference.grpc, reference.pid = server.GRPC(), server.ID()
	return []*contender{
		{target: frames},
		{target: memory},
		{target: shared, asksThree: true},
		{target: reference, asksThree: true},
	}, stop, nil
}

// contend measures a server once.
func (b *bench) contend(ctx context.Context, c *contender) error {
	loads := []struct {
		descriptors int
		into        *[]sample
	}{{1, &c.straight}, {3, &c.three}}
	if !c.asksThree {
		loads = loads[:1]
	}
	for _, l := range loads {
		s := limited("allowed", largeKey, l.descriptors, rlsv3.RateLimitResponse_OK)
		if c.name == referenceName { // its answers have no headers and no metadata
			s.Check = func(m proto.Message) error {
				if a := m.(*rlsv3.RateLimitResponse); a.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(a.GetStatuses()) != l.descriptors {
					return fmt.Errorf("answer is %v", a)
				}
				return nil
			}
		}
		body, err := b.writeFrame(s)
		if err != nil {
			return err
		}
		taken, err := b.sample(ctx, c.target, s, body)
		if err != nil {
			return err
		}
		*l.into = append(*l.into, taken)
	}
	return b.contendBehindEnvoy(ctx, c)
}

func (b *bench) contendBehindEnvoy(ctx context.Context, c *contender) error {
	withKey := []string{"-H", "x-api-key: " + largeKey}
	measured := func(clients, n int, args ...string) (s sample, err error) {
		before, err := b.read(ctx, c.target)
		if err != nil {
			return s, err
		}
		l, err := b.envoyLoad(ctx, c.proxy, clients, n, n, append(args, withKey...)...)
		if err != nil {
			return s, err
		}
		after, err := b.read(ctx, c.target)
		return sample{rate: l.rate, cpu: (after.CPU - before.CPU) / float64(n), redisCPU: (after.redisCPU - before.redisCPU) / float64(n)}, err
	}
	busy, err := measured(envoyConnections, b.requests/2)
	if err != nil {
		return err
	}
	with, without := filepath.Join(b.dir, "with"), filepath.Join(b.dir, "without")
	if _, err := b.envoyLoad(ctx, c.proxy, 1, singleRequests, 0, "--log-file", without); err != nil {
		return err
	}
	single, err := measured(1, singleRequests, "--log-file", with)
	if err != nil {
		return err
	}
	latency, err := readTimes(with)
	if err != nil {
		return err
	}
	alone, err := readTimes(without)
	if err != nil {
		return err
	}
	c.busy, c.single, c.added = append(c.busy, busy), append(c.single, single), append(c.added, latency-alone)
	return errors.Join(os.Remove(with), os.Remove(without)) // h2load would add to them
}

// writeGoals writes which goals are met. The servers are in the order of contenders.
func writeGoals(w io.Writer, all []*contender) {
	frames, memory, shared, reference := all[0], all[1], all[2], all[3]
	micros := func(c *contender) float64 { return 1e6 * median(c.busy, cpu) }
	added := func(c *contender) float64 { return 1e6 * figures.Median(c.added) }
	peers := fmt.Sprintf("frame reader %.1f, envoyproxy/ratelimit %.1f", micros(frames), micros(reference))
	figures.Head(w, "| goal | measured | peers | met |")
	line := func(goal string, measured float64, digits int, peers string, met bool) {
		answer := map[bool]string{true: "yes", false: "no"}[met]
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", goal, strconv.FormatFloat(measured, 'f', digits, 64), peers, answer)
	}
	line("behind Envoy, 16 connections, Redis: ≤ 16 µs CPU", micros(shared), 1, peers, micros(shared) <= 16)
	line("the same from memory: ≤ 7 µs CPU", micros(memory), 1, peers, micros(memory) <= 7)
	for _, g := range []struct {
		goal         string
		ours, theirs []sample
		least        float64
	}{
		{"straight, Redis: ≥ 6.0 × envoyproxy/ratelimit", shared.straight, reference.straight, 6},
		{"the same with three descriptors: ≥ 4.0 ×", shared.three, reference.three, 4},
		{"straight, memory: ≥ 0.95 × the frame reader", memory.straight, frames.straight, 0.95},
	} {
		got := figures.Median(ratios(g.ours, g.theirs, rate))
		line(g.goal, got, 2, fmt.Sprintf("%.0f/s of %.0f/s", median(g.ours, rate), median(g.theirs, rate)), got >= g.least)
	}
	line("behind Envoy, one connection, Redis: ≤ 240 µs added to the p50", added(shared), 0,
		fmt.Sprintf("frame reader %.0f, envoyproxy/ratelimit %.0f, limitador 293–312 (not of this run)", added(frames), added(reference)), added(shared) <= 240)
	fmt.Fprintln(w)
}

// writeContenders writes the figures behind the goals.
func writeContenders(w io.Writer, all []*contender) {
	figures.Head(w, "| server | straight/s | CPU µs | Redis CPU µs | 3 descriptors/s | CPU µs | Redis CPU µs "+
		"| Envoy, 16 connections/s | CPU µs | Redis CPU µs | one connection, added p50 µs | CPU µs |")
	for _, c := range all {
		fmt.Fprintf(w, "| %s |", map[string]string{onMemory: "rls, memory", onRedis: "rls, Redis"}[c.name]+map[bool]string{true: c.name}[c.peer])
		for _, s := range [][]sample{c.straight, c.three, c.busy} {
			if len(s) == 0 {
				fmt.Fprint(w, " | | |")
				continue
			}
			fmt.Fprintf(w, " %.0f | %.1f | %.1f |", median(s, rate), 1e6*median(s, cpu), 1e6*median(s, redisTime))
		}
		fmt.Fprintf(w, " %.0f | %.1f |\n", 1e6*figures.Median(c.added), 1e6*median(c.single, cpu))
	}
}
