package compare

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// other is a rate-limit service. Its answer is that of a function, as bytes.
type other struct {
	address string
	calls   atomic.Int64
	server  *grpc.Server

	mu      sync.Mutex
	answer  func(ctx context.Context, request string) ([]byte, error)
	last    string // the last request
	headers metadata.MD
}

// rawRequest is a request that nothing decodes.
type rawRequest string

func (r *rawRequest) Decode(encoded string) error { *r = rawRequest(encoded); return nil }

// serve starts an other for the time of the test.
func serve(t testing.TB, answer func(ctx context.Context, request string) ([]byte, error)) *other {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &other{address: l.Addr().String(), answer: answer}
	o.server = grpc.NewServer(grpc.ForceServerCodecV2(adapter.NewCodec()), grpc.MaxRecvMsgSize(64<<20),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var in rawRequest
			if err := stream.RecvMsg(&in); err != nil {
				return err
			}
			o.calls.Add(1)
			o.mu.Lock()
			o.last = string(in)
			o.headers, _ = metadata.FromIncomingContext(stream.Context())
			o.mu.Unlock()
			out, err := o.answer(stream.Context(), string(in))
			if err != nil {
				return err
			}
			return stream.SendMsg(wire.Encoded(out))
		}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = o.server.Serve(l) // ends with the test
	}()
	t.Cleanup(func() {
		o.server.Stop()
		<-served
	})
	return o
}

// response encodes an answer with a status for each code.
func response(t testing.TB, overall rlsv3.RateLimitResponse_Code, statuses ...*rlsv3.RateLimitResponse_DescriptorStatus) []byte {
	t.Helper()
	b, err := proto.Marshal(&rlsv3.RateLimitResponse{OverallCode: overall, Statuses: statuses})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// perMinute is the status of a limit of some hits per minute.
func perMinute(code rlsv3.RateLimitResponse_Code, hits uint32) *rlsv3.RateLimitResponse_DescriptorStatus {
	return &rlsv3.RateLimitResponse_DescriptorStatus{Code: code, CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: hits, Unit: rlsv3.RateLimitResponse_RateLimit_MINUTE,
	}}
}

// counts is a Meters.
type counts struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	c.counts[name]++
}

func (c *counts) Compared(domain, rule string, ours, theirs Answer, why Reason) {
	if why != Same {
		c.add(fmt.Sprintf("%s/%s: %v", domain, rule, why))
	}
	c.add(fmt.Sprintf("%s/%s %v %v", domain, rule, ours, theirs))
}

func (c *counts) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

// String returns all counts, sorted by name.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.counts)
}

// await polls until a count is reached.
func (c *counts) await(t testing.TB, name string, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); c.of(name) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %d, want %d; all: %v", name, c.of(name), want, c)
		}
	}
}

