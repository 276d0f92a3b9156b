package decide

import (
	"log/slog"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/window"
)

// countUnlimited counts each descriptor without a limit. For an unknown domain it counts the request
// instead.
func (c *Call) countUnlimited() {
	v := &c.verdict
	if c.domain == nil && c.req.EndsStream() {
		return // the domain of a filter that only ends streams needs no rules
	}
	if c.domain == nil {
		c.decider.opts.Meters.UnknownDomain()
		if hits := c.decider.opts.Hits; hits != nil {
			hits.UnknownDomain(c.req.Domain, len(c.req.Descriptors))
		}
		if write := c.decider.line("a request names a domain without rules and is allowed; correct domain in Envoy, or in the rules"); write != nil {
			write(domainField(c.req.Domain))
		}
		return
	}
	if !c.decider.counts {
		return
	}
	at := 0
	for i := range v.Matches {
		m, limited := &v.Matches[i], false
		for ; at < len(v.Limits) && v.Limits[at].Descriptor == i; at++ {
			limited = true
		}
		entries := c.req.Descriptors[i].Entries
		switch {
		case limited || c.req.Descriptors[i].Ends:
		case m.Rule == nil && len(entries) == 1 && rules.NamesForm(entries[0].Key, entries[0].Value):
		case m.Rule == nil:
			c.state().unruled.Count(OutcomeNoRule)
		case m.ReplacedBy != nil:
			c.meter(m.Rule).Count(OutcomeReplaced)
		case m.Unlimited:
			c.meter(m.Rule).Count(OutcomeUnlimited)
		default: // the rule has no limit for this tier
			c.state().unruled.Count(OutcomeNoRule)
		}
	}
}

// countErrors counts that the store could not decide, once for each descriptor.
func (c *Call) countErrors() {
	if !c.decider.counts {
		return
	}
	for s := range c.verdict.Undecided {
		c.meter(s.Rule).Count(OutcomeError)
	}
}

// countLimits counts the strictest limit of each descriptor that the store has decided.
func (c *Call) countLimits() {
	v := &c.verdict
	if c.decider.opts.Hits != nil {
		c.countShadowed()
	}
	for i, at := range v.Strictest {
		if at < 0 || v.Limits[at].DecidedBy != verdict.ByStore {
			continue
		}
		s := &v.Limits[at]
		outcome := outcomeOf(s, v.Allowed)
		c.meter(s.Rule).Count(outcome)
		if outcome == OutcomeDenied || outcome == OutcomeNever {
			c.countDenial(s)
		}
		if desc := &c.req.Descriptors[i]; s.Rule.SeriesByValue() && desc.Override == nil {
			c.text = s.Rule.AppendSeries(reuse.Slice(c.text), desc.Entries)
			c.meter(s.Rule).Detail(c.text, outcome)
		}
		c.countHits(s)
	}
	for i := range v.Limits {
		if s := &v.Limits[i]; s.Decision.Cut {
			c.countCut(s.Rule)
			break
		}
	}
}

// countCut counts and logs a usage update that was recorded only in part.
func (c *Call) countCut(rule *rules.Rule) {
	c.decider.opts.Meters.CutUpdate()
	c.decider.warn("a usage update was recorded in part, because a log counts at most twice its limit; check the cost that Envoy sends",
		slog.Any("rule", rule), slog.String("name", rule.Name))
}

// countDenial counts which limit of the rule has denied. The configuration bounds the windows of a
// rule, but not those of limits from a customer source or a request.
func (c *Call) countDenial(s *LimitStatus) {
	p, win := s.Limit.Policy, s.Limit.Window
	switch {
	case s.Source == verdict.SourceOverride || s.Source == verdict.SourceRequest || s.Source == verdict.SourceGrant:
		p, win = window.Sliding, 0
	case p == window.InFlight:
		win = 0 // the log has no window
	}
	c.meter(s.Rule).Denied(s.Tier, p, win)
}

// maxDomainShown bounds what a log line repeats of a domain, in bytes.
const maxDomainShown = 128

// ShownDomain returns the beginning of a request's domain for a log line, escaped for terminals. It
// shares no memory with the request.
func ShownDomain(domain string) string {
	shown, _ := safetext.Bytes(domain, maxDomainShown)
	return shown
}

func domainField(domain string) slog.Attr { return slog.String("domain", ShownDomain(domain)) }

// outcomeOf returns what happened to a limit. allowed reports whether the request passes.
func outcomeOf(s *LimitStatus, allowed bool) Outcome {
	switch {
	case s.Mode == window.Refund:
		return OutcomeRefunded
	case s.Observed() && s.Decision.Allowed:
		return OutcomeShadowAllowed
	case s.Observed():
		return OutcomeShadowDenied
	case !s.Decision.Allowed && allowed:
		return OutcomePassedOver
	case s.Decision.Never:
		return OutcomeNever
	case !s.Decision.Allowed:
		return OutcomeDenied
	case !allowed && s.Mode != window.Always:
		return OutcomeNotCharged
	case s.Decision.Repeated:
		return OutcomeRepeated
	default:
		return OutcomeAllowed
	}
}

// A Recorder keeps decisions for operators. The Decider calls it at most once for each request and
// for each budget that it meets, so it must be quick. It keeps no argument, and no text of the request without a copy. It is safe for
// concurrent use.
type Recorder interface {
	// Denied records that a limit had no room: the decisive one of a denied request, or one
	// that is only observed.
	Denied(req *Request, v *Verdict, s *LimitStatus)
	// Near records an allowed request that used a limit above Options.NearLimit.
	Near(req *Request, v *Verdict, s *LimitStatus)
	// Budget records how much of a budget is used (s.Spent, s.Decision.Reserved), after a request has
	// asked for it, and after the end of a stream has said what it has cost. log names its log.
	Budget(req *Request, s *LimitStatus, log string)
}

// record gives the Recorder a request that is decided.
func (c *Call) record() {
	r, v := c.decider.opts.Recorder, &c.verdict
	switch {
	case !v.Allowed && v.Decisive >= 0:
		r.Denied(&c.req, v, &v.Limits[v.Decisive])
	case v.Shadowed >= 0:
		r.Denied(&c.req, v, &v.Limits[v.Shadowed])
	case v.Decisive >= 0 && near(&v.Limits[v.Decisive], c.decider.opts.NearLimit):
		r.Near(&c.req, v, &v.Limits[v.Decisive])
	}
}

// near reports whether an allowed request used the limit above a fraction of it.
func near(s *LimitStatus, fraction float32) bool {
	used := s.Limit.Hits - min(s.Decision.Remaining, s.Limit.Hits)
	return s.Limit.Hits != window.Unlimited && s.Cost > 0 && used > uint64(float32(s.Limit.Hits)*fraction)
}
