package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/operate/calls"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/otlp"
	"github.com/slidegate/slidegate/test/peer"
	"github.com/slidegate/slidegate/test/tree"
)

// benchRules have limits that no call reaches, and one that is reached at once.
const benchRules = `
domain: bench
descriptors:
  - {key: api_key, rate_limit: {name: per-key, unit: second, requests_per_unit: 4000000000}}
  - {key: remote_address, rate_limit: {name: per-address, unit: second, requests_per_unit: 4000000000}}
  - {key: route, value: search, descriptors: [{key: api_key, rate_limit: {name: search-per-key, unit: second, requests_per_unit: 4000000000}}]}
  - {key: greedy, rate_limit: {name: greedy, unit: day, requests_per_unit: 1}}
  - {key: budget, rate_limit: {name: budget, window: 1h, requests: 4000000000, budget: {reserve: 1, hold: 10m}}}
`

const benchTiers = `
tiers: [only]
default: only
subjects:
  - {id: bench, tier: only, keys: [{plain: bench-key}]}
`

// BenchmarkCall measures whole calls, in batches over a connection on the loopback interface.
// The client allocates nothing, so the allocations are the service's. The time includes the
// client's. Names that begin with reference are of answers in the form of
// envoyproxy/ratelimit, with its three headers and its metrics. Traced calls have a span, which a
// receiver accepts that decodes nothing; unsampled ones have a process with traces.
func BenchmarkCall(b *testing.B) {
	describe := func(pairs ...string) *ratelimitcommonv3.RateLimitDescriptor {
		d := new(ratelimitcommonv3.RateLimitDescriptor)
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		return d
	}
	key := describe("api_key", "bench-key")
	for _, form := range []struct {
		name, transport string
		reference       bool
		sampler         string // OTEL_TRACES_SAMPLER; empty: no traces
	}{
		{settings.TransportUnary, settings.TransportUnary, false, ""},
		{settings.TransportStandard, settings.TransportStandard, false, ""},
		{"reference-unary", settings.TransportUnary, true, ""},
		{"reference-standard", settings.TransportStandard, true, ""},
		{"traced-unary", settings.TransportUnary, false, "always_on"},
		{"traced-standard", settings.TransportStandard, false, "always_on"},
		{"unsampled-unary", settings.TransportUnary, false, "always_off"},
	} {
		if form.sampler != "" {
			b.Setenv("OTEL_TRACES_SAMPLER", form.sampler)
			b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.StartNothing(b))
		}
		address := serveBenchmark(b, form.transport, form.reference)
		for _, bm := range []struct {
			name        string
			descriptors []*ratelimitcommonv3.RateLimitDescriptor
		}{
			{"allowed", []*ratelimitcommonv3.RateLimitDescriptor{key}},
			{"three", []*ratelimitcommonv3.RateLimitDescriptor{key, describe("remote_address", "198.51.100.7"), describe("route", "search", "api_key", "bench-key")}},
			{"denied", []*ratelimitcommonv3.RateLimitDescriptor{describe("greedy", "yes")}},
		} {
			message, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "bench", Descriptors: bm.descriptors})
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprint(form.name, "/", bm.name), func(b *testing.B) {
				const batch = 32
				conn, err := net.Dial("tcp", address)
				if err != nil {
					b.Fatal(err)
				}
				caller, err := peer.NewCaller(conn, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, message, batch)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = caller.Close() }() // all answers have come
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; n += batch {
					if err := caller.Do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// serveBenchmark runs a service with the embedded store until the benchmark ends. It returns
// the address of its gRPC port.
func serveBenchmark(b *testing.B, transport string, reference bool) string {
	b.Helper()
	s := settings.Default()
	s.GRPC.Address, s.GRPC.Transport = []settings.Address{"127.0.0.1:0"}, transport
	if s.DropIn.Answers = reference; reference {
		s.Headers.Styles = []string{rules.StyleReference}
		s.DropIn.Metrics.Address = "127.0.0.1:0"
		s.DropIn.Statsd = settings.Statsd{Address: "127.0.0.1:9", Protocol: "udp", Interval: time.Second} // no server listens there
	}
	s.HTTP.Address, s.Admin.Address, s.Drain.Delay = "", "127.0.0.1:0", 0
	s.Rules.Path, s.Tiers.Path = filepath.Join(b.TempDir(), "rules.yaml"), filepath.Join(b.TempDir(), "tiers.yaml")
	for path, text := range map[string]string{s.Rules.Path: benchRules, s.Tiers.Path: benchTiers} {
		tree.Write(b, path, text)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Running, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, s, Options{Version: "benchmark", Log: zap.NewNop(), Ready: func(r Running) { ready <- r }})
	}()
	select {
	case r := <-ready:
		b.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
		return r.GRPC[0]
	case err := <-done:
		cancel()
		b.Fatalf("Run: %v", err)
		return ""
	}
}