// open returns a Comparer with generous options that edit changes.
func open(t testing.TB, address string, edit func(*Options)) (*Comparer, *counts, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	meters := new(counts)
	o := Options{
		Address: address, Fraction: 1, Timeout: 20 * time.Second, MaxInFlight: 100,
		Secrets: tier.NewSecrets([]string{"api_key"}, nil), Meters: meters, Log: zap.New(core),
	}
	if edit != nil {
		edit(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, meters, logs
}

var (
	perClient = &rules.Rule{Domain: "shop", Name: "per-client"}
	global    = &rules.Rule{Domain: "shop", Name: "global"}
)

// call returns a request of a client, and its encoded form.
func call(t testing.TB, client string, hits uint32) (string, *decide.Request) {
	t.Helper()
	encoded, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: hits, Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{
		{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "client", Value: client}, {Key: "api_key", Value: "s3cret-" + client}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded), &decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{
		{Entries: descriptors.Descriptor{{Key: "client", Value: client}, {Key: "api_key", Value: "digest of " + client}}, Cost: uint64(hits)},
	}}
}

// verdict returns a verdict about one descriptor with a limit of 10 per minute.
func verdict(allowed bool, retryAfter time.Duration) *decide.Verdict {
	return &decide.Verdict{
		Allowed: allowed, Decisive: 0, Shadowed: -1, Strictest: []int{0}, Matches: []decide.Match{{Rule: perClient}},
		Limits: []decide.LimitStatus{{
			Rule: perClient, Limit: rules.Limit{Limit: window.Limit{Hits: 10, Window: time.Minute}}, Cost: 1,
			Decision: window.Decision{Allowed: allowed, RetryAfter: retryAfter},
		}},
	}
}

// TestPairs counts each pair of answers under the rule that is decisive here.
func TestPairs(t *testing.T) {
	o := serve(t, nil)
	for _, c := range []struct {
		name   string
		ours   *decide.Verdict
		answer func(context.Context, string) ([]byte, error)
		want   string
	}{
		{"both allow", verdict(true, 0), answers(response(t, rlsv3.RateLimitResponse_OK, perMinute(rlsv3.RateLimitResponse_OK, 10))), "shop/per-client ok ok"},
		{"both deny", verdict(false, time.Second), answers(response(t, rlsv3.RateLimitResponse_OVER_LIMIT)), "shop/per-client over_limit over_limit"},
		{"only ours denies", verdict(false, time.Second), answers(response(t, rlsv3.RateLimitResponse_OK)), "shop/per-client over_limit ok"},
		{"only theirs denies", verdict(true, 0), answers(response(t, rlsv3.RateLimitResponse_OVER_LIMIT)), "shop/per-client ok over_limit"},
		{"ours cannot decide", nil, answers(response(t, rlsv3.RateLimitResponse_OK)), "/ error ok"},
		{"no rule here", &decide.Verdict{Allowed: true, Decisive: -1, Matches: make([]decide.Match, 1)}, answers(response(t, rlsv3.RateLimitResponse_OVER_LIMIT)), "/ ok over_limit"},
		{"theirs cannot decide", verdict(true, 0), fails(codes.Unknown), "shop/per-client ok error"},
		{"theirs is late itself", verdict(true, 0), fails(codes.DeadlineExceeded), "shop/per-client ok timeout"},
		{"a code without a meaning", verdict(true, 0), answers(response(t, rlsv3.RateLimitResponse_UNKNOWN)), "shop/per-client ok error"},
		{"no answer at all", verdict(true, 0), answers(nil), "shop/per-client ok error"},
		{"garbage", verdict(true, 0), answers([]byte("\xff\xff\xff\xff garbage")), "shop/per-client ok error"},
		{"too long", verdict(true, 0), answers(make([]byte, maxAnswer+1)), "shop/per-client ok error"},
		{"more statuses than descriptors", verdict(true, 0), answers(response(t, rlsv3.RateLimitResponse_OVER_LIMIT, perMinute(rlsv3.RateLimitResponse_OK, 1), perMinute(rlsv3.RateLimitResponse_OVER_LIMIT, 1))), "shop/per-client ok over_limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o.answer = c.answer
			comparer, meters, logs := open(t, o.address, nil)
			encoded, req := call(t, "ada", 3)
			comparer.Compare(encoded, req, c.ours)
			meters.await(t, c.want, 1)
			if err := comparer.Close(); err != nil { // no further log lines
				t.Error(err)
			}
			for _, line := range logs.All() {
				if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "s3cret") {
					t.Errorf("a log line has an API key: %s", text)
				}
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.last != encoded {
				t.Errorf("the other service got %q, want the request as it came: %q", o.last, encoded)
			}
			if len(o.headers.Get(adapter.Kept[adapter.Compared].Name)) != 1 {
				t.Errorf("the call has no mark: %v", o.headers)
			}
		})
	}
}

func answers(b []byte) func(context.Context, string) ([]byte, error) {
	return func(context.Context, string) ([]byte, error) { return b, nil }
}

func fails(code codes.Code) func(context.Context, string) ([]byte, error) {
	return func(context.Context, string) ([]byte, error) { return nil, status.Error(code, "refused s3cret-ada") }
}

