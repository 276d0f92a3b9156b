package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/servers"
)

const anyPort = "127.0.0.1:0"

// A target is a server under load.
type target struct {
	name    string
	grpc    string // host:port
	metrics string // URL
	redis   string // host:port of its store; empty: none
}

// A sample is one measurement of one target.
type sample struct {
	rate     float64 // requests a second
	cpu      float64 // CPU seconds of the server for one request
	redisCPU float64 // and of Redis
}

// A row is everything measured of one store in one scenario: as many samples of
// it as of the bare server, taken in the same rounds.
type row struct {
	store      string
	scenario   scenario
	ours, bare []sample
}

func (r *row) name() string {
	return fmt.Sprintf("%s/%s/%d", r.store, r.scenario.name, r.scenario.descriptors)
}

// stores are the settings of rls that are compared.
var stores = []string{"memory", "redis"}

// bench is what a run has started.
type bench struct {
	options
	progress io.Writer
	dir      string
	stop     []func()
	ours     map[string]target // by store
}

// measure does all of it.
func measure(ctx context.Context, o options, progress io.Writer) (all []*row, one alone, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, one, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is a temporary file
	b := &bench{options: o, progress: progress, dir: dir, ours: make(map[string]target)}
	defer func() {
		for _, stop := range b.stop {
			stop()
		}
	}()
	for _, s := range scenarios() {
		rows := b.rows(s)
		if len(rows) == 0 {
			continue
		}
		if err := b.scenario(ctx, s, rows); err != nil {
			return nil, one, err
		}
		all = append(all, rows...)
	}
	if b.only.MatchString(aloneName) {
		if one, err = b.measureAlone(ctx); err != nil {
			return nil, one, fmt.Errorf("%s: %w", aloneName, err)
		}
	} else if len(all) == 0 {
		return nil, one, fmt.Errorf("-only %s matches nothing", o.only)
	}
	return all, one, nil
}

// rows are the rows of one scenario that were asked for.
func (b *bench) rows(s scenario) []*row {
	var all []*row
	for _, store := range stores {
		if r := (&row{store: store, scenario: s}); b.only.MatchString(r.name()) {
			all = append(all, r)
		}
	}
	return all
}

// scenario measures the rows of one scenario, all of them in every round.
func (b *bench) scenario(ctx context.Context, s scenario, rows []*row) error {
	frame, err := s.frame()
	if err != nil {
		return err
	}
	body := filepath.Join(b.dir, "request")
	if err := os.WriteFile(body, frame, 0o600); err != nil {
		return err
	}
	var answer *rlsv3.RateLimitResponse
	for _, r := range rows {
		t, err := b.service(ctx, r.store)
		if err != nil {
			return err
		}
		if err := s.exhaust(ctx, t.grpc); err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
		if answer, err = s.sample(ctx, t.grpc, 1); err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
	}
	bare, stop, err := b.bare(ctx, answer)
	if err != nil {
		return err
	}
	defer stop()

	targets := []target{bare}
	for _, r := range rows {
		targets = append(targets, b.ours[r.store])
	}
	for _, t := range targets {
		// Heaps and pools grow to their size before anything counts.
		if _, err := runLoad(ctx, t.grpc, body, b.requests/2); err != nil {
			return err
		}
	}
	for round := range b.rounds {
		taken := make([]sample, len(targets))
		for i := range targets {
			if round%2 == 1 { // nobody is always first
				i = len(targets) - 1 - i
			}
			t := targets[i]
			if taken[i], err = b.sample(ctx, t, s, body, proto.Size(answer)); err != nil {
				return fmt.Errorf("%s/%s/%d: %w", t.name, s.name, s.descriptors, err)
			}
			fmt.Fprintf(b.progress, "round %d  %-7s %s/%d  %7.0f req/s  %5.1f us CPU\n",
				round+1, t.name, s.name, s.descriptors, taken[i].rate, taken[i].cpu*1e6)
		}
		for i, r := range rows {
			r.bare = append(r.bare, taken[0])
			r.ours = append(r.ours, taken[i+1])
		}
	}
	return nil
}

// bare starts a bare server that gives an answer.
func (b *bench) bare(ctx context.Context, answer *rlsv3.RateLimitResponse) (t target, stop func(), err error) {
	message, err := proto.Marshal(answer)
	if err != nil {
		return t, nil, err
	}
	file := filepath.Join(b.dir, "answer")
	if err := os.WriteFile(file, message, 0o600); err != nil {
		return t, nil, err
	}
	return startBare(ctx, file)
}

// service returns rls on a store and starts it if it does not run yet.
func (b *bench) service(ctx context.Context, store string) (target, error) {
	if t, ok := b.ours[store]; ok {
		return t, nil
	}
	t := target{name: store}
	env := map[string]string{
		"SLIDEGATE_STORE_TYPE":     store,
		"SLIDEGATE_HEADERS_STYLES": "ratelimit",
	}
	if store == "redis" {
		address, stop, err := servers.RunRedis(ctx, "redis-server")
		if err != nil {
			return t, err
		}
		b.stop = append(b.stop, stop)
		t.redis = address
		env["SLIDEGATE_STORE_REDIS_URL"] = "redis://" + address
		// What counts here is the work of a decision, not that a machine whose
		// CPUs are all busy with load answers within 15 ms.
		env["SLIDEGATE_STORE_TIMEOUT"] = "5s"
	}
	rls, err := servers.StartRLS(servers.RLSOptions{Binary: b.rls, Rules: rules, Tiers: tiers, Env: env})
	if err != nil {
		return t, err
	}
	b.stop = append(b.stop, rls.Close)
	t.grpc, t.metrics = rls.GRPC(), rls.Admin()+"/metrics"
	b.ours[store] = t
	return t, nil
}

// sample measures once, and makes sure that the answers were the right ones.
func (b *bench) sample(ctx context.Context, t target, s scenario, body string, size int) (sample, error) {
	if _, err := s.sample(ctx, t.grpc, 3); err != nil {
		return sample{}, err
	}
	before, err := b.read(ctx, t)
	if err != nil {
		return sample{}, err
	}
	l, err := runLoad(ctx, t.grpc, body, b.requests)
	if err != nil {
		return sample{}, err
	}
	after, err := b.read(ctx, t)
	if err != nil {
		return sample{}, err
	}
	if err := l.check(b.requests, size); err != nil {
		return sample{}, err
	}
	if outcome, want := s.counted(b.requests); t.name != "bare" {
		if got := after.decisions[outcome] - before.decisions[outcome]; got != float64(want) {
			return sample{}, fmt.Errorf("rls counted %.0f decisions as %s, want %d", got, outcome, want)
		}
	}
	if _, err := s.sample(ctx, t.grpc, 3); err != nil {
		return sample{}, err
	}
	n := float64(b.requests)
	return sample{rate: l.rate, cpu: (after.cpu - before.cpu) / n, redisCPU: (after.redisCPU - before.redisCPU) / n}, nil
}
