package policy

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// subject is who a rule limits in one request.
type subject struct {
	known      *tier.Subject // nil if not known
	tier       string
	log        string // what names the log
	unresolved bool   // nobody could say who it is
}

// id is the subject's id, empty if it is not known.
func (s *subject) id() string {
	if s.known == nil {
		return ""
	}
	return s.known.ID
}

// subjectOf finds who a rule limits. The rule has a subject.
func (rs *Rules) subjectOf(rule *Rule, req *Request, entries descriptors.Descriptor, c *callers) subject {
	s := rs.callerOf(rule, req, entries, c)
	if rs.trusted == "" || rs.tiers == nil {
		return s
	}
	if t, ok := valueOf(rs.trusted, req, entries); ok {
		s.tier, s.unresolved = t, false
		if !rs.tiers.HasTier(t) {
			s.tier = rs.tiers.DefaultTier()
		}
	}
	return s
}

func (rs *Rules) callerOf(rule *Rule, req *Request, entries descriptors.Descriptor, c *callers) subject {
	if rule.subject >= 0 {
		return rs.identify(entries[rule.subject], req, c)
	}
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key == rule.Subject {
				return rs.identify(e, req, c)
			}
		}
	}
	// A request without the entry is one without a key: nobody in particular.
	return rs.stranger(req)
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

// callers asks whose the keys of one request are, each once.
type callers struct {
	ctx      context.Context //nolint:containedctx // of the request that is being decided, which it does not outlive
	subjects tier.Resolver   // nil: no key has a subject
	secrets  *tier.Secrets
	left     time.Duration // how long the request may still wait, or tier.NoWait
	known    []caller
	waits    bool // the request would have to wait: the answers since then mean nothing
}

// caller is a key that was asked for.
type caller struct {
	value  string
	byID   bool
	answer tier.Answer
}

func (c *callers) begin(ctx context.Context, o *Options, rs *Rules) {
	c.ctx, c.secrets = ctx, rs.secrets
	switch {
	case rs.tiers == nil:
	case o.Subjects != nil:
		c.subjects, c.left = o.Subjects, o.Wait
	default:
		c.subjects = rs.tiers
	}
}

// beginPrompt is begin where nobody may wait.
func (c *callers) beginPrompt(o *Options, rs *Rules) {
	c.begin(context.Background(), o, rs)
	c.left = tier.NoWait
}

// pause ends what beginPrompt began, but keeps who is known already.
func (c *callers) pause() { *c = callers{known: c.known} }

// end forgets the request.
func (c *callers) end() {
	*c = callers{known: emptied(c.known)}
}

// resolve returns the subject of an API key by its fingerprint, or the subject with an
// id. If the request may not wait and has to, resolve sets waits.
func (c *callers) resolve(req *Request, value string, byID bool) tier.Answer {
	if c.subjects == nil {
		return tier.Answer{}
	}
	if req.Caller.is(value, byID) {
		return req.Caller.Answer
	}
	for i := range c.known {
		if c.known[i].byID == byID && c.known[i].value == value {
			return c.known[i].answer
		}
	}
	if c.waits {
		return tier.Answer{}
	}
	var start time.Time
	if c.left > 0 {
		start = time.Now()
	}
	var a tier.Answer
	ok := false
	if byID {
		a, ok = c.subjects.Resolve(c.ctx, tier.Key{ID: value}, c.left)
	} else {
		a, ok = c.secrets.Resolve(c.ctx, c.subjects, value, req.plain(value), c.left)
	}
	if !ok {
		c.waits = true
		return tier.Answer{}
	}
	if c.left > 0 {
		c.left = max(0, c.left-time.Since(start))
	}
	c.known = append(c.known, caller{value, byID, a})
	return a
}

// is reports whether a key or an id is the caller's. c may be nil.
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

// plain returns the API key with a fingerprint, or "" where it is not kept.
func (r *Request) plain(fingerprint string) string {
	for i := range r.Plain {
		if r.Plain[i].Fingerprint == fingerprint {
			return r.Plain[i].Key
		}
	}
	return ""
}

