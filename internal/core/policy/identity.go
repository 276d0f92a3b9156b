package policy

import (
	"context"
	"slices"
	"time"
	"unsafe"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// subject is the party that a rule limits in one request.
type subject struct {
	known      *tier.Subject // nil: an unknown one
	tier       string
	log        descriptors.Text // names its log
	key        string           // the digest of an API key without a subject
	unresolved bool             // the source could not answer
}

// id is the subject's id, empty if it is not known.
func (s *subject) id() string {
	if s.known == nil {
		return ""
	}
	return s.known.ID
}

// subjectOf returns the subject of a rule, which must have one, with its tier.
func (c *Call) subjectOf(rule *Rule, entries descriptors.Descriptor) subject {
	s := c.holderOf(rule, entries)
	rs := c.rules
	if rs.trusted == "" || rs.tiers == nil {
		return s
	}
	if t, ok := valueOf(rs.trusted, &c.req, entries); ok {
		s.tier, s.unresolved = t, false
		if !rs.tiers.HasTier(t) {
			s.tier = rs.tiers.DefaultTier()
		}
	}
	return s
}

// holderOf returns the subject that the entry of a rule's subject names.
func (c *Call) holderOf(rule *Rule, entries descriptors.Descriptor) subject {
	if rule.subject >= 0 {
		return c.identify(entries[rule.subject])
	}
	for i := range c.req.Descriptors {
		for _, e := range c.req.Descriptors[i].Entries {
			if e.Key == rule.Subject {
				return c.identify(e)
			}
		}
	}
	return c.unknown() // the request has no key
}

// valueOf returns the value of an entry of the descriptor, else of any descriptor
// of the request.
func valueOf(key string, req *Request, entries descriptors.Descriptor) (value string, ok bool) {
	for _, e := range entries {
		if e.Key == key {
			return e.Value, true
		}
	}
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key == key {
				return e.Value, true
			}
		}
	}
	return "", false
}

// A lookup is one key of the request with its answer, so that each key is resolved once.
type lookup struct {
	value  string // a fingerprint, or an id
	byID   bool
	answer tier.Answer
}

// beginLookups lets resolve work until the end of prepare.
func (c *Call) beginLookups(ctx context.Context, wait bool) {
	c.ctx, c.mustWait = ctx, false
	o := &c.decider.opts
	switch {
	case o.Subjects == nil:
		c.resolver, c.left = c.rules.tiers, 0
	case wait:
		c.resolver, c.left = o.Subjects, o.Wait
	default:
		c.resolver, c.left = o.Subjects, tier.NoWait
	}
}

// resolve returns the subject of an API key by its fingerprint, or the subject with an
// id. If it has to wait and may not, it sets mustWait, and no later answer is valid.
func (c *Call) resolve(value string, byID bool) (a tier.Answer) {
	if c.resolver == nil || c.mustWait {
		return tier.Answer{}
	}
	if c.req.Caller.is(value, byID) {
		return c.req.Caller.Answer
	}
	for i := range c.lookups {
		if c.lookups[i].byID == byID && c.lookups[i].value == value {
			return c.lookups[i].answer
		}
	}
	var start time.Time
	if c.left > 0 {
		start = time.Now()
	}
	ok := false
	if byID {
		a, ok = c.resolver.Resolve(c.ctx, tier.Key{ID: value}, c.left)
	} else {
		a, ok = c.rules.secrets.Resolve(c.ctx, c.resolver, value, c.req.plain(value), c.left)
	}
	if !ok {
		c.mustWait = true
		return tier.Answer{}
	}
	if c.left > 0 {
		c.left = max(0, c.left-time.Since(start))
	}
	c.lookups = append(c.lookups, lookup{value, byID, a})
	return a
}

// is reports whether a fingerprint or an id is the caller's. c may be nil.
func (c *Caller) is(value string, byID bool) bool {
	switch {
	case c == nil:
		return false
	case byID:
		return c.Answer.Subject != nil && c.Answer.Subject.ID == value
	default:
		return c.Fingerprint == value
	}
}

