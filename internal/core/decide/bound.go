package decide

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// exceed notes that the request exceeds a bound of the service, so that some of its limits are
// unknown. what names the bound and says what to do. The first bound counts.
func (c *Call) exceed(what string) {
	if c.exceeds == "" {
		c.exceeds = what
	}
}

// Exceeds returns the bound that a prepared request exceeds, or an empty text. Nothing limits a
// request whose domain has no rules, however large it is.
func (c *Call) Exceeds() string {
	switch {
	case c.domain == nil && c.req.Domain != "":
		return ""
	case c.exceeds != "":
		return c.exceeds
	case len(c.batch.checks) > window.MaxChecks:
		return fmt.Sprintf("its descriptors meet %d limits, more than %d: send fewer descriptors in one request, or give their rules fewer limits", len(c.batch.checks), window.MaxChecks)
	}
	return ""
}

// decideBeyond decides a request that exceeds a bound, without the store. A limit denies the request
// unless on_store_error of its rule is rules.StoreErrorAllow. If limits are unknown, any rule of the
// domain may apply, or any rule of any domain. No wait helps. The result is no error: Envoy may let
// errors pass, and a client can exceed a bound on purpose.
func (c *Call) decideBeyond(what string) {
	v := &c.verdict
	denied := c.exceeds != "" && !c.gen.rules.ObservesAll() && c.closed()
	for i := range v.Limits {
		s := &v.Limits[i]
		c.batch.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		if s.DecidedBy = verdict.ByRuleAllow; s.MayDeny() && s.Rule.StoreError() != rules.StoreErrorAllow {
			s.DecidedBy, c.batch.decisions[i] = verdict.ByRuleDeny, window.Decision{Never: true}
		}
	}
	c.fold()
	v.Allowed, v.Degraded = v.Allowed && !denied, true
	c.countErrors()
	c.countUndecided(nil)
	c.countDegraded()
	c.logBeyond(what)
}

// closed reports whether an unknown limit may deny the request.
func (c *Call) closed() bool {
	if d := c.domain; d != nil {
		return d.MayDeny || c.state().overridden.Load() && c.gen.rules.OnStoreError() != rules.StoreErrorAllow
	}
	return c.gen.rules.MayDeny()
}

// beyondEvery is how often a domain has a log line about requests that exceed a bound.
const beyondEvery = time.Minute

// logBeyond logs that a request exceeds a bound, once a minute for each domain.
func (c *Call) logBeyond(what string) {
	last := &c.gen.beyond
	if c.domain != nil {
		last = &c.state().beyond
	}
	now := time.Now().UnixNano()
	before := last.Load()
	if c.decider.opts.Log == nil || before != 0 && now-before < int64(beyondEvery) || !last.CompareAndSwap(before, now) {
		return
	}
	answer := "denied"
	if c.verdict.Allowed {
		answer = "allowed"
	}
	c.decider.warn("a request exceeds a bound, so on_store_error has decided it; a further line for this domain comes after a minute",
		domainField(c.req.Domain), slog.String("bound", what), slog.String("answer", answer))
}
