package ratelimit

import (
	"context"
	"errors"
	"slices"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Comparer also asks another service about decided requests.
type Comparer interface {
	// Compare gets the bytes of a request, the request and the verdict on it. It keeps none of
	// them, and does not block.
	Compare(encoded string, req *decide.Request, v *decide.Verdict)
}

// Options of a [Service]. Decider, Secrets, Headers and Meters are required.
type Options struct {
	Decider *decide.Decider
	// Secrets names the entries that hold API keys.
	Secrets *tier.Secrets
	Headers *answer.Renderer
	// Meters counts events outside the Decider.
	Meters Meters
	// PlainKeys gives the customer source the API keys themselves, and not only their
	// digests.
	PlainKeys bool
	// EchoRequest repeats the request in the dynamic metadata of its answer, unless the
	// request is longer than 64 KiB.
	EchoRequest bool
	// Compare gets each decided request, unless another instance compares it already: two services
	// that compare with each other would never end. Nil compares nothing.
	Compare Comparer
	// Probes denies the calls with some keys. Nil denies none.
	Probes *probe.Active
	// Reference gives answers the form of envoyproxy/ratelimit; see the manual.
	Reference bool
}

// Meters counts what a Service answers. It is safe for concurrent use.
type Meters interface {
	// IgnoredOverride counts an invalid limit that came with a descriptor.
	IgnoredOverride()
	// DegradedAnswer counts a request that was decided without the store. It gets the
	// strictest choice that the rules make for this case.
	DegradedAnswer(rules.OnStoreError)
}

// Service answers RateLimitService. It is safe for concurrent use.
type Service struct {
	opts    Options
	handler adapter.Handler[*call]
}

// NewService returns a Service.
func NewService(o Options) *Service {
	s := &Service{opts: o}
	s.handler = adapter.Handler[*call]{
		Service: &rlsv3.RateLimitService_ServiceDesc, Method: "ShouldRateLimit",
		New: func() *call { return new(call) }, Decide: s.decide, Append: s.append,
	}
	return s
}

// Register adds the service to a gRPC server, which must have been made with
// [adapter.Codec].
func (s *Service) Register(server grpc.ServiceRegistrar) { s.handler.Register(server) }

// Handle is the unary.Handler of ShouldRateLimit. Its errors are:
//
//   - INVALID_ARGUMENT: the request has no domain or no descriptors.
//   - UNAVAILABLE: the store could not decide in time.
//   - UNKNOWN: no rules were loaded yet. envoyproxy/ratelimit answers so.
//   - The error of grpc-go: the request cannot be read.
func (s *Service) Handle(ctx context.Context, wait bool, c *unary.Call, answer []byte) ([]byte, bool, error) {
	return s.handler.Handle(ctx, wait, c, answer)
}

// call is one request and its verdict. The next request reuses its memory.
type call struct {
	in     message
	policy decide.Call
	state
}

type state struct {
	begun    bool // the request is made from the message
	compared bool // another instance compares the answer
	request  decide.Request
	limits   []window.Limit // that came with descriptors
	echo     []byte         // encoded entries of metadata that repeat the request
	probe    *probe.Probe   // denies the call; nil: the rules decide it
	mcp      string         // what Envoy's MCP filter has read, as JSON
	headers  []answer.Header
	body     []byte // of a denial
}

// Decode implements [wire.Decoder].
func (c *call) Decode(encoded string) error { return c.in.Decode(encoded) }

// Describe implements [adapter.Call].
func (c *call) Describe(from *unary.Call) {
	c.request.ID, c.request.Ending = from.Kept[adapter.RequestID], from.Kept[adapter.StreamEnd]
	c.request.Stream, c.request.Reported = inflight.NewStreamID(from.Kept[adapter.StreamID]), adapter.Reported(from)
	c.compared, c.mcp = from.Kept[adapter.Compared] != "", from.Kept[adapter.MCP]
	if from.Exceeds != "" && c.in.over == "" {
		c.in.over = from.Exceeds + ": put fewer header values into descriptors"
	}
}

// Forget implements [adapter.Call].
func (c *call) Forget() {
	c.in.forget()
	c.policy.Forget()
	kept := state{limits: reuse.Slice(c.limits), echo: reuse.Slice(c.echo), headers: reuse.Slice(c.headers), body: reuse.Slice(c.body)}
	kept.request.Descriptors, kept.request.Plain = reuse.Slice(c.request.Descriptors), reuse.Slice(c.request.Plain)
	c.state = kept
}

func (s *Service) decide(ctx context.Context, wait bool, c *call) (decided bool, err error) {
	if !c.begun {
		if err := s.begin(c); err != nil {
			return true, err
		}
	}
	if c.probe != nil {
		if wait { // ctx has the deadline of the caller
			s.opts.Probes.Note(ctx, c.probe, s.opts.Decider.Rules(), c.request.Descriptors, probe.Call{Service: "ratelimit", Domain: c.request.Domain})
		}
		return wait, nil
	}
	decided, err = c.policy.Decide(ctx, wait)
	if decided && s.opts.Compare != nil && !c.compared {
		s.compare(c, err)
	}
	if err != nil {
		err = storeStatus(err)
	}
	return decided, err
}

func (s *Service) compare(c *call, err error) {
	v := c.policy.Verdict()
	if err != nil {
		v = nil
	}
	s.opts.Compare.Compare(c.in.encoded, &c.request, v)
}

func (s *Service) begin(c *call) error {
	switch {
	case c.in.over != "":
		c.request.Exceeds = c.in.over // the message was not read to its end
	case c.in.domain == "":
		return status.Error(codes.InvalidArgument, "the request has no domain")
	case len(c.in.descriptors) == 0:
		return status.Error(codes.InvalidArgument, "the request has no descriptors")
	}
	c.begun = true
	if s.opts.EchoRequest && len(c.in.encoded) <= maxEcho {
		c.echo = appendEcho(c.echo, &c.in, s.opts.Secrets)
	}
	for range c.read(s.opts.Secrets, s.opts.PlainKeys) {
		s.opts.Meters.IgnoredOverride()
	}
	if s.opts.Probes.On() {
		c.probe = s.opts.Probes.Find(c.request.Descriptors)
	}
	if c.probe == nil {
		s.opts.Decider.Begin(&c.policy, c.request)
	}
	return nil
}

func (s *Service) append(encoded []byte, c *call) []byte {
	if c.probe != nil {
		return appendProbed(encoded, c)
	}
	v := c.policy.Verdict()
	if v.Degraded {
		s.opts.Meters.DegradedAnswer(v.DegradedBy())
	}
	c.headers = s.opts.Headers.Append(c.headers, v, time.Now)
	switch {
	case v.Allowed:
	case !s.opts.Reference:
		about := answer.About{Form: answer.FormOf(c.request.Descriptors), MCP: c.mcp, Now: time.Now}
		c.headers, c.body = answer.AppendDenial(c.headers, c.body, v, about)
	case answer.RuleHasBody(v):
		c.headers, c.body = answer.AppendDenial(c.headers, c.body, v, answer.About{MCP: c.mcp, Now: time.Now})
	}
	if s.opts.Reference {
		return appendReference(encoded, v, c.headers, c.body, s.opts.EchoRequest, c.echo)
	}
	return appendAnswer(encoded, v, c.headers, c.body, c.echo)
}

// storeStatus returns the status that Envoy gets for a request that could not be decided.
// It hides the text of a store's error, which may contain addresses.
func storeStatus(err error) error {
	if errors.Is(err, rules.ErrMissing) {
		return status.Error(codes.Unknown, rules.ErrMissing.Error())
	}
	if errors.Is(err, window.ErrBadCheck) {
		return status.Error(codes.Internal, "the request made a check that no store accepts")
	}
	return status.Error(codes.Unavailable, "the store could not decide")
}

// read turns the message into plain values and replaces each API key by its fingerprint.
// If keepKeys is set, it keeps the keys for the customer source. It returns the number of
// invalid limits in the message.
func (c *call) read(secrets *tier.Secrets, keepKeys bool) (ignored int) {
	c.request.Domain = c.in.domain
	overrides := 0
	for i := range c.in.descriptors {
		if c.in.descriptors[i].limited {
			overrides++
		}
	}
	// It must not grow below: the descriptors point into it.
	c.limits = slices.Grow(c.limits, overrides)
	for i := range c.in.entries {
		e := &c.in.entries[i]
		if !secrets.Is(e.Key) {
			continue
		}
		key := secrets.Key(e.Value)
		e.Value = secrets.Fingerprint(key)
		if keepKeys {
			c.request.Plain = append(c.request.Plain, identity.PlainKey{Fingerprint: e.Value, Key: key})
		}
	}
	rest := c.in.entries
	for i := range c.in.descriptors {
		d := &c.in.descriptors[i]
		n := d.entries
		one := decide.Descriptor{Entries: rest[:n:n], Refund: d.refund, Ends: identity.IsEndOfStream(rest[:n])}
		one.Cost, one.Unpriced = c.in.cost(d), !d.hasAddend && c.in.hitsAddend == 0
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
