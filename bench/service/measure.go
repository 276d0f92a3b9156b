package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// A target is a server under load.
type target struct {
	name  string
	grpc  string        // host:port
	admin string        // URL of the server with /metrics
	redis *redis.Client // of its store; nil: none
	peer  bool          // it is not rls, and counts no decisions
	pid   int           // if it has no /metrics
}

// A sample is one measurement of one target.
type sample struct {
	rate     float64 // requests a second
	cpu      float64 // CPU seconds of the server for one request
	redisCPU float64 // and of Redis
	allocs   float64 // of the server for one request
}

// A row is all samples of one service in one scenario. base and second are the samples
// of the servers that it is compared with, from the same rounds.
type row struct {
	what, service string
	scenario      scenario
	ours, base    []sample
	second        []sample // of the comparison's second, if it was measured
}

func (r *row) name() string {
	return fmt.Sprintf("%s/%s/%s/%d", r.what, r.service, r.scenario.name, r.scenario.descriptors)
}

// bench is a run, with the services that it has started.
type bench struct {
	options
	t        process.TB
	progress io.Writer
	dir      string
	ours     map[string]target // by service
}

// results are what was measured. A measurement that was not chosen is nil or empty.
type results struct {
	comparisons []measured
	envoy       *behindEnvoy
	alone       alone
}

// measured is a comparison with its rows.
type measured struct {
	comparison
	rows []*row
}

func (r *results) empty() bool {
	return len(r.comparisons) == 0 && r.envoy == nil && len(r.alone.ours) == 0
}

// measure runs the whole benchmark.
func measure(ctx context.Context, o options, progress io.Writer) (r results, err error) {
	failed := process.Run(ctx, func(t process.TB) {
		b := &bench{options: o, t: t, progress: progress, dir: t.TempDir(), ours: make(map[string]target)}
		r, err = b.measure(ctx)
	})
	return r, errors.Join(failed, err)
}

func (b *bench) measure(ctx context.Context) (r results, err error) {
	for _, c := range comparisons(b.before != "") {
		m := measured{comparison: c}
		for _, s := range c.scenarios {
			rows := b.rows(c, s)
			if len(rows) == 0 {
				continue
			}
			if err := b.scenario(ctx, c, s, rows); err != nil {
				return r, err
			}
			m.rows = append(m.rows, rows...)
		}
		if len(m.rows) > 0 {
			r.comparisons = append(r.comparisons, m)
		}
	}
	if r.envoy, err = b.measureEnvoy(ctx); err != nil {
		return r, fmt.Errorf("%s: %w", envoyName, err)
	}
	if b.only.MatchString(aloneName) {
		if r.alone, err = b.measureAlone(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", aloneName, err)
		}
	}
	if r.empty() {
		return r, fmt.Errorf("-only %s matches nothing", b.only)
	}
	return r, nil
}

// rows returns the chosen rows of one scenario.
func (b *bench) rows(c comparison, s scenario) []*row {
	var all []*row
	for _, service := range c.services {
		if r := (&row{what: c.what, service: service, scenario: s}); b.only.MatchString(r.name()) {
			all = append(all, r)
		}
	}
	return all
}

// writeFrame writes the request of a scenario into a file, and returns its path.
func (b *bench) writeFrame(s scenario) (path string, err error) {
	frame, err := s.frame()
	if err != nil {
		return "", err
	}
	path = filepath.Join(b.dir, "request")
	return path, os.WriteFile(path, frame, 0o600)
}

