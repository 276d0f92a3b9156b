package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/headers"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/internal/wire"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// maxDescriptors bounds one request. Envoy sends one for each configured action
// list, so a handful; more is a mistake or an attack on the store.
const maxDescriptors = 256

// Options of a [Service]. Decider, Secrets and Headers are required.
type Options struct {
	Decider *policy.Decider
	// Secrets names the entries that hold API keys.
	Secrets *tier.Secrets
	Headers *headers.Renderer
	// Meters counts what the Decider does not see. Nil: nobody does.
	Meters Meters
	// PlainKeys has the source of tiers asked by API keys themselves, and not by
	// their digests.
	PlainKeys bool
	// EchoRequest repeats the request in the dynamic metadata of its answer.
	EchoRequest bool
}

// Meters counts what a Service answers. Safe for concurrent use.
type Meters interface {
	// IgnoredOverride counts a limit that came with a descriptor and is none.
	IgnoredOverride()
	// DegradedAnswer counts a request that was decided without the store, by the
	// strictest choice that its rules made for that.
	DegradedAnswer(policy.OnStoreError)
}

// unmetered is a Meters that counts nothing.
type unmetered struct{}

func (unmetered) IgnoredOverride()                   {}
func (unmetered) DegradedAnswer(policy.OnStoreError) {}

// Service implements RateLimitService. It is safe for concurrent use.
type Service struct {
	rlsv3.UnimplementedRateLimitServiceServer

	opts  Options
	calls sync.Pool
}

// NewService returns a Service that asks o.Decider, digests the entries that
// o.Secrets names, and answers with the headers that o.Headers renders.
func NewService(o Options) *Service {
	if o.Meters == nil {
		o.Meters = unmetered{}
	}
	return &Service{opts: o, calls: sync.Pool{New: func() any { return new(call) }}}
}

// call is the memory of one request, reused by the next.
type call struct {
	request policy.Request
	entries []descriptors.Entry
	verdict policy.Verdict
	headers []headers.Header
	answer  []byte
}

// Register adds the service to a gRPC server, which must have been made with
// [Codec]. Its answers leave as they were encoded; rlsv3's own registration
// would decode every one of them only to encode it again.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	desc := rlsv3.RateLimitService_ServiceDesc
	desc.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}}
	server.RegisterService(&desc, s)
}

// shouldRateLimit is what gRPC calls.
//
//nolint:revive // gRPC gives the order of the arguments
func shouldRateLimit(service any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	s := service.(*Service)
	in := new(rlsv3.RateLimitRequest)
	if err := decode(in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, in any) (any, error) {
		b, err := s.answer(ctx, in.(*rlsv3.RateLimitRequest))
		if err != nil {
			return nil, err
		}
		return wire.Encoded(b), nil
	}
	if intercept == nil {
		return handle(ctx, in)
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}
	return intercept(ctx, in, info, handle)
}

// ShouldRateLimit answers OK or OVER_LIMIT. Errors are INVALID_ARGUMENT for a
// request without a domain or descriptors, and UNAVAILABLE where the store could
// not decide, or not in time.
func (s *Service) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	b, err := s.answer(ctx, in)
	if err != nil {
		return nil, err
	}
	out := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(b, out); err != nil {
		return nil, status.Error(codes.Internal, "the answer is not a message")
	}
	return out, nil
}

// answer returns the encoded answer.
func (s *Service) answer(ctx context.Context, in *rlsv3.RateLimitRequest) ([]byte, error) {
	switch n := len(in.GetDescriptors()); {
	case in.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "the request has no domain")
	case n == 0:
		return nil, status.Error(codes.InvalidArgument, "the request has no descriptors")
	case n > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "the request has %d descriptors, more than %d", n, maxDescriptors)
	}
	c := s.calls.Get().(*call)
	defer c.done(&s.calls)
	for range c.read(in, s.opts.Secrets, s.opts.PlainKeys) {
		s.opts.Meters.IgnoredOverride()
	}
	if err := s.opts.Decider.Decide(ctx, &c.request, &c.verdict); err != nil {
		return nil, storeStatus(err)
	}
	if c.verdict.Degraded {
		s.opts.Meters.DegradedAnswer(c.verdict.DegradedBy())
	}
	var asked echo
	if s.opts.EchoRequest {
		asked = echo{in, s.opts.Secrets}
	}
	c.headers = s.opts.Headers.Append(c.headers[:0], &c.verdict, time.Now())
	c.answer = appendAnswer(c.answer[:0], &c.verdict, c.headers, asked)
	return slices.Clone(c.answer), nil
}

// done gives the memory back, without API keys: texts of entries are parts of the
// whole message, which holds them.
func (c *call) done(to *sync.Pool) {
	clear(c.request.Plain)
	clear(c.request.Descriptors)
	clear(c.entries)
	c.request.Domain, c.request.Plain = "", c.request.Plain[:0]
	c.verdict.Forget()
	to.Put(c)
}

// storeStatus is what Envoy sees of a store that could not decide. The text of
// the cause stays here: it may name addresses.
func storeStatus(err error) error {
	if errors.Is(err, window.ErrBadCheck) {
		return status.Error(codes.Internal, "the request made a check that no store accepts")
	}
	return status.Error(codes.Unavailable, "the store could not decide")
}

// read turns the message into plain values. No API key is left in them, unless they
// are to be kept for the source of tiers. It returns how many limits came with the
// request that are none.
func (c *call) read(in *rlsv3.RateLimitRequest, secrets *tier.Secrets, keepKeys bool) (ignored int) {
	c.request.Domain = in.GetDomain()
	c.request.Descriptors = c.request.Descriptors[:0]
	c.entries = c.entries[:0]
	total := 0
	for _, d := range in.GetDescriptors() {
		total += len(d.GetEntries())
	}
	if cap(c.entries) < total {
		// All at once: the descriptors below point into it.
		c.entries = make([]descriptors.Entry, 0, total)
	}
	for _, d := range in.GetDescriptors() {
		first := len(c.entries)
		for _, e := range d.GetEntries() {
			value := secrets.Value(e.GetKey(), e.GetValue())
			c.entries = append(c.entries, descriptors.Entry{Key: e.GetKey(), Value: value})
			if keepKeys && secrets.Is(e.GetKey()) {
				c.request.Plain = append(c.request.Plain, policy.PlainKey{Fingerprint: value, Key: e.GetValue()})
			}
		}
		limit := override(d.GetLimit())
		if limit == nil && d.GetLimit() != nil {
			ignored++
		}
		c.request.Descriptors = append(c.request.Descriptors, policy.Descriptor{
			Entries:  c.entries[first:len(c.entries):len(c.entries)],
			Cost:     cost(in, d),
			Override: limit,
			Refund:   d.GetIsNegativeHits(),
		})
	}
	return ignored
}

// cost is the descriptor's own addend, even zero, else the request's, where zero
// means one.
func cost(in *rlsv3.RateLimitRequest, d *ratelimitcommonv3.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return own.GetValue()
	}
	return max(1, uint64(in.GetHitsAddend()))
}
