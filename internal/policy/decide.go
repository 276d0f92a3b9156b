package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Request is what an adapter asks. The Decider keeps nothing of it, but brings
// addresses in it into their one form.
type Request struct {
	Domain      string
	Descriptors []Descriptor
}

// A Descriptor of a request with what it costs.
type Descriptor struct {
	Entries descriptors.Descriptor
	// Cost is the number of hits to spend; zero only asks.
	Cost uint64
	// Override replaces the limits of whatever rule matches, and makes a limit
	// where none does. Its log is told apart by all entries.
	Override *window.Limit
	// Refund marks a descriptor that gives cost back. Not supported yet: it is
	// allowed and moves no log, so that it is at least not charged.
	Refund bool
}

// A LimitStatus is one limit that a request was checked against.
type LimitStatus struct {
	Rule       *Rule
	Limit      Limit
	Descriptor int    // index into Request.Descriptors
	Tier       string // empty where the rule knows no subject
	Subject    string // the subject's id; empty where it is not known
	Cost       uint64
	Decision   window.Decision
}

// Reset is what a client should sleep on: the wait until this cost has room, if
// it was denied; the wait until one more unit can be spent, if nothing remains;
// else the wait until the window is empty. A cost that can never have room gets
// the length of the window: asking again sooner is certainly in vain.
func (s *LimitStatus) Reset() time.Duration {
	switch d := &s.Decision; {
	case d.Never:
		return s.Limit.Window
	case !d.Allowed:
		return d.RetryAfter
	case d.Remaining == 0:
		return d.UnitAfter
	default:
		return d.ResetAfter
	}
}

// stricter orders limits by how much they constrain the caller: denied before
// allowed, then the longer wait, then the smaller share that remains.
func (s *LimitStatus) stricter(than *LimitStatus) bool {
	a, b := &s.Decision, &than.Decision
	if a.Allowed != b.Allowed {
		return b.Allowed
	}
	if !a.Allowed {
		if a.Never != b.Never {
			return a.Never
		}
		return s.Reset() > than.Reset()
	}
	// Both at most 2^32-1 by window.MaxHits, so the products fit.
	return a.Remaining*than.Limit.Hits < b.Remaining*s.Limit.Hits
}

// A Verdict answers a request. The zero value is ready for [Decider.Decide],
// which reuses what the last request left in it.
type Verdict struct {
	// Allowed says whether the request may pass; everything was charged if so,
	// and nothing if not.
	Allowed bool
	// Limits holds every limit that was checked, in the order of the descriptors.
	Limits []LimitStatus
	// Strictest has, for each descriptor of the request, the index in Limits of
	// its strictest limit, or -1 if nothing limits it.
	Strictest []int
	// Decisive is the index in Limits of the limit that speaks for the request:
	// of those that deny, the one with the longest wait; if none denies, the one
	// with the smallest share remaining. -1 if nothing limits the request.
	Decisive int

	checks    []window.Check
	decisions []window.Decision
	identity  []string
	key       []byte
}

// reset forgets the last request but keeps the memory.
func (v *Verdict) reset(descriptors int) {
	clear(v.Limits)
	clear(v.checks)
	clear(v.identity)
	v.Allowed, v.Decisive = true, -1
	v.Limits, v.checks, v.Strictest = v.Limits[:0], v.checks[:0], v.Strictest[:0]
	for range descriptors {
		v.Strictest = append(v.Strictest, -1)
	}
}

// ErrStoreTimeout is the cause of a context that ended because the store took
// longer than Options.StoreTimeout, and not because the caller gave up.
var ErrStoreTimeout = errors.New("the store took longer than store.timeout")

// Options of a [Decider]. Store, Meters and Log are required.
type Options struct {
	Store  window.Store
	Meters Meters
	// StoreSeconds observes how long each store call took. Nil: nobody does.
	StoreSeconds func(seconds float64)
	// StoreTimeout bounds one store call on top of the caller's own deadline.
	// Zero: no bound, for a store that never waits.
	StoreTimeout time.Duration
	// Log gets denials at debug level. Wrap it to sample them.
	Log *zap.Logger
}

// Decider decides requests by the active generation of rules. It is safe for
// concurrent use.
type Decider struct {
	opts  Options
	rules atomic.Pointer[Rules]
}

// NewDecider returns a Decider with rules as its first generation.
func NewDecider(rules *Rules, opts Options) *Decider {
	d := &Decider{opts: opts}
	d.Swap(rules)
	return d
}

