package policy

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
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
	// Tier, unless empty, is everybody's tier, whoever they are: for asking what
	// would be.
	Tier string
}

// A Descriptor of a request with what it costs.
type Descriptor struct {
	Entries descriptors.Descriptor
	// Cost is the number of hits to spend; zero only asks.
	Cost uint64
	// Override replaces the limits of whatever rule matches, and makes a limit
	// where none does. Its log is told apart by all entries.
	Override *window.Limit
	// Refund gives the cost back: newest first, never below zero. It is always
	// allowed.
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
	Mode       window.Mode
	Quota      bool // one of several alternatives, of which one must have room
	Observed   bool // never denies
	Unknown    bool // the store could not say, and the rule allows then: nobody knows what remains
	Decision   window.Decision
}

// Over reports whether the limit had no room and was meant to have it.
func (s *LimitStatus) Over() bool { return !s.Decision.Allowed && !s.Observed }

// MayDeny reports whether the limit could have denied the request: it is neither
// a refund nor only observed, nor an alternative of one that passes anyway.
func (s *LimitStatus) MayDeny() bool {
	return !s.Observed && s.Mode != window.Observe && s.Mode != window.Refund
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
	// Allowed says whether the request may pass. What was charged follows from
	// the modes of the limits.
	Allowed bool
	// Degraded says that the store could not decide and that the rules' own
	// choice for that did.
	Degraded bool
	// Limits holds every limit that was checked, in the order of the descriptors.
	Limits []LimitStatus
	// Strictest has, for each descriptor of the request, the index in Limits of
	// its strictest limit, or -1 if nothing limits it.
	Strictest []int
	// Matches has what each descriptor of the request matched.
	Matches []Match
	// Decisive is the index in Limits of the limit that speaks for the request:
	// of those that deny, the one with the longest wait, where quota rules wait
	// for the first of them that has room; if none denies, the one with the
	// smallest share remaining. -1 if nothing limits the request.
	Decisive int
	// Shadowed is the index in Limits of the strictest limit that had no room but
	// is only observed, or -1.
	Shadowed int
	// Headers are the styles of headers of the domain. Nil: the service's.
	Headers []string

	checks    []window.Check
	decisions []window.Decision
	identity  []string
	key       []byte
	detail    []byte
	local     []window.Check
	localAt   []int
}

// A Match is what one descriptor of a request met.
type Match struct {
	// Rule is nil if none matched.
	Rule *Rule
	// Unlimited: by the rule, or its terms for the tier.
	Unlimited bool
	// ReplacedBy is another rule that the request matched, which takes its place.
	ReplacedBy *Rule
	// Overridden: a limit that came with the descriptor takes its place.
	Overridden bool
}

// Metadata returns the merged metadata of the rules whose descriptors have room,
// nil if there is none. Of two values for one name the first one counts;
// mappings are merged, as envoyproxy/ratelimit does.
func (v *Verdict) Metadata() map[string]any {
	var merged map[string]any
	for i := range v.Matches {
		m := &v.Matches[i]
		if m.Rule == nil || m.Rule.Metadata == nil || m.Unlimited || m.ReplacedBy != nil || m.Overridden {
			continue
		}
		if at := v.Strictest[i]; at >= 0 && v.Limits[at].Over() {
			continue
		}
		if merged == nil {
			merged = make(map[string]any)
		}
		merge(merged, m.Rule.Metadata)
	}
	return merged
}

func merge(into, from map[string]any) {
	for k, v := range from {
		child, isMap := v.(map[string]any)
		old, exists := into[k]
		switch {
		case !exists && isMap:
			fresh := make(map[string]any, len(child))
			merge(fresh, child) // the rule's own is read by others
			into[k] = fresh
		case !exists:
			into[k] = v
		case isMap:
			if oldMap, ok := old.(map[string]any); ok {
				merge(oldMap, child)
			}
		}
	}
}

