package extauthz

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// call is one request and its result. The next request reuses its memory.
type call struct {
	in       request
	policy   decide.Call
	upstream upstream
	state
}

type state struct {
	step   step
	result Result // as far as it is known
	keys   apiKeys
	caller caller
	client client
	spent  int // on values of descriptors, in bytes

	limited bool // there is a verdict
	request decide.Request
	entries []descriptors.Entry
	probe   *probe.Probe // denies the call; nil: none does
	reply   reply        // to a client that is denied; its fields are also on the answer to one that passes
	names   []string     // of labels
}

type apiKeys struct {
	all         []string // the first one counts
	resolved    int      // how many have been looked up
	fingerprint string   // of the first key; empty without a key
}

// A caller is the subject of the first API key, or anonymous.
type caller struct {
	subject  *tier.Subject   // nil: anonymous
	limits   *limits.Set     // that its tier carries; nil: none
	resolved identity.Caller // for the limits of the request
	id, tier string
}

type client struct {
	address netip.Addr // invalid if it has none
	located bool       // address is set
}

type step int

const (
	findKeys     step = iota // finds the API keys of the request
	findSubjects             // looks up the subjects of the keys, which may wait
	findLimits               // makes the descriptors that the context asks for
	noteProbe                // notes the call that a probe denies, which may wait
	takeLimits               // has the descriptors decided, which may wait
	finish                   // counts the result
	done                     // nothing: the result is counted
)

// Decode implements [wire.Decoder].
func (c *call) Decode(encoded string) error { return c.in.Decode(encoded) }

// Describe implements [adapter.Call]. The header of the client's request goes before that of the
// call.
func (c *call) Describe(from *unary.Call) {
	c.request.ID, c.in.mcp = from.Kept[adapter.RequestID], from.Kept[adapter.MCP]
	c.request.Stream, c.request.Reported = inflight.NewStreamID(from.Kept[adapter.StreamID]), adapter.Reported(from)
	c.in.oversized = c.in.oversized || from.Exceeds != ""
}

// Forget implements [adapter.Call].
func (c *call) Forget() {
	c.in.forget()
	c.upstream.forget()
	c.policy.Forget()
	kept := state{
		keys: apiKeys{all: reuse.Slice(c.keys.all)}, entries: reuse.Slice(c.entries),
		reply: reply{reuse.Slice(c.reply.fields), reuse.Slice(c.reply.body)}, names: reuse.Slice(c.names),
	}
	kept.request.Descriptors, kept.request.Plain = reuse.Slice(c.request.Descriptors), reuse.Slice(c.request.Plain)
	c.state = kept
}

// decide decides the request in c. It never returns an error. If it reports false, the
// next decide continues with the same step.
func (s *Service) decide(ctx context.Context, wait bool, c *call) (decided bool, _ error) {
	if c.step == findKeys {
		c.step = s.findKeys(c)
	}
	if c.step == findSubjects {
		left := tier.NoWait
		if wait {
			left = s.opts.Wait
		}
		if !s.findSubjects(ctx, c, left) {
			return false, nil
		}
		c.step = findLimits
	}
	if c.step == findLimits {
		c.step = s.findLimits(c)
		if c.probe == nil && s.opts.Probes.On() {
			c.probe = s.opts.Probes.Find(c.request.Descriptors)
		}
		if c.probe != nil {
			c.step = noteProbe
		}
	}
	if c.step == noteProbe {
		if !wait {
			return false, nil // with wait, ctx has the deadline of the caller
		}
		s.noteProbe(ctx, c)
		c.step = finish
	}
	if c.step == takeLimits {
		decided, err := c.policy.Decide(ctx, wait)
		if !decided {
			return false, nil
		}
		s.limit(c, err)
		c.step = finish
	}
	if c.step == finish {
		if c.result.passes() {
			s.addUpstream(c)
		}
		s.opts.Meters.Authorized(c.result)
		if s.opts.Traced != nil {
			s.opts.Traced(ctx, c.result)
		}
		c.step = done
	}
	return true, nil
}

// findKeys finds the API keys of a request and returns the next step.
func (s *Service) findKeys(c *call) step {
	switch {
	case c.in.manyEntries:
		s.opts.Log.Error("the context of a route has too many entries, so its requests are answered with an error; correct context_extensions in Envoy", zap.Int("most", maxContext))
		c.result = Misconfigured
		return finish
	case c.in.oversized:
		c.result = Oversized
		return finish
	}
	key, p, behind := find(&c.in, s.opts.Credentials)
	switch p {
	case malformed:
		c.result = Malformed
		return finish
	case absent:
		if anonymous, _ := c.in.contextOf("anonymous"); anonymous != "true" {
			c.result = Missing
			return finish
		}
		c.caller.id, c.caller.tier = tier.AnonymousPrefix+s.anonymous(c), s.opts.Decider.Rules().TierOf(nil)
		c.caller.limits = s.opts.Decider.Rules().LimitsOf(nil)
		c.result = Anonymous
		return findLimits
	}
	ok := false
	if c.keys.all, ok = appendOthers(append(c.keys.all, key), &c.in, behind); !ok {
		c.result = Malformed
		return finish
	}
	c.keys.fingerprint = s.opts.Secrets.Fingerprint(key)
	if s.opts.Probes.On() && s.findProbe(c) {
		return findLimits
	}
	return findSubjects
}

