package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/figures"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

// floodName is what the measurement of a flood of made-up keys is called.
const floodName = "flood"

const (
	floodTime   = 20 * time.Second // of each phase
	floodRate   = 5000             // requests a second with made-up keys
	floodKeys   = 100              // known keys, asked for in turn
	floodTTL    = 5 * time.Second  // so that known keys have to be looked up meanwhile
	probeEvery  = 2 * time.Millisecond
	maxFlooders = 1024 // requests under way
)

// flood is how a source of tiers, and callers with known keys, fare while another
// client sends made-up keys.
type flood struct{ phases []phase }

// A phase is a time with one kind of other requests: none, requests with a known key,
// or requests with made-up keys.
type phase struct {
	name     string
	asked    int             // other requests
	allowed  int             // of those
	took     time.Duration   // the phase
	probes   []time.Duration // how long requests with known keys took
	wrong    int             // probes that were not answered by their tier
	lookups  int             // questions to the source, of many keys each
	resident float64         // bytes of memory of the service
	unknown  float64         // records of unknown keys
}

// measureFlood runs the phases one after the other, and then reads the lookups from the
// log of PostgreSQL.
func (b *bench) measureFlood(ctx context.Context) (*flood, error) {
	postgres := servers.StartPostgres(b.t, servers.PostgresOptions{Settings: []string{
		"logging_collector=on", "log_rotation_size=0", "log_statement=all", "log_line_prefix=%n %u ",
	}})
	known := make([]customer, floodKeys)
	probes := make([]scenario, floodKeys)
	for i := range probes {
		known[i] = customer{fmt.Sprint("customer-", i), "large", fmt.Sprint("bench-known-", i)}
		probes[i] = limited("known", known[i].key, 1, rlsv3.RateLimitResponse_OK)
	}
	if err := seed(postgres, known...); err != nil {
		return nil, err
	}
	rls := edge.StartRLS(b.t, edge.RLSOptions{Binary: b.rls, Rules: rules, Tiers: tierNames, Env: map[string]string{
		"SLIDEGATE_TIERS_SOURCE":       "postgres",
		"SLIDEGATE_TIERS_POSTGRES_URL": postgres.URL(),
		"SLIDEGATE_TIERS_CACHE_TTL":    floodTTL.String(),
	}})
	t := target{name: floodName, grpc: rls.GRPC(), admin: rls.Admin()}
	if err := prime(ctx, t.grpc, probes); err != nil {
		return nil, err
	}
	f := new(flood)
	var began []time.Time
	for _, p := range []struct {
		name string
		key  func() string
	}{
		{"no flood", nil},
		{"a known key", func() string { return known[0].key }},
		{"made-up keys", rand.Text},
	} {
		began = append(began, time.Now())
		next, err := b.phase(ctx, t, probes, p.key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		next.name = p.name
		f.phases = append(f.phases, next)
		fmt.Fprintf(b.progress, "%s  %s: %d requests\n", floodName, p.name, next.asked)
	}
	lookups, err := readLookups(postgres)
	if err != nil {
		return nil, err
	}
	for i := range f.phases {
		p := &f.phases[i]
		p.lookups = count(lookups, began[i], began[i].Add(p.took))
	}
	return f, nil
}

// prime sends requests until all keys are answered by their tier.
func prime(ctx context.Context, address string, probes []scenario) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, s := range probes {
		for {
			answer, err := s.call(ctx, conn)
			if err != nil {
				return err
			}
			if isLarge(answer.(*rlsv3.RateLimitResponse)) {
				break
			}
			program.Pause(ctx, 10*time.Millisecond)
		}
	}
	return nil
}

// isLarge reports whether a request was decided by the tier of known keys.
func isLarge(a *rlsv3.RateLimitResponse) bool {
	return a.GetDynamicMetadata().GetFields()["tier"].GetStringValue() == "large"
}

