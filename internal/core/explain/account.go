package explain

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// An AccountQuery names the subject whose limits an operator asks for. Exactly one of Subject,
// Digest, Address and Entries is set.
type AccountQuery struct {
	// Subject is the id of a subject.
	Subject string
	// Digest is the digest of an API key.
	Digest string
	// Address is the address of clients, or a network of them.
	Address netip.Prefix
	// Domain and Entries are a descriptor as Envoy sends it, with API keys. AccountOf replaces
	// them by digests at once.
	Domain  string
	Entries descriptors.Descriptor
	// Subjects finds subjects. Nil: the directory of the rules does. Wait is how long to wait
	// for it in all.
	Subjects tier.Resolver
	Wait     time.Duration
	// Grants raise limits for a time. Nil: there are none. Now is the clock of the ends of grants and
	// overrides. Nil: time.Now.
	Grants *grant.Active
	Now    func() time.Time
	// Overridden reports whether limits came with requests for a domain. Nil: none did.
	Overridden func(domain string) bool
}

// An Account is the subject of an [AccountQuery] under one generation of rules. It says which limits
// apply, and in which logs they count, without deciding or charging anything. It is not safe for
// concurrent use.
type Account struct {
	// Subject is the subject's record. Nil: the tiers do not know the subject, or it is an address.
	Subject *tier.Subject
	// Unavailable is true if the customer source did not answer. Limits are then those of an
	// unknown subject.
	Unavailable bool
	// ByAddress is true if the subject is an unknown API key, which counts for the address of
	// its client.
	ByAddress bool

	rules   *rules.Rules
	decider *decide.Decider // makes the checks, and decides nothing
	query   AccountQuery
	left    time.Duration // how long to wait for subjects
	log     string        // names the subject in its logs: id.acme; empty for addresses
	secret  string        // the fingerprint that stands for the subject's API key
	answers answers
	request []AccountLimit // the limits of a descriptor
	others  map[replaced][]string

	searches []inspect.Match
	searched bool // searches is set
}

// replaced is the name of a rule that others replace.
type replaced struct{ domain, name string }

// An AccountLimit is a limit that applies to a subject.
type AccountLimit struct {
	// Rule is the rule. For a limit that came with requests, it is [rules.Domain.Override].
	Rule *rules.Rule
	// Limit is zero if Unlimited. Its Hits are zero if Sent.
	Limit rules.Limit
	Tier  string
	// Override is true for a limit of the subject's override. OverrideObserve is true if its override says whether the
	// limit is only observed.
	Override, OverrideObserve bool
	Unlimited                 bool
	// Grant has raised the limit, or is nil.
	Grant *grant.Grant
	// Observed is true if the limit never denies.
	Observed bool
	// Sent is true if the limit came with requests, which alone know its number. Carried is the key of a limit
	// that came with requests because the tier of the subject carries it: limit, or limit_NAME.
	Sent    bool
	Carried string
	// Subject is the id of the subject whose log it is, from [Rules.Log]. Empty: the log belongs to no
	// subject.
	Subject string
	// Values are the values that the log belongs to besides the subject, without those that
	// must not be shown.
	Values []string
	// Log is the log. Its key is empty if the values of the log are not known, and for
	// unlimited rules. Shown is the key, or empty if it has values that must not be shown.
	Log   window.LogID
	Shown string
	// ReplacedBy are the names of the rules that replace this one in requests that match both.
	ReplacedBy []string
}

// Fingerprints that stand for API keys which are not known. They are no digests, so they are
// in no rule and no tier.
const (
	subjectKey  = "the API key of the subject"
	strangerKey = "an API key that no tier has"
)

// subjectEntry is the key of the entry with the id of the subject, as Envoy sends it after an authorization.
const subjectEntry = "subject"

// AccountOf finds a subject. It blocks no longer than q.Wait and ctx allow.
func AccountOf(ctx context.Context, rs *rules.Rules, q AccountQuery) *Account {
	p := newAccount(rs, q)
	p.left = q.Wait
	p.replacers()
	switch {
	case len(q.Entries) > 0:
		p.ofDescriptor(ctx)
	case q.Digest != "":
		p.ofDigest(ctx)
	case q.Subject != "":
		p.ofID(p.lookup(ctx, tier.Key{ID: q.Subject}), q.Subject)
	default:
		if a := p.lookup(ctx, tier.Key{ID: p.address()}); a.Subject != nil && !a.Subject.Disabled {
			p.answers[p.address()] = a
		}
	}
	return p
}