// Swap makes rules the active generation. Requests that have begun finish with
// the one they began with.
func (d *Decider) Swap(rules *Rules) {
	for _, r := range rules.rules {
		r.meter = d.opts.Meters.Meter(r.Domain, r.Name)
	}
	for name, dom := range rules.domains {
		dom.unruled = d.opts.Meters.Meter(name, "")
		dom.override.meter = d.opts.Meters.Meter(name, dom.override.Name)
	}
	d.rules.Store(rules)
}

// Rules returns the active generation.
func (d *Decider) Rules() *Rules { return d.rules.Load() }

// Decide fills v. An error means that nobody could decide, and that nothing is
// known to have been charged.
func (d *Decider) Decide(ctx context.Context, req *Request, v *Verdict) error {
	rules := d.rules.Load()
	v.reset(len(req.Descriptors))
	dom := rules.domains[req.Domain]
	if dom == nil {
		d.opts.Meters.UnknownDomain()
		return nil
	}
	for i := range req.Descriptors {
		// Before anything is matched: one client must not have two names.
		for j := range req.Descriptors[i].Entries {
			e := &req.Descriptors[i].Entries[j]
			e.Value = canonical(*e)
		}
	}
	for i := range req.Descriptors {
		rules.addChecks(dom, req, i, v)
	}
	if len(v.checks) == 0 {
		return nil
	}
	if err := d.take(ctx, v); err != nil {
		for i := range v.Limits {
			// Once a descriptor, not once a window of its rule.
			if i == 0 || v.Limits[i].Descriptor != v.Limits[i-1].Descriptor {
				v.Limits[i].Rule.meter.Count(OutcomeError)
			}
		}
		return err
	}
	v.fold()
	d.record(req.Domain, v)
	return nil
}

// take makes the one store call of the request.
func (d *Decider) take(ctx context.Context, v *Verdict) error {
	if n := len(v.checks); n <= cap(v.decisions) {
		v.decisions = v.decisions[:n]
	} else {
		v.decisions = make([]window.Decision, n)
	}
	if d.opts.StoreTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.opts.StoreTimeout, ErrStoreTimeout)
		defer cancel()
	}
	start := time.Now()
	err := d.opts.Store.Take(ctx, v.checks, v.decisions)
	if d.opts.StoreSeconds != nil {
		d.opts.StoreSeconds(time.Since(start).Seconds())
	}
	if err != nil {
		return fmt.Errorf("the store could not decide: %w", err)
	}
	return nil
}

// addChecks matches descriptor i and adds the checks that its rule asks for.
func (rs *Rules) addChecks(dom *domain, req *Request, i int, v *Verdict) {
	desc := &req.Descriptors[i]
	rule, ok := dom.tree.Match(desc.Entries)
	if desc.Refund || (!ok && desc.Override == nil) {
		dom.unruled.Count(OutcomeNoRule)
		return
	}
	status := LimitStatus{Rule: rule, Descriptor: i, Cost: desc.Cost}
	if desc.Override != nil {
		if !ok {
			status.Rule = dom.override
		}
		status.Limit = Limit{Limit: *desc.Override, Policy: status.Rule.Name}
		key := rs.overrideKey(dom, req, desc.Entries, v)
		rs.addCheck(v, status, key)
		return
	}
	limits := rule.Limits
	var subject subject
	if rule.hasSubject {
		subject = rs.subjectOf(rule, req, desc.Entries)
		status.Subject = subject.id
		if rs.tiers != nil {
			status.Tier = subject.tier
			limits = rule.limits(subject.tier)
		}
	}
	if len(limits) == 0 {
		dom.unruled.Count(OutcomeNoRule)
		return
	}
	key := rs.ruleKey(rule, req, desc.Entries, subject, v)
	for j := range limits {
		status.Limit = limits[j]
		rs.addCheck(v, status, key)
	}
}

func (rs *Rules) addCheck(v *Verdict, s LimitStatus, key string) {
	v.Limits = append(v.Limits, s)
	v.checks = append(v.checks, window.Check{Key: key, Limit: s.Limit.Limit, Cost: s.Cost})
}

// subject is who a rule limits in one request.
type subject struct {
	id   string // empty if not known
	tier string
	log  string // what names the log
}

// subjectOf finds who a rule limits. The rule has a subject.
func (rs *Rules) subjectOf(rule *Rule, req *Request, entries descriptors.Descriptor) subject {
	if rule.subject >= 0 {
		return rs.identify(entries[rule.subject], req)
	}
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key == rule.Subject {
				return rs.identify(e, req)
			}
		}
	}
	// A request without the entry is one without a key: nobody in particular.
	return rs.stranger(req)
}