// BenchmarkCores measures decisions on as many cores as -cpu says: all of a call between its bytes and
// those of its answer, with tiers, metrics and records, without a connection. cpu-ns/op is the CPU of the
// process for one decision.
//
//	go test -run '^$' -bench BenchmarkCores -cpu 1,2,4,8,16 ./internal/daemon
func BenchmarkCores(b *testing.B) {
	const subjects = 100_000
	requests, tiers := make([]string, subjects), []byte("tiers: [only]\ndefault: only\nsubjects:\n")
	for i := range requests {
		key := fmt.Sprint("bench-key-", i)
		tiers = fmt.Appendf(tiers, "  - {id: bench%d, tier: only, keys: [{plain: %s}]}\n", i, key)
		requests[i] = benchRequest(b, "api_key", key)
	}
	handle := handleBenchmark(b, string(tiers))
	for _, bm := range []struct {
		name     string
		requests []string
	}{
		{"keys=100000", requests},
		{"keys=1", requests[:1]},
		{"denied", []string{benchRequest(b, "greedy", "yes")}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			begin := cpuTime(b)
			b.RunParallel(func(pb *testing.PB) {
				at, answer := rand.IntN(len(bm.requests)), []byte(nil)
				for pb.Next() {
					call, decided, err := unary.Call{Request: bm.requests[at], Begin: time.Now()}, false, error(nil)
					if answer, decided, err = handle(b.Context(), window.NoWait, &call, answer[:0]); err != nil || !decided {
						b.Errorf("decided is %v, error %v", decided, err)
						return
					}
					at = (at + 7919) % len(bm.requests) // a prime, so that neighbors differ
				}
			})
			b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkReservation measures a plain request, and two that reserve an estimate and settle it, as BenchmarkCores
// measures a request. They take turns, so only the ratio is of use on a busy machine.
func BenchmarkReservation(b *testing.B) {
	handle := handleBenchmark(b, benchTiers)
	var answer []byte
	ask := func(request, stream, end string) {
		call := unary.Call{Request: request, Begin: time.Now()}
		call.Kept[adapter.StreamID] = stream
		if end != "" {
			call.Kept[adapter.StreamEnd], call.Kept[adapter.Upstream], call.Kept[adapter.Downstream], call.Kept[adapter.Attempts] = end, "199", "512", "1"
		}
		var decided bool
		var err error
		if answer, decided, err = handle(b.Context(), window.NoWait, &call, answer[:0]); err != nil || !decided {
			b.Fatalf("decided is %v, error %v", decided, err)
		}
	}
	plain, reserve, settle := benchRequest(b, "api_key", "bench-key"), benchRequest(b, "budget", "tokens"), benchRequest(b, "slidegate", "end", "budget", "tokens")
	const each = 1000
	var spent [2]time.Duration
	var streams [each]string
	for n := range b.N {
		for j := range streams {
			streams[j] = fmt.Sprint("9f1c6f0e-3c0b-4b34-8d5c-", n*each+j)
		}
		for i := range spent {
			begin := cpuTime(b)
			for _, stream := range streams {
				if i == 0 {
					ask(plain, "", "")
					continue
				}
				ask(reserve, stream, "")
				ask(settle, stream, "via_upstream")
			}
			spent[i] += cpuTime(b) - begin
		}
	}
	b.ReportMetric(float64(spent[0])/float64(b.N*each), "cpu-ns/plain")
	b.ReportMetric(float64(spent[1])/float64(b.N*each), "cpu-ns/reservation")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// benchRequest returns an encoded request with descriptors of one entry, of which each costs 1.
func benchRequest(b *testing.B, pairs ...string) string {
	b.Helper()
	r := &rlsv3.RateLimitRequest{Domain: "bench"}
	for i := 0; i < len(pairs); i += 2 {
		entry := &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]}
		r.Descriptors = append(r.Descriptors, &ratelimitcommonv3.RateLimitDescriptor{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{entry}})
	}
	message, err := proto.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	return string(message)
}

// handleBenchmark makes a process with the embedded store, which does not serve, and returns what answers its calls.
func handleBenchmark(b *testing.B, tiers string) unary.Handler {
	b.Helper()
	s := settings.Default()
	s.GRPC.Address, s.HTTP.Address, s.Admin.Address = []settings.Address{"127.0.0.1:0"}, "", "127.0.0.1:0"
	s.Rules.Path, s.Tiers.Path = filepath.Join(b.TempDir(), "rules.yaml"), filepath.Join(b.TempDir(), "tiers.yaml")
	for path, text := range map[string]string{s.Rules.Path: benchRules, s.Tiers.Path: tiers} {
		tree.Write(b, path, text)
	}
	o := Options{Version: "benchmark", Log: zap.NewNop()}
	p := &process{settings: s, logs: newLogs(&o)}
	b.Cleanup(func() {
		if err := p.open.close(); err != nil {
			b.Error(err)
		}
	})
	if err := errors.Join(p.readFiles(b.Context()), p.openAll(b.Context(), o)); err != nil {
		b.Fatal(err)
	}
	p.makeServers()
	service := ratelimit.NewService(ratelimit.Options{
		Decider: p.decider, Secrets: p.generation.Secrets, Headers: p.headers, Meters: p.measures.metrics, Probes: p.operators.probes.Active(),
	})
	return calls.Recorder{Metrics: p.measures.metrics, Log: o.Log}.Wrap(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, service.Handle)
}

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