// findSubjects finds the subjects of all API keys of a request, which share the wait. It
// reports false if wait is tier.NoWait and a source must be asked. The next findSubjects
// continues with the same key.
func (s *Service) findSubjects(ctx context.Context, c *call, wait time.Duration) (done bool) {
	var start time.Time
	if wait > 0 && len(c.keys.all) > 1 {
		start = time.Now()
	}
	for ; c.keys.resolved < len(c.keys.all) && c.result == Authenticated; c.keys.resolved++ {
		key, fingerprint := c.keys.all[c.keys.resolved], c.keys.fingerprint
		if c.keys.resolved > 0 {
			fingerprint = s.opts.Secrets.Fingerprint(key)
		}
		plain := ""
		if s.opts.PlainKeys {
			plain = key
		}
		left := wait
		if !start.IsZero() {
			left = max(0, wait-time.Since(start))
		}
		var guesses time.Duration
		if c.keys.resolved == 0 {
			if guesses = s.guesses(c); guesses > 0 && !s.failures.again(fingerprint) {
				left = tier.OnlyKnown
			}
		}
		a, ok := s.opts.Secrets.Resolve(ctx, s.subjects(), fingerprint, plain, left)
		switch {
		case guesses > 0 && (!ok && left == tier.OnlyKnown || ok && a.Subject == nil && !a.Unavailable):
			c.refuseGuess(guesses)
		case !ok:
			return false
		case c.keys.resolved == 0:
			if s.identify(c, a); c.result == Unknown {
				s.fail(c)
			}
		case a.Subject != nil && a.Subject.ID != c.caller.id:
			c.result = Ambiguous
		case a.Subject == nil && a.Unavailable:
			c.result = Unavailable
		}
	}
	return true
}

var noSubjects tier.Directory

func (s *Service) subjects() tier.Resolver {
	if s.opts.Subjects != nil {
		return s.opts.Subjects
	}
	if directory := s.opts.Decider.Rules().Tiers(); directory != nil {
		return directory
	}
	return &noSubjects
}

func (s *Service) identify(c *call, a tier.Answer) {
	switch {
	case a.Subject == nil && a.Unavailable:
		c.result = Unavailable
		return
	case a.Subject == nil:
		c.result = Unknown
		return
	}
	c.caller.subject, c.caller.id, c.caller.tier = a.Subject, a.Subject.ID, s.opts.Decider.Rules().TierOf(a.Subject)
	if a.Subject.Disabled {
		c.result = Disabled
		return
	}
	c.caller.limits = s.opts.Decider.Rules().LimitsOf(a.Subject)
	c.caller.resolved = identity.Caller{Fingerprint: c.keys.fingerprint, Answer: a}
	c.request.Caller = &c.caller.resolved
}

// findLimits makes the descriptors that the context asks for and returns the next step.
func (s *Service) findLimits(c *call) step {
	domain, ok := c.in.contextOf("domain")
	if !ok || !c.result.passes() {
		return finish
	}
	switch err := s.addDescriptors(c, domain); {
	case errors.Is(err, errValues):
		c.result = Oversized
		return finish
	case err != nil:
		s.opts.Log.Error("the context of a route cannot be understood, so its requests are answered with an error; correct context_extensions in Envoy",
			zap.String("domain", decide.ShownDomain(domain)), zap.Error(err))
		c.result = Misconfigured
		return finish
	}
	if len(c.request.Descriptors) == 0 {
		return finish
	}
	c.describe()
	s.opts.Decider.Begin(&c.policy, c.request)
	return takeLimits
}

// requestID is the name of the header field that Envoy adds to each request.
const requestID = "x-request-id"

// describe sets what is only shown: the route and the id of the request.
func (c *call) describe() {
	first := true
	c.in.fields.each(requestID, func(line string) {
		if first && line != "" {
			c.request.ID, first = line, false
		}
	})
	c.request.Route, _ = c.in.contextOf("route")
}

// limit sets the result of a request whose limits are decided, or could not be decided
// because of err.
func (s *Service) limit(c *call, err error) {
	if err != nil {
		c.result = Undecided
		return
	}
	c.limited = true
	v := c.policy.Verdict()
	if v.Degraded {
		s.opts.Meters.DegradedAnswer(v.DegradedBy())
	}
	c.reply.fields = s.opts.Headers.Append(c.reply.fields, v, time.Now)
	if v.Allowed {
		return
	}
	about := answer.About{Form: answer.FormOf(c.request.Descriptors), MCP: c.in.mcp, Code: uint64(codes.Unavailable), Now: time.Now}
	c.reply.fields, c.reply.body = answer.AppendDenial(c.reply.fields, c.reply.body, v, about)
	c.result = Limited
}