// TestALineForEachReason reads the log lines of differences: one kind does not hide another.
func TestALineForEachReason(t *testing.T) {
	over := response(t, rlsv3.RateLimitResponse_OVER_LIMIT, perMinute(rlsv3.RateLimitResponse_OVER_LIMIT, 10))
	ok := response(t, rlsv3.RateLimitResponse_OK, perMinute(rlsv3.RateLimitResponse_OK, 10))
	o := serve(t, func(_ context.Context, request string) ([]byte, error) {
		if strings.Contains(request, "denied") {
			return over, nil
		}
		return ok, nil
	})
	c, meters, logs := open(t, o.address, nil)
	const others = "shop/per-client: other"
	for i := range 50 {
		encoded, req := call(t, fmt.Sprint("denied", i), 1)
		c.Compare(encoded, req, verdict(true, 0))
	}
	meters.await(t, others, 50)
	encoded, req := call(t, "edge", 1)
	c.Compare(encoded, req, verdict(false, 0)) // the hit that must expire is a minute old
	meters.await(t, "shop/per-client: window_edge", 1)
	if err := c.Close(); err != nil { // every line is written
		t.Error(err)
	}
	with := func(reason string) []observer.LoggedEntry {
		return logs.Filter(func(e observer.LoggedEntry) bool { return e.ContextMap()["reason"] == reason }).All()
	}
	if n := len(with("other")); n != 10 {
		t.Errorf("%d lines with the reason other, want 10", n)
	}
	lines := with("window_edge")
	if len(lines) != 1 {
		t.Fatalf("got %d lines with the reason window_edge, want 1", len(lines))
	}
	got := fmt.Sprint(lines[0].ContextMap())
	want := "map[descriptor:client=edge,api_key=*** domain:shop our_limit:10 per 1m our_remaining:0 ours:over_limit reason:window_edge retry_after:0s rule:per-client their_limit:10 per 1m theirs:ok]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFreeDenial lets both services deny a client, and then only the other one.
func TestFreeDenial(t *testing.T) {
	o := serve(t, answers(response(t, rlsv3.RateLimitResponse_OVER_LIMIT, perMinute(rlsv3.RateLimitResponse_OVER_LIMIT, 10))))
	c, meters, _ := open(t, o.address, nil)
	c.now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC) } // all calls are in one minute
	encoded, req := call(t, "ada", 1)
	c.Compare(encoded, req, verdict(true, 0))
	meters.await(t, "shop/per-client: other", 1)
	c.Compare(encoded, req, verdict(false, time.Second))
	meters.await(t, "shop/per-client over_limit over_limit", 1)
	encoded, req = call(t, "bob", 1)
	c.Compare(encoded, req, verdict(true, 0))
	meters.await(t, "shop/per-client: other", 2)
	encoded, req = call(t, "ada", 1)
	c.Compare(encoded, req, verdict(true, 0))
	meters.await(t, "shop/per-client: free_denial", 1)
}

