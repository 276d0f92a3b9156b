package extauthz

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/edge/answer"
)

// probed is the id of the customer of a call that a probe denies: its key is not looked up, and the
// descriptors of customers are made all the same.
const probed = "probe"

func (s *Service) findProbe(c *call) (found bool) {
	for i, key := range c.keys.all {
		fingerprint := c.keys.fingerprint
		if i > 0 {
			fingerprint = s.opts.Secrets.Fingerprint(key)
		}
		if c.probe = s.opts.Probes.OfKey(fingerprint); c.probe != nil {
			c.caller.id, c.caller.tier = probed, s.opts.Decider.Rules().TierOf(nil)
			return true
		}
	}
	return false
}

func (s *Service) noteProbe(ctx context.Context, c *call) {
	seen := probe.Call{Service: "ext_authz", Domain: c.request.Domain, Context: make(map[string]string, len(c.in.context))}
	for _, t := range c.in.context {
		seen.Context[t.name] = t.value
	}
	if !c.result.passes() {
		seen.Problem = c.result.String()
	}
	s.opts.Probes.Note(ctx, c.probe, s.opts.Decider.Rules(), c.request.Descriptors, seen)
	c.reply.fields, c.reply.body = answer.Probed(c.probe, time.Now())
	c.result = Limited
}