// identify looks up the subject that an entry names: by the digest of an API
// key, or by id where the entry is no secret.
func (rs *Rules) identify(e descriptors.Entry, req *Request) subject {
	if !rs.secrets.Is(e.Key) {
		s := subject{log: "id." + e.Value}
		if rs.tiers != nil {
			s.tier = rs.tiers.DefaultTier()
			if known := rs.tiers.ByID(e.Value); known != nil && !known.Disabled {
				s.id, s.tier = known.ID, known.Tier
			}
		}
		return s
	}
	if rs.tiers != nil {
		if known := rs.tiers.ByDigest(e.Value); known != nil && !known.Disabled {
			return subject{id: known.ID, tier: known.Tier, log: "id." + known.ID}
		}
	}
	if rs.share {
		return rs.stranger(req)
	}
	s := subject{log: "key." + e.Value}
	if rs.tiers != nil {
		s.tier = rs.tiers.DefaultTier()
	}
	return s
}

// stranger is whoever calls from this address without a key that is known.
func (rs *Rules) stranger(req *Request) subject {
	s := subject{log: "addr." + clientAddress(req)}
	if rs.tiers != nil {
		s.tier = rs.tiers.DefaultTier()
	}
	return s
}

// ruleKey names the log of a rule. The tag is the subject if the log is told
// apart by one, else the last open value, else the rule.
func (rs *Rules) ruleKey(rule *Rule, req *Request, entries descriptors.Descriptor, who subject, v *Verdict) string {
	v.identity = v.identity[:0]
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
			value = rs.identify(entries[part.entry], req).log
		default:
			value = entries[part.entry].Value
		}
		v.identity = append(v.identity, value)
	}
	if tag == "" && len(v.identity) > 0 {
		tag = v.identity[len(v.identity)-1]
	}
	v.key = descriptors.AppendKey(v.key[:0], tag, rule.id, v.identity...)
	return string(v.key)
}

// overrideKey names the log of a limit that came with the descriptor: the domain
// and all entries, so that it does not matter which rule matched.
func (rs *Rules) overrideKey(dom *domain, req *Request, entries descriptors.Descriptor, v *Verdict) string {
	v.identity = v.identity[:0]
	tag := ""
	for _, e := range entries {
		value := e.Value
		if rs.secrets.Is(e.Key) {
			value = rs.identify(e, req).log
			tag = value
		}
		v.identity = append(v.identity, e.Key, value)
	}
	if tag == "" && len(v.identity) > 0 {
		tag = v.identity[len(v.identity)-1]
	}
	v.key = descriptors.AppendKey(v.key[:0], tag, dom.override.id, v.identity...)
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

// canonical returns the value of an entry in its one form. IPv4 addresses mapped
// into IPv6 are unmapped and zones dropped: Envoy passes on such text from a
// trusted X-Forwarded-For, and one client must not have two logs.
func canonical(e descriptors.Entry) string {
	switch e.Key {
	case keyAddress:
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

// fold turns the store's decisions into the verdict.
func (v *Verdict) fold() {
	for i := range v.Limits {
		s := &v.Limits[i]
		s.Decision = v.decisions[i]
		if !s.Decision.Allowed {
			v.Allowed = false
		}
		if at := &v.Strictest[s.Descriptor]; *at < 0 || s.stricter(&v.Limits[*at]) {
			*at = i
		}
		if v.Decisive < 0 || s.stricter(&v.Limits[v.Decisive]) {
			v.Decisive = i
		}
	}
}

// record counts every rule once and logs a denial.
func (d *Decider) record(domain string, v *Verdict) {
	for _, at := range v.Strictest {
		if at < 0 {
			continue
		}
		s := &v.Limits[at]
		switch {
		case !s.Decision.Allowed:
			s.Rule.meter.Count(OutcomeDenied)
		case !v.Allowed:
			s.Rule.meter.Count(OutcomeNotCharged)
		default:
			s.Rule.meter.Count(OutcomeAllowed)
		}
	}
	if v.Allowed {
		return
	}
	if entry := d.opts.Log.Check(zap.DebugLevel, "denied"); entry != nil {
		s := &v.Limits[v.Decisive]
		entry.Write(
			zap.String("domain", domain),
			zap.String("rule", s.Rule.Name),
			zap.String("tier", s.Tier),
			zap.String("subject", s.Subject),
			zap.Uint64("limit", s.Limit.Hits),
			zap.Duration("window", s.Limit.Window),
			zap.Uint64("cost", s.Cost),
			zap.Duration("retry_after", s.Reset()),
			zap.Bool("never", s.Decision.Never),
		)
	}
}
