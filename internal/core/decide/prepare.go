package decide

import (
	"context"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// Prepare puts a request into c and makes its checks, but decides nothing. It waits for the customer
// source as long as Options.Wait says. [Call.Decide] then decides the request.
func (d *Decider) Prepare(ctx context.Context, c *Call, req Request) {
	d.Begin(c, req)
	c.prepare(ctx, window.MayWait)
	c.step = isPrepared
}

// Probe makes the checks of the first descriptor of a request under a rule, whether it matches or not.
// subjects answers at once.
func (d *Decider) Probe(c *Call, rule *rules.Rule, subjects tier.Resolver, req Request) {
	d.Begin(c, req)
	c.verdict.Begin(len(req.Descriptors))
	c.domain, c.verdict.Matches[0].Rule = c.gen.rules.Domain(rule.Domain), rule
	c.who.Begin(c.gen.rules, &c.req)
	c.who.Ask(context.Background(), subjects, 0)
	c.addChecks(0)
	c.who.Done()
}

// Domain returns the domain of a request that is prepared, or nil if the rules have none.
func (c *Call) Domain() *rules.Domain { return c.domain }

// Finder returns the finder of the request's subjects.
func (c *Call) Finder() *identity.Finder { return &c.who }