// reset forgets the last request but keeps the memory.
func (v *Verdict) reset(descriptors int) {
	clear(v.Limits)
	clear(v.Matches)
	clear(v.checks)
	clear(v.identity)
	clear(v.local)
	v.Allowed, v.Degraded, v.Decisive, v.Shadowed, v.Headers = true, false, -1, -1, nil
	v.Limits, v.checks, v.Strictest, v.Matches = v.Limits[:0], v.checks[:0], v.Strictest[:0], v.Matches[:0]
	for range descriptors {
		v.Strictest = append(v.Strictest, -1)
		v.Matches = append(v.Matches, Match{})
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
	// Local decides for rules that ask for it where Store cannot
	// (StoreErrorLocal). Nil: they count as if they had not chosen.
	Local window.Store
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
	v.Headers = dom.headers
	for i := range req.Descriptors {
		// Before anything is matched: one client must not have two names.
		for j := range req.Descriptors[i].Entries {
			e := &req.Descriptors[i].Entries[j]
			e.Value = canonical(*e)
		}
	}
	rules.match(dom, req, v)
	for i := range req.Descriptors {
		rules.addChecks(dom, req, i, v)
	}
	if len(v.checks) == 0 {
		return nil
	}
	rules.settleQuota(v)
	settleModes(v)
	if err := d.take(ctx, v, rules.shadow); err != nil {
		for i := range v.Limits {
			// Once a descriptor, not once a window of its rule.
			if i == 0 || v.Limits[i].Descriptor != v.Limits[i-1].Descriptor {
				v.Limits[i].Rule.meter.Count(OutcomeError)
			}
		}
		if err := d.degrade(ctx, v, err); err != nil {
			return err
		}
		v.fold(rules.shadow)
		d.logDenial(req, v)
		return nil
	}
	v.fold(rules.shadow)
	d.record(rules, req, v)
	d.logDenial(req, v)
	return nil
}

// take makes the one store call of the request.
func (d *Decider) take(ctx context.Context, v *Verdict, shadow bool) error {
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
	var err error
	if shadow {
		err = d.takeObserved(ctx, v)
	} else {
		err = d.opts.Store.Take(ctx, v.checks, v.decisions)
	}
	if d.opts.StoreSeconds != nil {
		d.opts.StoreSeconds(time.Since(start).Seconds())
	}
	if err != nil {
		return fmt.Errorf("the store could not decide: %w", err)
	}
	return nil
}

// takeObserved is take where every rule is only observed. What is charged whatever
// comes of the request would deny it in the store, and keep the others from being
// charged although the request passes: so those are asked apart. Nothing is denied,
// so there is nothing to be all or nothing about.
func (d *Decider) takeObserved(ctx context.Context, v *Verdict) error {
	for _, unconditional := range []bool{true, false} {
		v.local, v.localAt = v.local[:0], v.localAt[:0]
		for i := range v.checks {
			if v.checks[i].Mode.Unconditional() == unconditional {
				v.local, v.localAt = append(v.local, v.checks[i]), append(v.localAt, i)
			}
		}
		if err := v.takeSome(ctx, d.opts.Store); err != nil {
			return err
		}
	}
	return nil
}

// takeSome asks a store for the checks in v.local.
func (v *Verdict) takeSome(ctx context.Context, store window.Store) error {
	if len(v.local) == 0 {
		return nil
	}
	decisions := make([]window.Decision, len(v.local))
	if err := store.Take(ctx, v.local, decisions); err != nil {
		return err
	}
	for i, at := range v.localAt {
		v.decisions[at] = decisions[i]
	}
	return nil
}

// match finds the rule of every descriptor, and which of them are replaced.
func (rs *Rules) match(dom *domain, req *Request, v *Verdict) {
	for i := range req.Descriptors {
		v.Matches[i].Rule, _ = dom.tree.Match(req.Descriptors[i].Entries)
	}
	if !dom.replaces {
		return
	}
	for i := range v.Matches {
		// A limit that came with the request has no name and replaces nothing.
		if v.Matches[i].Rule == nil || req.Descriptors[i].Override != nil {
			continue
		}
		for _, name := range v.Matches[i].Rule.Replaces {
			for j := range v.Matches {
				if r := v.Matches[j].Rule; r != nil && r.given == name && req.Descriptors[j].Override == nil {
					v.Matches[j].ReplacedBy = v.Matches[i].Rule
				}
			}
		}
	}
}

// addChecks adds the checks that the rule of descriptor i asks for.
func (rs *Rules) addChecks(dom *domain, req *Request, i int, v *Verdict) {
	desc, m := &req.Descriptors[i], &v.Matches[i]
	status := LimitStatus{Rule: m.Rule, Descriptor: i}
	if desc.Override != nil {
		// It takes the place of the rule's limit. What the rule says of costs holds on;
		// that it is observed or a quota rule does not, as in envoyproxy/ratelimit.
		m.Overridden = true
		if status.Rule == nil {
			status.Rule = dom.override
		}
		status.Limit = Limit{
			Limit:     *desc.Override,
			Precision: window.Precision(*desc.Override),
			Policy:    status.Rule.Name,
		}
		status.Cost = status.Rule.cost(desc.Cost)
		status.Quota, status.Observed = rs.quota, rs.shadow
		if status.Rule.Always {
			status.Mode = window.Always
		}
		key := rs.overrideKey(dom, req, desc.Entries, v)
		rs.addCheck(v, status, key, desc.Refund)
		return
	}
	switch {
	case m.Rule == nil:
		dom.unruled.Count(OutcomeNoRule)
		return
	case m.ReplacedBy != nil:
		m.Rule.meter.Count(OutcomeReplaced)
		return
	}
	rule := m.Rule
	terms := &rule.Terms
	var subject subject
	if rule.hasSubject {
		subject = rs.subjectOf(rule, req, desc.Entries)
		status.Subject = subject.id
		if rs.tiers != nil {
			if req.Tier != "" {
				subject.tier = req.Tier
			}
			status.Tier = subject.tier
			terms = rule.terms(subject.tier)
		}
	}
	if terms.Unlimited {
		m.Unlimited = true
		rule.meter.Count(OutcomeUnlimited)
		return
	}
	if len(terms.Limits) == 0 {
		dom.unruled.Count(OutcomeNoRule)
		return
	}
	key := rs.ruleKey(rule, req, desc.Entries, subject, v)
	status.Cost = rule.cost(desc.Cost)
	status.Quota = rule.Quota || rs.quota
	status.Observed = rs.shadow || observed(terms.Observe, key)
	if rule.Always {
		status.Mode = window.Always
	}
	for j := range terms.Limits {
		status.Limit = terms.Limits[j]
		rs.addCheck(v, status, key, desc.Refund)
	}
}

func (rs *Rules) addCheck(v *Verdict, s LimitStatus, key string, refund bool) {
	switch {
	case refund:
		s.Mode, s.Quota = window.Refund, false
	case s.Mode == window.Always:
		// It is recorded whatever anybody thinks of it.
	case s.Observed:
		s.Mode = window.Observe
	case s.Quota:
		s.Mode = window.Any
	}
	v.Limits = append(v.Limits, s)
	v.checks = append(v.checks, window.Check{
		Key: key, Limit: s.Limit.Limit, Cost: s.Cost, Mode: s.Mode, Precision: s.Limit.Precision,
	})
}

// observed reports whether a log belongs to the share of those that are only
// observed.
func observed(share float64, key string) bool {
	if share <= 0 || share >= 1 {
		return share >= 1
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	x := h.Sum64()
	// FNV leaves the high bits of short texts alike; this mixes them (the last
	// step of MurmurHash3).
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11)/(1<<53) < share
}

// settleQuota looks whether one of the alternatives of the request passes anyway:
// a quota rule that is only observed or unlimited, or, where every rule is a
// quota rule, a descriptor that nothing limits. The others cannot deny then.
func (rs *Rules) settleQuota(v *Verdict) {
	quota, passes := false, false
	for i := range v.Limits {
		s := &v.Limits[i]
		quota = quota || s.Mode == window.Any
		passes = passes || s.Quota && s.Mode == window.Observe
	}
	if !quota {
		return
	}
	for i := range v.Matches {
		m := &v.Matches[i]
		switch {
		case m.Unlimited && (rs.quota || m.Rule.Quota):
			passes = true
		case rs.quota && !rs.limits(v, i):
			passes = true
		}
	}
	if !passes {
		return
	}
	for i := range v.Limits {
		if v.Limits[i].Mode == window.Any {
			v.Limits[i].Mode, v.checks[i].Mode = window.Observe, window.Observe
		}
	}
}

// settleModes gives all checks of one log the strictest of their modes: a store
// refuses several. Only a rule whose tiers share a log and are not all observed
// makes such checks.
func settleModes(v *Verdict) {
	same := true
	for i := range v.checks {
		same = same && v.checks[i].Mode == v.checks[0].Mode
	}
	if same {
		return
	}
	for i := range v.checks {
		c := &v.checks[i]
		for j := range v.checks {
			o := &v.checks[j]
			// Modes are in the order of their strictness.
			if o.Mode < c.Mode && !c.Mode.Unconditional() && !o.Mode.Unconditional() && o.Log() == c.Log() {
				c.Mode = o.Mode
				s := &v.Limits[i]
				s.Mode, s.Observed, s.Quota = o.Mode, false, o.Mode == window.Any
			}
		}
	}
}

// limits reports whether descriptor i has a limit.
func (*Rules) limits(v *Verdict, i int) bool {
	for j := range v.Limits {
		if v.Limits[j].Descriptor == i {
			return true
		}
	}
	return false
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

// degrade decides by what the rules say of a store that cannot: of their choices
// the strictest counts, and not to have chosen is stricter than all but to deny.
// It returns cause if the adapter has to tell Envoy.
func (d *Decider) degrade(ctx context.Context, v *Verdict, cause error) error {
	if errors.Is(cause, window.ErrBadCheck) || ctx.Err() != nil {
		return cause // a mistake of ours, or nobody waits for an answer
	}
	var group window.Verdict
	report := false
	v.local, v.localAt = v.local[:0], v.localAt[:0]
	for i := range v.Limits {
		s := &v.Limits[i]
		choice := s.Rule.OnStoreError
		if choice == StoreErrorLocal && d.opts.Local == nil {
			choice = StoreErrorReported
		}
		if choice == StoreErrorReported && s.Observed {
			choice = StoreErrorAllow // it must not deny, and a report may
		}
		v.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		switch choice {
		case StoreErrorAllow:
			s.Unknown = true
		case StoreErrorDeny:
			if s.Mode != window.Refund { // which is lost, but nobody's fault
				// Nobody knows for how long; a second is what a broken store deserves.
				v.decisions[i] = window.Decision{RetryAfter: time.Second}
			}
		case StoreErrorLocal:
			v.local = append(v.local, v.checks[i])
			v.localAt = append(v.localAt, i)
		default:
			s.Unknown = true
			report = true
		}
		group.Add(s.Mode, v.decisions[i].Allowed)
	}
	deny := !group.Allowed()
	if report && !deny {
		return cause
	}
	if deny {
		for _, at := range v.localAt {
			v.Limits[at].Unknown = true // it was not asked
		}
	} else if err := v.takeSome(ctx, d.opts.Local); err != nil {
		return fmt.Errorf("%w; and nor could the local one: %w", cause, err)
	}
	v.Degraded = true
	return nil
}

// fold turns the store's decisions into the verdict.
func (v *Verdict) fold(shadow bool) {
	var (
		group window.Verdict
		quota = -1 // the alternative that speaks for all
	)
	for i := range v.Limits {
		s := &v.Limits[i]
		s.Decision = v.decisions[i]
		group.Add(s.Mode, s.Decision.Allowed)
		if s.Unknown {
			continue
		}
		if at := &v.Strictest[s.Descriptor]; *at < 0 || s.stricter(&v.Limits[*at]) {
			*at = i
		}
		switch {
		case s.Mode == window.Refund:
		case s.Observed:
			if !s.Decision.Allowed && (v.Shadowed < 0 || s.stricter(&v.Limits[v.Shadowed])) {
				v.Shadowed = i
			}
		case s.Quota:
			if quota < 0 || v.Limits[quota].stricter(s) {
				quota = i
			}
		case v.Decisive < 0 || s.stricter(&v.Limits[v.Decisive]):
			v.Decisive = i
		}
	}
	// What always charges vetoes like the others, but not where all is observed.
	v.Allowed = group.Allowed() || shadow
	if quota < 0 {
		return
	}
	// If the best alternative has no room none has, and the group denies. Where it
	// was settled otherwise none of them has anything to say.
	if q := &v.Limits[quota]; q.MayDeny() && (v.Decisive < 0 || q.stricter(&v.Limits[v.Decisive])) {
		v.Decisive = quota
	}
}

// record counts every rule once.
func (d *Decider) record(rules *Rules, req *Request, v *Verdict) {
	for i, at := range v.Strictest {
		if at < 0 {
			continue
		}
		s := &v.Limits[at]
		outcome := s.outcome(v.Allowed)
		s.Rule.meter.Count(outcome)
		if s.Rule.detail && req.Descriptors[i].Override == nil {
			v.detail = rules.appendDetail(v.detail[:0], s.Rule, req.Descriptors[i].Entries)
			s.Rule.meter.Detail(v.detail, outcome)
		}
	}
}

// logDenial logs a denial at debug level.
func (d *Decider) logDenial(req *Request, v *Verdict) {
	if v.Allowed {
		return
	}
	if entry := d.opts.Log.Check(zap.DebugLevel, "denied"); entry != nil {
		s := &v.Limits[v.Decisive]
		entry.Write(
			zap.String("domain", req.Domain),
			zap.String("rule", s.Rule.Name),
			zap.String("tier", s.Tier),
			zap.String("subject", s.Subject),
			zap.Uint64("limit", s.Limit.Hits),
			zap.Duration("window", s.Limit.Window),
			zap.Uint64("cost", s.Cost),
			zap.Duration("retry_after", s.Reset()),
			zap.Bool("never", s.Decision.Never),
			zap.Bool("degraded", v.Degraded),
		)
	}
}

// outcome is what became of the limit in a request that was allowed or not.
func (s *LimitStatus) outcome(allowed bool) Outcome {
	switch {
	case s.Mode == window.Refund:
		return OutcomeRefunded
	case s.Observed && s.Decision.Allowed:
		return OutcomeShadowAllowed
	case s.Observed:
		return OutcomeShadowDenied
	case !s.Decision.Allowed && allowed:
		return OutcomePassedOver
	case !s.Decision.Allowed:
		return OutcomeDenied
	case !allowed && s.Mode != window.Always:
		return OutcomeNotCharged
	default:
		return OutcomeAllowed
	}
}

// appendDetail writes what value_to_metric and detailed_metric ask for: the path
// with the values of the request, as envoyproxy/ratelimit names its metrics, but
// never that of an API key. A pattern whose values share a log stands for them.
func (rs *Rules) appendDetail(b []byte, rule *Rule, entries descriptors.Descriptor) []byte {
	for i, n := range rule.Path {
		if i > 0 {
			b = append(b, '.')
		}
		b = append(b, n.Key...)
		value := n.Value
		if n.Open() && (rule.Detailed || i < len(rule.ValueInMetric) && rule.ValueInMetric[i]) && (i >= len(rule.Share) || !rule.Share[i]) {
			value = entries[i].Value
		}
		if value != "" && !rs.secrets.Is(n.Key) {
			b = append(b, '_')
			b = append(b, value...)
		}
	}
	return b
}