// TestAServiceThatHangs holds the bound of calls, and Close ends them.
func TestAServiceThatHangs(t *testing.T) {
	o := serve(t, func(ctx context.Context, _ string) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c, meters, _ := open(t, o.address, func(o *Options) { o.MaxInFlight = 3 })
	for i := range 10 {
		encoded, req := call(t, fmt.Sprint(i), 1)
		c.Compare(encoded, req, verdict(true, 0)) // returns, although nothing answers
	}
	meters.await(t, "shop/per-client ok skipped", 7)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(meters); got != "map[shop/per-client ok skipped:7]" {
		t.Errorf("calls that Close ended were counted: %s", got)
	}
	encoded, req := call(t, "late", 1)
	c.Compare(encoded, req, verdict(true, 0))
	meters.await(t, "shop/per-client ok skipped", 8)
}

// TestTimeout frees the place of a call that has no answer in time.
func TestTimeout(t *testing.T) {
	o := serve(t, func(ctx context.Context, _ string) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c, meters, logs := open(t, o.address, func(o *Options) { o.MaxInFlight, o.Timeout = 1, 10*time.Millisecond })
	for i := 1; i <= 20; i++ {
		encoded, req := call(t, "ada", 1)
		c.Compare(encoded, req, verdict(true, 0))
		meters.await(t, "shop/per-client ok timeout", i)
		for len(c.slots) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := logs.FilterMessage("the other rate-limit service does not answer, and only the comparison stops; check that it runs, and compare.address").Len(); n != 10 {
		t.Errorf("%d log lines, want 10 a minute", n)
	}
}

// TestBytesThatWait bounds the memory of calls without an answer.
func TestBytesThatWait(t *testing.T) {
	o := serve(t, func(ctx context.Context, _ string) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c, meters, _ := open(t, o.address, nil)
	encoded, req := call(t, strings.Repeat("x", 1<<20), 1)
	for range 30 {
		c.Compare(encoded, req, verdict(true, 0))
	}
	meters.await(t, "shop/per-client ok skipped", 30-maxPending/len(encoded))
	if pending := c.pending.Load(); pending > maxPending {
		t.Errorf("%d bytes are pending, more than %d", pending, maxPending)
	}
	small, req := call(t, "ada", 1)
	c.Compare(small, req, verdict(true, 0))
	if n := meters.of("shop/per-client ok skipped"); n != 30-maxPending/len(encoded) {
		t.Errorf("a small call is skipped too: %d", n)
	}
}

// TestAServiceThatComesAndGoes counts errors while nothing listens, and reconnects.
func TestAServiceThatComesAndGoes(t *testing.T) {
	ok := response(t, rlsv3.RateLimitResponse_OK)
	o := serve(t, answers(ok))
	c, meters, _ := open(t, o.address, func(o *Options) { o.Timeout = time.Second })
	encoded, req := call(t, "ada", 1)
	c.Compare(encoded, req, verdict(true, 0))
	meters.await(t, "shop/per-client ok ok", 1)
	o.server.Stop()
	c.Compare(encoded, req, verdict(true, 0))
	meters.await(t, "shop/per-client ok error", 1)
	l, err := net.Listen("tcp", o.address)
	if err != nil {
		t.Skip(err) // another process has the port
	}
	again := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(again, &answering{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = again.Serve(l)
	}()
	defer func() { again.Stop(); <-served }()
	for deadline := time.Now().Add(30 * time.Second); meters.of("shop/per-client ok ok") < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not reconnect: %v", meters)
		}
		c.Compare(encoded, req, verdict(true, 0))
	}
}

// answering answers OK. It decodes requests as other services do.
type answering struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (*answering) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// TestConcurrentCalls compares from many goroutines while the Comparer closes.
func TestConcurrentCalls(t *testing.T) {
	o := serve(t, answers(response(t, rlsv3.RateLimitResponse_OK)))
	c, meters, _ := open(t, o.address, func(o *Options) { o.MaxInFlight = 4 })
	const callers, each = 8, 200
	var all sync.WaitGroup
	for i := range callers {
		encoded, req := call(t, fmt.Sprint(i), 1)
		all.Go(func() {
			for n := range each {
				c.Compare(encoded, req, verdict(n%2 == 0, time.Second))
				if i == 0 && n == each/2 {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if len(meters.counts) == 0 {
		t.Error("nothing was counted")
	}
}

// TestShare chooses the share of descriptors, the same ones in every process.
func TestShare(t *testing.T) {
	const n = 20_000
	for _, share := range []float64{0.001, 0.01, 0.25, 0.5, 0.9} {
		chosen := 0
		for i := range n {
			_, req := call(t, fmt.Sprintf("client-%d", i), 1)
			if sampled(req, share) {
				chosen++
			}
		}
		// Five standard deviations. The choice does not depend on chance, so the test never
		// changes its mind.
		if off := math.Abs(float64(chosen) - n*share); off > 5*math.Sqrt(n*share*(1-share)) {
			t.Errorf("share %v: %d of %d", share, chosen, n)
		}
	}
	for i := range 100 {
		_, one := call(t, fmt.Sprint(i), 1)
		_, other := call(t, fmt.Sprint(i), 7)
		if sampled(one, 0.5) != sampled(other, 0.5) {
			t.Errorf("%d: the cost changes the choice", i)
		}
		if !sampled(one, 1) || sampled(one, 0) {
			t.Errorf("%d: all or none", i)
		}
	}
	// The choice is the same in every version, because several may run at once.
	_, req := call(t, "ada", 1)
	if got := hashOf(req.Domain, req.Descriptors[0].Entries); got != 0xbfb8986b0fc5d92b {
		t.Errorf("the hash of a descriptor is now %#x", got)
	}
}

// TestShareOfLists: moving a border between descriptors, entries or texts changes the choice.
func TestShareOfLists(t *testing.T) {
	describe := func(pairs ...string) decide.Descriptor {
		var d decide.Descriptor
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, descriptors.Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		return d
	}
	seen := make(map[uint64]string)
	for name, entries := range map[string]descriptors.Descriptor{
		"a=b,c=d": describe("a", "b", "c", "d").Entries, "ab=,c=d": describe("ab", "", "c", "d").Entries,
		"a=bc,=d": describe("a", "bc", "", "d").Entries, "a=b": describe("a", "b").Entries, "=ab": describe("", "ab").Entries,
	} {
		h := hashOf("shop", entries)
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
	if hashOf("shop", nil) == hashOf("sho", describe("p", "").Entries) {
		t.Error("the domain and the first entry run together")
	}
}