// scenario measures the rows of one scenario, all of them in every round.
func (b *bench) scenario(ctx context.Context, c comparison, s scenario, rows []*row) error {
	body, err := b.writeFrame(s)
	if err != nil {
		return err
	}
	var answer proto.Message
	for _, r := range rows {
		t, err := b.service(r.service)
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
	targets := make([]target, 1, 1+len(rows))
	if c.base == bareName {
		var stop func()
		if targets[0], stop, err = b.bare(bareName, s.Method, answer); err == nil {
			defer stop()
		}
	} else {
		targets[0], err = b.service(c.base)
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		targets = append(targets, b.ours[r.service])
	}
	for _, t := range targets {
		// Heaps and pools grow to their size before anything counts.
		if _, err := runLoad(ctx, t.grpc, s.Method, body, b.requests/2); err != nil {
			return err
		}
	}
	for round := range b.rounds {
		taken := make([]sample, len(targets))
		for i := range targets {
			if round%2 == 1 { // no target is always first
				i = len(targets) - 1 - i
			}
			t := targets[i]
			if taken[i], err = b.sample(ctx, t, s, body); err != nil {
				return fmt.Errorf("%s/%s/%d: %w", t.name, s.name, s.descriptors, err)
			}
			fmt.Fprintf(b.progress, "round %d  %-8s %s/%d  %7.0f req/s  %5.1f us CPU\n",
				round+1, t.name, s.name, s.descriptors, taken[i].rate, taken[i].cpu*1e6)
		}
		for i, r := range rows {
			r.base = append(r.base, taken[0])
			r.ours = append(r.ours, taken[i+1])
			for j, second := range rows {
				if second.service == c.second {
					r.second = append(r.second, taken[j+1])
				}
			}
		}
	}
	return nil
}

// bare starts a bare server, or a frame reader, with one answer to a method.
func (b *bench) bare(name, method string, answer proto.Message) (t target, stop func(), err error) {
	message, err := proto.Marshal(answer)
	if err != nil {
		return t, nil, err
	}
	file := filepath.Join(b.dir, "answer")
	if err := os.WriteFile(file, message, 0o600); err != nil {
		return t, nil, err
	}
	return startBare(name, method, file)
}

// service returns the service with a name. The first call starts it.
func (b *bench) service(name string) (target, error) {
	if t, ok := b.ours[name]; ok {
		return t, nil
	}
	t := target{name: name}
	o := edge.RLSOptions{Binary: b.rls, Rules: rules, Tiers: tiers, Env: map[string]string{
		"SLIDEGATE_HEADERS_STYLES": "ratelimit",
	}}
	if isBefore(name) {
		o.Binary = b.before
	}
	if transport := transportOf(name); transport != "" {
		o.Env["SLIDEGATE_GRPC_TRANSPORT"] = transport
	}
	switch {
	case hasRedis(name):
		t.redis = redis.NewClient(&redis.Options{Addr: servers.Redis(b.t)})
		b.t.Cleanup(func() { _ = t.redis.Close() }) // it has only read
		o.Env["SLIDEGATE_STORE_TYPE"] = "redis"
		o.Env["SLIDEGATE_STORE_REDIS_URL"] = "redis://" + t.redis.Options().Addr
		// Under this load the machine may not answer within the default of 15 ms. As with the defaults, the
		// time is less than what Envoy's timeout of 5 s leaves: otherwise no call behind Envoy pauses.
		o.Env["SLIDEGATE_STORE_TIMEOUT"] = "3s"
	case name == noTiers:
		o.Rules, o.Tiers = rulesWithoutTiers, ""
		o.Env["SLIDEGATE_TIERS_SOURCE"] = "none"
	case name == fromPostgres:
		postgres := servers.StartPostgres(b.t, servers.PostgresOptions{})
		if err := seed(postgres, customer{"large", "large", largeKey}, customer{"small", "small", smallKey}); err != nil {
			return t, err
		}
		o.Tiers = tierNames
		o.Env["SLIDEGATE_TIERS_SOURCE"] = "postgres"
		o.Env["SLIDEGATE_TIERS_POSTGRES_URL"] = postgres.URL()
		// The first request must get its tier, even on a busy machine.
		o.Env["SLIDEGATE_TIERS_WAIT"] = "5s"
		o.Env["SLIDEGATE_AUTHZ_WAIT"] = "5s"
	}
	rls := edge.StartRLS(b.t, o)
	t.grpc, t.admin = rls.GRPC(), rls.Admin()
	b.ours[name] = t
	return t, nil
}

// A customer is a subject with its tier and its API key.
type customer struct{ id, tier, key string }

// seed applies the documented schema and adds customers.
func seed(db *servers.PostgresServer, customers ...customer) error {
	grant := "GRANT USAGE ON SCHEMA slidegate TO slidegate; GRANT SELECT ON slidegate.subjects, slidegate.keys, slidegate.tiers TO slidegate"
	if err := errors.Join(db.Exec(postgres.Schema), db.Exec(grant)); err != nil {
		return err
	}
	secrets := tier.NewSecrets(nil, nil)
	for _, c := range customers {
		err := db.Exec("WITH s AS (INSERT INTO slidegate.subjects (id, tier) VALUES ($1, $2)) INSERT INTO slidegate.keys (digest, subject) VALUES ($3, $1)",
			c.id, c.tier, secrets.Digest(c.key))
		if err != nil {
			return err
		}
	}
	return nil
}

// sample measures once, and checks that the answers were right.
func (b *bench) sample(ctx context.Context, t target, s scenario, body string) (sample, error) {
	answer, err := s.sample(ctx, t.grpc, 3)
	if err != nil {
		return sample{}, err
	}
	before, err := b.read(ctx, t)
	if err != nil {
		return sample{}, err
	}
	l, err := runLoad(ctx, t.grpc, s.Method, body, b.requests)
	if err != nil {
		return sample{}, err
	}
	after, err := b.read(ctx, t)
	if err != nil {
		return sample{}, err
	}
	if err := l.check(b.requests, proto.Size(answer)); err != nil {
		return sample{}, err
	}
	if want := s.decisions * b.requests; !t.peer {
		if got := after.decisions(s.outcome) - before.decisions(s.outcome); got != float64(want) {
			return sample{}, fmt.Errorf("rls counted %.0f decisions as %s, want %d", got, s.outcome, want)
		}
	}
	if _, err := s.sample(ctx, t.grpc, 3); err != nil {
		return sample{}, err
	}
	n := float64(b.requests)
	return sample{rate: l.rate, cpu: (after.CPU - before.CPU) / n, redisCPU: (after.redisCPU - before.redisCPU) / n, allocs: (after.Allocs - before.Allocs) / n}, nil
}