// phase sends requests with known keys in turn, and meanwhile others with keys of key.
func (b *bench) phase(ctx context.Context, t target, probes []scenario, key func() string) (p phase, err error) {
	during, cancel := context.WithTimeout(ctx, floodTime)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	var asked, allowed atomic.Int64
	if key != nil {
		conns := make([]*grpc.ClientConn, connections)
		for i := range conns {
			if conns[i], err = dial(t.grpc); err != nil {
				return p, err
			}
			defer conns[i].Close()
		}
		others.Go(func() {
			program.Every(during, time.Second/floodRate, maxFlooders, func(n int) {
				s := limited(floodName, key(), 1, rlsv3.RateLimitResponse_OK)
				if answer, err := s.call(during, conns[n%len(conns)]); err == nil {
					asked.Add(1)
					if answer.(*rlsv3.RateLimitResponse).GetOverallCode() == rlsv3.RateLimitResponse_OK {
						allowed.Add(1)
					}
				}
			})
		})
	}
	conn, err := dial(t.grpc)
	if err != nil {
		return p, err
	}
	defer conn.Close()
	start := time.Now()
	ticks := time.NewTicker(probeEvery)
	defer ticks.Stop()
	for n := 0; during.Err() == nil; n++ {
		began := time.Now()
		answer, err := probes[n%len(probes)].call(ctx, conn)
		if err != nil {
			return p, err
		}
		p.probes = append(p.probes, time.Since(began))
		if !isLarge(answer.(*rlsv3.RateLimitResponse)) {
			p.wrong++
		}
		select {
		case <-during.Done():
		case <-ticks.C:
		}
	}
	others.Wait()
	p.took = time.Since(start)
	p.asked, p.allowed = int(asked.Load()), int(allowed.Load())
	now, err := b.read(ctx, t)
	p.resident = now.Resident
	return p, err
}

// lookupLine is a line of a lookup by digest in the log of PostgreSQL. It begins with the time.
var lookupLine = regexp.MustCompile(`(?m)^(\d+\.\d+) slidegate LOG:  execute [^:]*: SELECT s\.id AS subject`)

// readLookups returns the times of the lookups in the log of PostgreSQL.
func readLookups(postgres *servers.PostgresServer) ([]time.Time, error) {
	log, err := postgres.Text("SELECT pg_read_file(pg_current_logfile())")
	if err != nil {
		return nil, err
	}
	var all []time.Time
	for _, m := range lookupLine.FindAllStringSubmatch(log, -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, err
		}
		all = append(all, time.UnixMilli(int64(seconds*1000+.5)))
	}
	slices.SortFunc(all, time.Time.Compare)
	if len(all) == 0 {
		return nil, errors.New("the log of PostgreSQL has no lookups")
	}
	return all, nil
}

// count returns how many of times lie between from and to.
func count(times []time.Time, from, to time.Time) (all int) {
	for _, t := range times {
		if !t.Before(from) && !t.After(to) {
			all++
		}
	}
	return all
}

// write writes the result as a Markdown table.
func (f *flood) write(w io.Writer) {
	if f == nil {
		return
	}
	figures.Head(w, "| who else asks | requests/s | allowed | questions/s | known keys, p50 µs | p99 µs | not by their tier | records of unknown keys | resident MB |")
	for _, p := range f.phases {
		slices.Sort(p.probes)
		quantile := func(q float64) float64 {
			return float64(p.probes[int(q*float64(len(p.probes)-1))].Nanoseconds()) / 1000
		}
		seconds := p.took.Seconds()
		fmt.Fprintf(w, "| %s | %.0f | %d | %.1f | %.0f | %.0f | %d of %d | %.0f | %.0f |\n", p.name, float64(p.asked)/seconds, p.allowed,
			float64(p.lookups)/seconds, quantile(.5), quantile(.99), p.wrong, len(p.probes), p.unknown, p.resident/1e6)
	}
}