// plain returns the API key with a fingerprint, or "" if the request does not have it.
func (r *Request) plain(fingerprint string) string {
	for i := range r.Plain {
		if r.Plain[i].Fingerprint == fingerprint {
			return r.Plain[i].Key
		}
	}
	return ""
}

// identify returns the subject that an entry names: by the digest of an API key, or by
// id if the entry is no secret.
func (c *Call) identify(e descriptors.Entry) (s subject) {
	rs := c.rules
	secret := rs.secrets.Is(e.Key)
	a := c.resolve(e.Value, !secret)
	switch known := a.Subject; {
	case known != nil && !known.Disabled:
		return subject{known: known, tier: rs.TierOf(known), log: descriptors.Text{Prefix: "id.", Value: known.ID}}
	case secret && rs.share && !a.Unavailable:
		s = c.unknown()
		s.key = tier.FingerprintDigest(e.Value)
	case secret:
		digest := tier.FingerprintDigest(e.Value)
		s = subject{tier: rs.TierOf(nil), log: descriptors.Text{Prefix: "key.", Value: digest}, key: digest}
	default:
		s = subject{tier: rs.TierOf(nil), log: descriptors.Text{Prefix: "id.", Value: e.Value}}
	}
	s.unresolved = a.Unavailable
	return s
}

// unknown returns the subject that all requests without a known key share if they come
// from the same address.
func (c *Call) unknown() subject {
	return subject{tier: c.rules.TierOf(nil), log: descriptors.Text{Prefix: "addr.", Value: clientAddress(&c.req)}}
}

// ruleKey names the log of a rule. The tag is the subject if the log belongs to one,
// else the last open value, else the rule.
func (c *Call) ruleKey(rule *Rule, entries descriptors.Descriptor, who *subject) string {
	reuse.Reset(&c.identity)
	tag := -1
	if rule.hasSubject && rule.subject < 0 {
		tag = 0
		c.identity = append(c.identity, who.log)
	}
	for _, part := range rule.identity {
		var value descriptors.Text
		switch {
		case rule.hasSubject && part.entry == rule.subject:
			value = who.log
			tag = len(c.identity)
		case part.secret:
			value = c.identify(entries[part.entry]).log
		default:
			value.Value = entries[part.entry].Value
		}
		c.identity = append(c.identity, value)
	}
	return c.logKey(tag, rule)
}

// overrideKey names the log of a limit that came with the descriptor: the domain
// and all entries, so that it does not matter which rule matched.
func (c *Call) overrideKey(entries descriptors.Descriptor) string {
	c.identity = slices.Grow(reuse.Slice(c.identity), 2*len(entries))
	tag := -1
	for _, e := range entries {
		value := descriptors.Text{Value: e.Value}
		if c.rules.secrets.Is(e.Key) {
			who := c.identify(e)
			value = who.log
			who.tier = "" // it does not count
			c.verdict.meet(&who)
			tag = len(c.identity) + 1
		}
		c.identity = append(c.identity, descriptors.Text{Value: e.Key}, value)
	}
	return c.logKey(tag, c.domain.override)
}

// logKey names the log of a rule for the values in identity. at is the index of the tag, or -1 for
// the last of them.
func (c *Call) logKey(at int, rule *Rule) string {
	var tag *descriptors.Text
	if at < 0 {
		at = len(c.identity) - 1
	}
	if at >= 0 {
		tag = &c.identity[at]
	}
	if c.decider.opts.CopiesNames {
		// The name stays where it is: if names grows, the older ones stay in the memory before.
		at := len(c.names)
		c.names = descriptors.AppendKey(c.names, tag, rule.id, c.identity...)
		return unsafe.String(unsafe.SliceData(c.names[at:]), len(c.names)-at) //nolint:gosec // nothing writes there before Forget
	}
	c.key = descriptors.AppendKey(reuse.Slice(c.key), tag, rule.id, c.identity...)
	return string(c.key)
}

// clientAddress returns the client's address from the first descriptor of the request
// that has it, or an empty text.
func clientAddress(req *Request) string {
	masked := ""
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			switch e.Key {
			case keyAddress:
				return e.Value
			case keyMaskedAddress:
				masked = e.Value
			}
		}
	}
	return masked
}
