package identity

import (
	"context"
	"slices"
	"time"
	"unsafe"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Subject is the caller that a rule limits in one request.
type Subject struct {
	Known      *tier.Subject // nil: an unknown one
	Tier       string
	Log        descriptors.Text // names its log
	Digest     string           // of an API key without a subject
	Unresolved bool             // the customer source could not answer
}

// ID returns the subject's id, which is empty if it is not known.
func (s *Subject) ID() string {
	if s.Known == nil {
		return ""
	}
	return s.Known.ID
}

// A Finder finds the subjects of one request, and names the logs of its limits. The zero value is
// ready for Begin, and the next request reuses its memory. It is not safe for concurrent use.
type Finder struct {
	rules *rules.Rules
	req   *Request
	// CopiesNames says that the names are valid until Forget, and that their memory is reused then.
	CopiesNames bool

	ctx      context.Context //nolint:containedctx // only from Ask to Done
	source   tier.Resolver   // nil: no key has a subject
	left     time.Duration   // how long the request may still wait, or tier.NoWait
	mustWait bool            // a subject was not found without waiting
	lookups  []lookup
	parts    []descriptors.Text // of the name of a log
	name     []byte
	names    []byte // with CopiesNames
}

// A lookup is one key of the request with its answer, so that each key is resolved once.
type lookup struct {
	value  string // a fingerprint, or an id
	byID   bool
	answer tier.Answer
}

// Begin makes f find the subjects of a request under these rules.
func (f *Finder) Begin(rs *rules.Rules, req *Request) { f.rules, f.req = rs, req }

// Ask lets f ask a source for subjects, until Done. It waits for all answers together as long as left
// says. With tier.NoWait it does not wait, and MustWait reports that an answer is missing.
func (f *Finder) Ask(ctx context.Context, source tier.Resolver, left time.Duration) {
	f.ctx, f.mustWait, f.source, f.left = ctx, false, source, left
}

// Done forgets the context of Ask.
func (f *Finder) Done() { f.ctx = nil }

// MustWait reports whether a subject was not found without waiting. No later answer is valid then.
func (f *Finder) MustWait() bool { return f.mustWait }

// Answers yields the answers of the source for the keys of the request.
func (f *Finder) Answers(yield func(tier.Answer) bool) {
	for i := range f.lookups {
		if !yield(f.lookups[i].answer) {
			return
		}
	}
}

// ForgetNames removes the names of logs, and keeps the subjects that were found.
func (f *Finder) ForgetNames() { reuse.Reset(&f.names) }

// Forget removes the request, and keeps memory for the next one.
func (f *Finder) Forget() {
	f.ForgetNames()
	reuse.Reset(&f.lookups)
	reuse.Reset(&f.parts)
	reuse.Reset(&f.name)
	f.rules, f.req, f.source, f.left, f.mustWait, f.CopiesNames = nil, nil, nil, 0, false, false
}

// FindSubject sets s to the subject of a rule, which must have one, with its tier. entries are those of
// the descriptor. s is zero before: a result as large as a Subject is slow.
func (f *Finder) FindSubject(s *Subject, rule *rules.Rule, entries descriptors.Descriptor) {
	f.findHolder(s, rule, entries)
	trusted, tiers := f.rules.TrustedEntry(), f.rules.Tiers()
	if trusted == "" || tiers == nil {
		return
	}
	if t, ok := valueOf(trusted, f.req, entries); ok {
		s.Tier, s.Unresolved = t, false
		if !tiers.HasTier(t) {
			s.Tier = tiers.DefaultTier()
		}
	}
}

// findHolder sets s to the subject that an entry names with the key of the rule's subject.
func (f *Finder) findHolder(s *Subject, rule *rules.Rule, entries descriptors.Descriptor) {
	if at := rule.SubjectAt(); at >= 0 {
		f.identify(s, entries[at])
		return
	}
	for i := range f.req.Descriptors {
		for _, e := range f.req.Descriptors[i].Entries {
			if e.Key == rule.Subject {
				f.identify(s, e)
				return
			}
		}
	}
	f.unknown(s) // the request has no key
}

// resolve returns the subject of an API key by its fingerprint, or the subject with an
// id. If it has to wait and may not, it sets mustWait, and no later answer is valid.
func (f *Finder) resolve(value string, byID bool) (a tier.Answer) {
	if f.source == nil || f.mustWait {
		return tier.Answer{}
	}
	if f.req.Caller.is(value, byID) {
		return f.req.Caller.Answer
	}
	for i := range f.lookups {
		if f.lookups[i].byID == byID && f.lookups[i].value == value {
			return f.lookups[i].answer
		}
	}
	var start time.Time
	if f.left > 0 {
		start = time.Now()
	}
	ok := false
	if byID {
		a, ok = f.source.Resolve(f.ctx, tier.Key{ID: value}, f.left)
	} else {
		a, ok = f.rules.Secrets().Resolve(f.ctx, f.source, value, f.req.plain(value), f.left)
	}
	if !ok {
		f.mustWait = true
		return tier.Answer{}
	}
	if f.left > 0 {
		f.left = max(0, f.left-time.Since(start))
	}
	f.lookups = append(f.lookups, lookup{value, byID, a})
	return a
}

// Identify returns the subject that an entry names: by the digest of an API key, or by
// id if the entry is no secret.
func (f *Finder) Identify(e descriptors.Entry) (s Subject) {
	f.identify(&s, e)
	return s
}

func (f *Finder) identify(s *Subject, e descriptors.Entry) {
	rs := f.rules
	secret := rs.Secrets().Is(e.Key)
	a := f.resolve(e.Value, !secret)
	s.Unresolved = a.Unavailable
	switch known := a.Subject; {
	case known != nil && !known.Disabled:
		s.Known, s.Tier, s.Log = known, rs.TierOf(known), descriptors.Text{Prefix: "id.", Value: known.ID}
		s.Unresolved = false
	case secret && rs.UnknownByAddress() && !a.Unavailable:
		f.unknown(s)
		s.Digest = tier.FingerprintDigest(e.Value)
	case secret:
		s.Digest = tier.FingerprintDigest(e.Value)
		s.Tier, s.Log = rs.TierOf(nil), descriptors.Text{Prefix: "key.", Value: s.Digest}
	default:
		s.Tier, s.Log = rs.TierOf(nil), descriptors.Text{Prefix: "id.", Value: e.Value}
	}
}

// unknown sets s to the subject that all requests without a known key share if they come
// from the same address.
func (f *Finder) unknown(s *Subject) {
	s.Tier, s.Log = f.rules.TierOf(nil), descriptors.Text{Prefix: "addr.", Value: ClientAddress(f.req)}
}

// LogOf names the log of a rule. The tag is the subject if the log belongs to one,
// else the last open value, else the rule.
func (f *Finder) LogOf(rule *rules.Rule, entries descriptors.Descriptor, who *Subject) string {
	reuse.Reset(&f.parts)
	tag := -1
	if rule.HasSubject() && rule.SubjectAt() < 0 {
		tag = 0
		f.parts = append(f.parts, who.Log)
	}
	for _, part := range rule.Parts() {
		var value descriptors.Text
		switch {
		case rule.IsSubject(part.Level):
			value = who.Log
			tag = len(f.parts)
		case part.Secret:
			value = f.Identify(entries[part.Level]).Log
		default:
			value.Value = entries[part.Level].Value
		}
		f.parts = append(f.parts, value)
	}
	return f.logOf(tag, rule)
}

// OverrideLogOf names the log of a limit that came with the descriptor: the domain
// and all entries, so that it does not matter which rule matched. override is that of the domain.
func (f *Finder) OverrideLogOf(override *rules.Rule, entries descriptors.Descriptor) string {
	f.parts = slices.Grow(reuse.Slice(f.parts), 2*len(entries))
	tag := -1
	for _, e := range entries {
		value := descriptors.Text{Value: e.Value}
		if f.rules.Secrets().Is(e.Key) {
			value = f.Identify(e).Log
			tag = len(f.parts) + 1
		}
		f.parts = append(f.parts, descriptors.Text{Value: e.Key}, value)
	}
	return f.logOf(tag, override)
}

// logOf names the log of a rule for the values in parts. at is the index of the tag, or -1 for
// the last of them.
func (f *Finder) logOf(at int, rule *rules.Rule) string {
	var tag *descriptors.Text
	if at < 0 {
		at = len(f.parts) - 1
	}
	if at >= 0 {
		tag = &f.parts[at]
	}
	if f.CopiesNames {
		// The name stays where it is: if names grows, the older ones stay in the memory before.
		at := len(f.names)
		f.names = descriptors.AppendKey(f.names, tag, rule.ID(), f.parts...)
		return unsafe.String(unsafe.SliceData(f.names[at:]), len(f.names)-at) //nolint:gosec // nothing writes there before Forget
	}
	f.name = descriptors.AppendKey(reuse.Slice(f.name), tag, rule.ID(), f.parts...)
	return string(f.name)
}

// Observes reports whether a rule only observes a percentage of its subjects, and a log belongs to
// it. All logs of a subject under a rule do, or none.
func (f *Finder) Observes(rule *rules.Rule, percentage float64, who *Subject, log string) bool {
	if percentage > 0 && percentage < 1 && rule.ManyLogs() {
		f.name = descriptors.AppendKey(reuse.Slice(f.name), &who.Log, rule.ID(), who.Log)
		log = string(f.name)
	}
	return Observes(percentage, log)
}

// Observes reports whether a log is in the fraction of all logs, 0 to 1, that are only observed. A
// log in one fraction is also in every larger fraction.
func Observes(part float64, log string) bool {
	if part <= 0 || part >= 1 {
		return part >= 1
	}
	return NewHash(log).Fraction() < part
}