func newAccount(rs *rules.Rules, q AccountQuery) *Account {
	if q.Subjects == nil && rs.Tiers() != nil {
		q.Subjects = rs.Tiers()
	}
	return &Account{rules: rs, decider: decide.NewDecider(rs, q.options()), query: q, answers: make(answers)}
}

// options returns those of a decider that makes checks as the query says.
func (q *AccountQuery) options() decide.Options {
	o := decide.Options{Grants: q.Grants}
	if q.Now != nil {
		o.Clock = func() time.Duration { return time.Duration(q.Now().UnixNano()) }
	}
	return o
}

// answers are what an Account knows of subjects, by id and by digest. All others are unknown.
type answers map[string]tier.Answer

// Resolve implements tier.Resolver.
func (a answers) Resolve(_ context.Context, k tier.Key, _ time.Duration) (tier.Answer, bool) {
	return a[k.Digest+k.ID], true
}

// lookup asks for a subject.
func (p *Account) lookup(ctx context.Context, k tier.Key) tier.Answer {
	if p.query.Subjects == nil || p.rules.Tiers() == nil {
		return tier.Answer{}
	}
	start := time.Now()
	a, _ := p.query.Subjects.Resolve(ctx, k, p.left)
	p.left = max(0, p.left-time.Since(start))
	return a
}

func (p *Account) ofID(a tier.Answer, id string) {
	p.Subject, p.Unavailable = a.Subject, a.Unavailable
	p.log, p.secret = "id."+id, subjectKey
	counts := a.Subject
	if counts == nil || counts.Disabled {
		// Its logs are those that it would have, with the limits of an unknown key.
		counts = &tier.Subject{ID: id}
	}
	p.answers[subjectKey] = tier.Answer{Subject: counts}
	p.answers[id] = p.answers[subjectKey]
}

func (p *Account) ofDigest(ctx context.Context) {
	a := p.lookup(ctx, tier.Key{Digest: p.query.Digest})
	switch {
	case a.Subject != nil && !a.Subject.Disabled:
		p.ofID(a, a.Subject.ID)
	default:
		p.Subject, p.Unavailable = a.Subject, a.Unavailable
		p.ByAddress = p.rules.UnknownByAddress() && !a.Unavailable
		p.secret = p.query.Digest
		if !p.ByAddress {
			p.log = "key." + p.query.Digest
		}
	}
}

// ofDescriptor finds out which limits apply to a request with the descriptor.
func (p *Account) ofDescriptor(ctx context.Context) {
	rs := p.rules
	req := decide.Request{Domain: p.query.Domain}
	entries := slices.Clone(p.query.Entries)
	for i, e := range entries {
		if secrets := rs.Secrets(); secrets.Is(e.Key) {
			entries[i].Value = secrets.Fingerprint(e.Value)
			req.Plain = append(req.Plain, identity.PlainKey{Fingerprint: entries[i].Value, Key: secrets.Key(e.Value)})
		}
	}
	p.query.Entries = nil // it has API keys
	req.Descriptors = []decide.Descriptor{{Entries: entries, Cost: 1}}
	var c decide.Call
	o := p.query.options()
	o.Subjects, o.Wait = p.query.Subjects, p.left
	decider := decide.NewDecider(rs, o)
	decider.Prepare(ctx, &c, req)
	for a := range c.Finder().Answers {
		if p.Subject == nil {
			p.Subject = a.Subject
		}
		p.Unavailable = p.Unavailable || a.Unavailable
	}
	if c.Domain() == nil {
		return
	}
	p.request = p.limits(&c)
	if carried := p.carried(ctx, decider, req); len(carried) > 0 {
		p.request = carried
	}
	address := identity.ClientAddress(&req)
	for _, l := range p.request {
		p.ByAddress = p.ByAddress || address == "" && strings.HasPrefix(l.Log.Key, "{addr.}:")
	}
}

// carried returns the limits that Envoy sends with a descriptor in place of that of a rule, if it does so in
// the domain: those that the tier of the subject carries, whose id an authorization has found.
func (p *Account) carried(ctx context.Context, decider *decide.Decider, req decide.Request) (all []AccountLimit) {
	desc := &req.Descriptors[0]
	at := slices.IndexFunc(desc.Entries, func(e descriptors.Entry) bool { return e.Key == subjectEntry })
	if at < 0 || p.query.Overridden == nil || !p.query.Overridden(req.Domain) {
		return nil
	}
	a := p.lookup(ctx, tier.Key{ID: desc.Entries[at].Value})
	if a.Subject == nil || a.Subject.Disabled {
		return nil
	}
	p.Subject = a.Subject
	for _, l := range p.rules.LimitsOf(a.Subject).All() {
		desc.Override = &window.Limit{Hits: uint64(l.Requests), Window: l.Window()}
		var c decide.Call
		decider.Prepare(ctx, &c, req)
		for _, one := range p.limits(&c) {
			one.Tier, one.Carried = p.rules.TierOf(a.Subject), l.Key()
			all = append(all, one)
		}
	}
	return all
}