// identify looks up the subject that an entry names: by the digest of an API
// key, or by id where the entry is no secret.
func (rs *Rules) identify(e descriptors.Entry, req *Request, c *callers) subject {
	secret := rs.secrets.Is(e.Key)
	a := c.resolve(req, e.Value, !secret)
	var s subject
	switch known := a.Subject; {
	case known != nil && !known.Disabled:
		return subject{known: known, tier: rs.TierOf(known), log: "id." + known.ID}
	case secret && rs.share:
		s = rs.stranger(req)
	case secret:
		s = subject{tier: rs.TierOf(nil), log: "key." + tier.FingerprintDigest(e.Value)}
	default:
		s = subject{tier: rs.TierOf(nil), log: "id." + e.Value}
	}
	s.unresolved = a.Unavailable
	return s
}

// stranger is whoever calls from this address without a key that is known.
func (rs *Rules) stranger(req *Request) subject {
	return subject{tier: rs.TierOf(nil), log: "addr." + clientAddress(req)}
}

// ruleKey names the log of a rule. The tag is the subject if the log is told
// apart by one, else the last open value, else the rule.
func (rs *Rules) ruleKey(rule *Rule, req *Request, entries descriptors.Descriptor, who subject, v *Verdict) string {
	v.identity = emptied(v.identity)
	tag := ""
	if rule.hasSubject && rule.subject < 0 {
		tag = who.log
		v.identity = append(v.identity, who.log)
	}
	for _, part := range rule.identity {
		var value string
		switch {
		case rule.hasSubject && part.entry == rule.subject:
			value = who.log
			tag = who.log
		case part.secret:
			value = rs.identify(entries[part.entry], req, &v.callers).log
		default:
			value = entries[part.entry].Value
		}
		v.identity = append(v.identity, value)
	}
	if tag == "" && len(v.identity) > 0 {
		tag = v.identity[len(v.identity)-1]
	}
	v.key = descriptors.AppendKey(emptied(v.key), tag, rule.id, v.identity...)
	return string(v.key)
}

// overrideKey names the log of a limit that came with the descriptor: the domain
// and all entries, so that it does not matter which rule matched.
func (rs *Rules) overrideKey(dom *domain, req *Request, entries descriptors.Descriptor, v *Verdict) string {
	v.identity = slices.Grow(emptied(v.identity), 2*len(entries))
	tag := ""
	for _, e := range entries {
		value := e.Value
		if rs.secrets.Is(e.Key) {
			value = rs.identify(e, req, &v.callers).log
			tag = value
		}
		v.identity = append(v.identity, e.Key, value)
	}
	if tag == "" && len(v.identity) > 0 {
		tag = v.identity[len(v.identity)-1]
	}
	v.key = descriptors.AppendKey(emptied(v.key), tag, dom.override.id, v.identity...)
	return string(v.key)
}

const (
	keyAddress       = "remote_address"
	keyMaskedAddress = "masked_remote_address"
)

// clientAddress returns the client's address as any descriptor of the request
// says it, or "" where none does.
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

// canonical returns the value of an entry in its one form, without spaces and tabs
// around it. IPv4 addresses mapped into IPv6 are unmapped and zones dropped: Envoy
// passes on such text from a trusted X-Forwarded-For, and one client must not have two
// logs.
func canonical(e descriptors.Entry) string {
	e.Value = descriptors.Trim(e.Value)
	switch e.Key {
	case keyAddress:
		if strings.IndexByte(e.Value, ':') < 0 {
			return e.Value // no IPv6
		}
		if a, err := netip.ParseAddr(e.Value); err == nil && (a.Is4In6() || a.Zone() != "") {
			return a.Unmap().WithZone("").String()
		}
	case keyMaskedAddress:
		if p, err := netip.ParsePrefix(e.Value); err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
			return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).String()
		}
	}
	return e.Value
}

// Canonical returns the value of an entry in the one form that rules and requests
// are compared in: without spaces and tabs at its ends, and of a client address, IPv4
// as such and without a zone. Everything else stays as it is.
func Canonical(e descriptors.Entry) string { return canonical(e) }
