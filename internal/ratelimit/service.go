package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/internal/wire"
	"github.com/slidegate/slidegate/pkg/window"
)

// Options of a [Service]. Decider, Secrets and Headers are required.
type Options struct {
	Decider *policy.Decider
	// Secrets names the entries that hold API keys.
	Secrets *tier.Secrets
	Headers *answer.Renderer
	// Meters counts what the Decider does not see. Nil: nobody does.
	Meters Meters
	// PlainKeys has the source of tiers asked by API keys themselves, and not by
	// their digests.
	PlainKeys bool
	// EchoRequest repeats the request in the dynamic metadata of its answer, unless it
	// is longer than 64 KiB.
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

// call is one request on its way. Its memory is reused by the next.
type call struct {
	in      message
	request policy.Request
	limits  []window.Limit // that came with descriptors
	echo    []byte         // the entries of metadata that repeat the request
	verdict policy.Verdict
	headers []answer.Header
	answer  []byte
}

// release gives a call back whose request is answered. It is not called where
// something panicked: what that left behind is nothing to go on with.
func (s *Service) release(c *call) {
	c.forget()
	s.calls.Put(c)
}

// forget leaves nothing of the request behind, and no API key: texts of entries are
// parts of the whole message, which holds them.
func (c *call) forget() {
	c.in.forget()
	c.verdict.Forget()
	*c = call{
		in: c.in,
		request: policy.Request{
			Descriptors: emptied(c.request.Descriptors, maxKept),
			Plain:       emptied(c.request.Plain, maxKept),
		},
		limits:  emptied(c.limits, maxKept),
		echo:    emptied(c.echo, maxKeptBytes),
		verdict: c.verdict,
		headers: emptied(c.headers, maxKept),
		answer:  emptied(c.answer, maxKeptBytes),
	}
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
	c := s.calls.Get().(*call)
	if err := decode(&c.in); err != nil {
		s.release(c)
		return nil, err
	}
	handle := func(ctx context.Context, _ any) (any, error) {
		b, err := s.wholly(ctx, c)
		if err != nil {
			return nil, err
		}
		return wire.Encoded(b), nil
	}
	if intercept == nil {
		return handle(ctx, nil)
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}
	return intercept(ctx, &c.in, info, handle)
}

// ShouldRateLimit answers OK or OVER_LIMIT. Errors are INVALID_ARGUMENT for a
// request without a domain or descriptors, UNAVAILABLE where the store could not
// decide, or not in time, and INTERNAL for a message that cannot be encoded.
func (s *Service) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	b, err := proto.Marshal(in)
	if err != nil {
		return nil, status.Error(codes.Internal, "the request is not a message")
	}
	c := s.calls.Get().(*call)
	if err := c.in.Decode(string(b)); err != nil {
		s.release(c)
		return nil, wire.Unreadable(err)
	}
	if b, err = s.wholly(ctx, c); err != nil {
		return nil, err
	}
	out := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(b, out); err != nil {
		return nil, status.Error(codes.Internal, "the answer is not a message")
	}
	return out, nil
}

// Prompt answers an encoded request at once where that needs no waiting: it appends
// the encoded answer to answer. Where it would have to wait it returns the rest of
// the call, which has to be called once, and answers then. It does not keep answer.
// Errors are those of [Service.ShouldRateLimit], and what gRPC says of a request
// that cannot be read. It is a unary.Prompt but for the name of the rest's type.
func (s *Service) Prompt(request string, answer []byte) ([]byte, func(ctx context.Context, answer []byte) ([]byte, error), error) {
	c := s.calls.Get().(*call)
	err := c.in.Decode(request)
	if err != nil {
		s.release(c)
		return answer, nil, wire.Unreadable(err)
	}
	if err = s.begin(c); err != nil {
		s.release(c)
		return answer, nil, err
	}
	decided, err := s.opts.Decider.Try(&c.request, &c.verdict)
	if err == nil && !decided {
		return answer, func(ctx context.Context, answer []byte) ([]byte, error) {
			err := s.opts.Decider.Decide(ctx, &c.request, &c.verdict)
			return s.end(answer, c, err)
		}, nil
	}
	answer, err = s.end(answer, c, err)
	return answer, nil, err
}

// wholly answers the request in c, however long that takes, and releases c.
func (s *Service) wholly(ctx context.Context, c *call) (answer []byte, err error) {
	if err = s.begin(c); err == nil {
		err = s.opts.Decider.Decide(ctx, &c.request, &c.verdict)
		c.answer, err = s.append(c.answer, c, err)
		answer = slices.Clone(c.answer)
	}
	s.release(c)
	return answer, err
}

// begin turns the message in c into a request that can be decided.
func (s *Service) begin(c *call) error {
	switch {
	case c.in.over != "":
		return status.Error(codes.InvalidArgument, c.in.over)
	case c.in.domain == "":
		return status.Error(codes.InvalidArgument, "the request has no domain")
	case len(c.in.descriptors) == 0:
		return status.Error(codes.InvalidArgument, "the request has no descriptors")
	}
	if s.opts.EchoRequest && c.in.size <= maxEcho {
		c.echo = appendEcho(c.echo, &c.in, s.opts.Secrets)
	}
	for range c.read(s.opts.Secrets, s.opts.PlainKeys) {
		s.opts.Meters.IgnoredOverride()
	}
	return nil
}

// end appends the answer, and releases c.
func (s *Service) end(answer []byte, c *call, err error) ([]byte, error) {
	answer, err = s.append(answer, c, err)
	s.release(c)
	return answer, err
}

// append appends the answer to a request that was decided, or could not be.
func (s *Service) append(answer []byte, c *call, err error) ([]byte, error) {
	if err != nil {
		return answer, storeStatus(err)
	}
	if c.verdict.Degraded {
		s.opts.Meters.DegradedAnswer(c.verdict.DegradedBy())
	}
	c.headers = s.opts.Headers.Append(c.headers, &c.verdict, time.Now)
	return appendAnswer(answer, &c.verdict, c.headers, c.echo), nil
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
func (c *call) read(secrets *tier.Secrets, keepKeys bool) (ignored int) {
	c.request.Domain = c.in.domain
	overrides := 0
	for i := range c.in.descriptors {
		if c.in.descriptors[i].limited {
			overrides++
		}
	}
	// All at once: descriptors point into it.
	c.limits = slices.Grow(c.limits, overrides)
	for i := range c.in.entries {
		e := &c.in.entries[i]
		if !secrets.Is(e.Key) {
			continue
		}
		key := secrets.Key(e.Value)
		e.Value = secrets.Fingerprint(key)
		if keepKeys {
			c.request.Plain = append(c.request.Plain, policy.PlainKey{Fingerprint: e.Value, Key: key})
		}
	}
	rest := c.in.entries
	for i := range c.in.descriptors {
		d := &c.in.descriptors[i]
		n := d.entries
		one := policy.Descriptor{Entries: rest[:n:n], Cost: c.in.cost(d), Refund: d.refund}
		rest = rest[n:]
		if limit, ok := d.limit.asLimit(); d.limited && ok {
			c.limits = append(c.limits, limit)
			one.Override = &c.limits[len(c.limits)-1]
		} else if d.limited {
			ignored++
		}
		c.request.Descriptors = append(c.request.Descriptors, one)
	}
	return ignored
}