// limits returns the limits of a call that is prepared.
func (p *Account) limits(c *decide.Call) (all []AccountLimit) {
	v := c.Verdict()
	for i := range v.Matches {
		if m := &v.Matches[i]; m.Unlimited {
			all = append(all, AccountLimit{Rule: m.Rule, Unlimited: true, ReplacedBy: p.replacersOf(m.Rule)})
		}
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		l := AccountLimit{
			Rule: s.Rule, Limit: s.Limit, Tier: s.Tier, Override: s.Source == verdict.SourceOverride, OverrideObserve: s.Enforcement.Overridden(), Observed: s.Observed(),
			Log: c.Checks()[i].Log(), ReplacedBy: p.replacersOf(s.Rule),
		}
		l.Shown = p.shown(s.Rule, l.Log.Key)
		if s.Source == verdict.SourceGrant {
			l.Grant = v.Matches[s.Descriptor].Grant
		}
		all = append(all, l)
	}
	return all
}

func (p *Account) replacers() {
	p.others = make(map[replaced][]string)
	if !slices.ContainsFunc(p.rules.AllDomains(), func(d *rules.Domain) bool { return d.Replaces }) {
		return
	}
	for _, r := range p.rules.All() {
		for _, name := range r.Replaces {
			k := replaced{r.Domain, name}
			p.others[k] = append(p.others[k], r.Name)
		}
	}
}

func (p *Account) replacersOf(r *rules.Rule) []string {
	if name := r.WrittenName(); name != "" {
		return p.others[replaced{r.Domain, name}]
	}
	return nil
}

// Len returns the number of rules to ask for with [Account.Rule].
func (p *Account) Len() int {
	if p.query.Domain != "" {
		return 1
	}
	return len(p.rules.All())
}

// Rule returns the limits of rule i, if it applies to the subject and the names of its logs are
// known. If they are not, because the rule has a log for each value of another entry too, open
// is true. [Account.Searches] finds these logs.
func (p *Account) Rule(i int) (limits []AccountLimit, open bool) {
	if p.query.Domain != "" {
		return p.request, false
	}
	rule := p.rules.All()[i]
	m, ok := p.match(rule)
	if !ok {
		return nil, false
	}
	if m.open {
		return nil, true
	}
	n, _ := p.read(context.Background(), rule, m.name(rule))
	if !p.takes(rule, n) {
		return nil, false
	}
	return p.limits(p.probe(rule, n)), false
}

// takes reports whether the request that has a log matches the rule, and not a more specific one.
func (p *Account) takes(rule *rules.Rule, n *reading) bool {
	r, ok := p.rules.Domain(rule.Domain).Tree.Match(n.entries)
	return ok && r == rule || slices.Contains(rule.OneLog, true) // whose values are not known
}

// NoLog returns the limits of rule i without logs, if [Account.Rule] reports it as open.
func (p *Account) NoLog(i int) []AccountLimit {
	if p.query.Domain != "" {
		return nil
	}
	rule := p.rules.All()[i]
	m, ok := p.match(rule)
	if !ok || !m.open {
		return nil
	}
	n, _ := p.read(context.Background(), rule, m.name(rule))
	limits := p.limits(p.probe(rule, n))
	for i := range limits {
		l := &limits[i]
		// A part of the logs is observed if Observe is a fraction.
		if !m.holder {
			l.Observed = p.rules.ObservesAll() || rule.TermsOf(l.Tier).Observe >= 1
		}
		l.Log.Key, l.Shown = "", ""
	}
	return limits
}

// probe makes the checks that a rule makes for the request of a reading.
func (p *Account) probe(rule *rules.Rule, n *reading) *decide.Call {
	req := decide.Request{Domain: rule.Domain, Descriptors: []decide.Descriptor{{Entries: n.entries, Cost: 1}}}
	if len(n.more) > 0 {
		req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: n.more, Cost: 1})
	}
	var c decide.Call
	p.decider.Probe(&c, rule, n.known, req)
	return &c
}
