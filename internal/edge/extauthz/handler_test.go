package extauthz

import (
	"bytes"
	"context"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// waitingSource is a resolver that answers nothing without waiting.
type waitingSource struct{ tier.Resolver }

func (s waitingSource) Resolve(ctx context.Context, k tier.Key, wait time.Duration) (a tier.Answer, ok bool) {
	if wait < 0 {
		return tier.Answer{}, false
	}
	return s.Resolver.Resolve(ctx, k, wait)
}

// newWaiting returns a service whose store and customer source decide only with waiting.
func newWaiting(t testing.TB, change func(*Options)) *testService {
	t.Helper()
	s := new(testService)
	store := adaptertest.Memory(t, func() time.Duration { return s.now })
	*s = *newService(t, adaptertest.WaitingStore{Store: store}, func(o *Options) {
		o.Subjects = waitingSource{o.Decider.Rules().Tiers()}
		if change != nil {
			change(o)
		}
	})
	return s
}

// TestWaitingIsTheSame sends the same requests to services that decide without waiting, or
// that wait for the customer source, for the store, or for both.
func TestWaitingIsTheSame(t *testing.T) {
	limits := map[string]string{"domain": "edge"}
	oracle := newService(t, nil, nil)
	others := map[string]struct {
		*testService
		way adaptertest.Way
	}{
		"without waiting":      {newService(t, nil, nil), adaptertest.WithoutWaiting},
		"unary":                {newService(t, nil, nil), adaptertest.Unary},
		"waits for both":       {newWaiting(t, nil), adaptertest.Unary},
		"waits for the source": {newService(t, nil, func(o *Options) { o.Subjects = waitingSource{o.Decider.Rules().Tiers()} }), adaptertest.Unary},
		"waits for the store":  {newWaiting(t, func(o *Options) { o.Subjects = nil }), adaptertest.Unary},
	}
	for i, in := range []*authv3.CheckRequest{
		{},
		ask("/", nil, "x-api-key: acme-key"),
		ask("/", limits, "x-api-key: hobby-key"), ask("/", limits, "x-api-key: hobby-key"),
		ask("/", limits, "x-api-key: hobby-key"), // exceeds the limit of the address
		ask("/", map[string]string{"domain": "edge", "descriptors": "route=login"}, "x-api-key: acme-key"),
		ask("/", map[string]string{"domain": "edge", "descriptors": "route=login"}, "x-api-key: acme-key"),
		ask("/", map[string]string{"domain": "edge", "descriptors": "route=%REQ(x-route)%,remote_address;api_key"}, "x-api-key: acme-key"),
		ask("/", map[string]string{"domain": "unknown"}, "x-api-key: acme-key"),
		ask("/", map[string]string{"domain": "edge", "cost": "x"}, "x-api-key: acme-key"),
		ask("/", map[string]string{"domain": "edge", "anonymous": "true"}),
		ask("/", limits, "x-api-key: gone-key"), ask("/", limits, "x-api-key: unknown"), ask("/", limits, "x-api-key: a b"),
		askRaw("/?api_key=acme-key", limits),
	} {
		b := []byte(encode(t, in))
		want, wantErr := adaptertest.Standard(t, oracle.Service, b)
		for name, s := range others {
			got, err := s.way(t, s, b)
			if status.Code(err) != status.Code(wantErr) {
				t.Errorf("%s, %d: %v, want %v", name, i, err, wantErr)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, %d: %q, want %q", name, i, got, want)
			}
			if diff := cmp.Diff(oracle.meters.results, s.meters.results); diff != "" {
				t.Errorf("%s, %d: counted (-want +got):\n%s", name, i, diff)
			}
		}
	}
	_, err := adaptertest.Unary(t, oracle.Service, []byte{0xff})
	if _, want := adaptertest.Standard(t, oracle.Service, []byte{0xff}); err == nil || err.Error() != want.Error() {
		t.Errorf("no message: %v, want %v", err, want)
	}
}

// TestFailures proves that a failure of the source or of the store is UNAVAILABLE.
func TestFailures(t *testing.T) {
	in := []byte(encode(t, ask("/", map[string]string{"domain": "edge"}, "x-api-key: acme-key")))
	for want, s := range map[Result]*testService{
		Unavailable: newService(t, nil, func(o *Options) { o.Subjects = failingSource{} }),
		Undecided:   newService(t, failingStore, nil),
	} {
		b, err := adaptertest.Unary(t, s.Service, in)
		if err != nil {
			t.Fatal(err)
		}
		out := new(authv3.CheckResponse)
		if err := proto.Unmarshal(b, out); err != nil || out.GetStatus().GetCode() != int32(codes.Unavailable) {
			t.Errorf("%v: answer %v, %v, want UNAVAILABLE", want, out, err)
		}
		if diff := cmp.Diff(map[Result]int{want: 1}, s.meters.results); diff != "" {
			t.Errorf("%v: counted (-want +got):\n%s", want, diff)
		}
	}
}

// countingSource counts its questions.
type countingSource struct {
	tier.Resolver
	withoutWait, withWait int
}

func (c *countingSource) Resolve(ctx context.Context, k tier.Key, wait time.Duration) (a tier.Answer, ok bool) {
	if wait < 0 {
		c.withoutWait++
	} else {
		c.withWait++
	}
	return c.Resolver.Resolve(ctx, k, wait)
}

// TestDecideContinues proves that the source is not asked again if only the store has to
// wait, and that the descriptors are not made again.
func TestDecideContinues(t *testing.T) {
	var source countingSource
	s := newService(t, adaptertest.WaitingStore{Store: memstore.New(memstore.Options{SweepInterval: -1})}, func(o *Options) {
		source.Resolver = o.Decider.Rules().Tiers()
		o.Subjects = &source
	})
	c := new(call)
	read(t, &c.in, ask("/", map[string]string{"domain": "edge"}, "x-api-key: hobby-key"))
	if decided, _ := s.decide(t.Context(), false, c); decided {
		t.Fatal("decided, although the store has to wait")
	}
	limits := len(c.request.Descriptors)
	_, _ = s.decide(t.Context(), true, c)
	if source.withoutWait != 1 || source.withWait != 0 {
		t.Errorf("the source was asked %d and %d times, want once and not again", source.withoutWait, source.withWait)
	}
	if c.result != Authenticated || limits != 2 || len(c.request.Descriptors) != limits {
		t.Errorf("%v with %d descriptors, %d before, want 2", c.result, len(c.request.Descriptors), limits)
	}
}

// TestNothingOfARequestIsKept proves that the memory for the next request is empty, after
// every kind of request.
func TestNothingOfARequestIsKept(t *testing.T) {
	limits := map[string]string{"domain": "edge", "descriptors": "api_key;remote_address;a=%METHOD%,b=%REQ(x-none)%"}
	plain := func(o *Options) { o.PlainKeys = true }
	for name, s := range map[string]*testService{
		"without waiting": newService(t, nil, plain), "with waiting": newWaiting(t, plain), "broken": newService(t, failingStore, plain),
	} {
		for what, in := range map[string][]byte{
			"limits":     []byte(encode(t, ask("/?api_key=acme-key", limits, "x-api-key: acme-key", "cookie: key=acme-key"))),
			"unknown":    []byte(encode(t, ask("/", limits, "x-api-key: planted-key"))),
			"unreadable": []byte(encode(t, ask("/", limits, "x-api-key: acme-key")) + "\xff"),
		} {
			for _, w := range []adaptertest.Way{adaptertest.Standard, adaptertest.Unary} {
				for range 4 {
					_, _ = w(t, s.Service, in)
				}
			}
			t.Run(name+" "+what, func(t *testing.T) { adaptertest.Pool(t, s.handler.Get) })
		}
	}
}

// TestAllocations bounds the allocations of a request. It allocates its texts and the
// fingerprint of the API key. With a limit it also allocates the key of the log, its tag,
// and the header fields.
func TestAllocations(t *testing.T) {
	s := newService(t, nil, nil)
	for most, context := range map[float64]map[string]string{2: nil, 5: {"domain": "edge", "descriptors": "api_key"}} {
		in := []byte(encode(t, ask("/", context, "x-api-key: acme-key")))
		if got := adaptertest.Allocations(t, s, in, s.wait); got > most {
			t.Errorf("%v: %v allocations, want %v", context, got, most)
		}
	}
}

// TestPanics proves that the memory of a request that panicked is never used again.
func TestPanics(t *testing.T) {
	s := newService(t, adaptertest.WaitingStore{Store: adaptertest.PanickingStore{}}, nil)
	adaptertest.Panics(t, s.Service, []byte(encode(t, ask("/", map[string]string{"domain": "edge"}, "x-api-key: acme-key"))))
	for range 80 {
		if c := s.handler.Get(); c.in.fields.lines != nil {
			t.Error("the memory of a request that panicked was put back")
		}
	}
}
