package insight

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/clientaddr"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// An InvalidError says what is wrong with a question or a reset, and what to write instead. It
// repeats no API key.
type InvalidError struct{ Text string }

func (e *InvalidError) Error() string { return e.Text }

// badQuery returns the error of a query that cannot be answered as it stands. It does not
// repeat the query, which may have an API key in the wrong member.
func badQuery(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

var errRule = &InvalidError{"rule: no rule has this name; GET /v1/rules lists the names"}

const (
	// maxQuery bounds each text of a query, in bytes.
	maxQuery = 8 << 10
	// subjectWait is how long a question waits for the customer source in all.
	subjectWait = time.Second
	// The largest networks to ask for: their first bits.
	minBits4, minBits6 = 16, 32
	// hiddenValue stands for the values of entries that contain API keys, or look as if.
	hiddenValue = "***"
)

// A subject is what a query is about, under one generation of rules.
type subject struct {
	*explain.Account
	rules *rules.Rules
	// query is the query as it may be shown.
	query Query
}

// Find resolves the subject of a query, once for all later calls with the query. It returns false for
// text that a page must not repeat, because it may be an API key: it is the key of a known subject, or
// the tiers do not have it, it has used nothing and was not denied. typed is the text that the query is
// made from. It reaches the store and its log only after its digest is found to be unknown.
func (i *Insight) Find(ctx context.Context, q Query, typed string) (Query, bool) {
	if q.Subject != "" && tier.ValidID(q.Subject) != nil || i.IsKey(ctx, typed) {
		return Query{}, false
	}
	s, err := i.subject(ctx, q)
	if err != nil {
		return Query{}, false
	}
	q.found = s
	if i.recognizes(s) {
		return q, true
	}
	u, err := i.Usage(ctx, q)
	return q, err == nil && u.Recognized
}

// IsKey reports whether text is the API key of a known subject. It asks by the digest.
func (i *Insight) IsKey(ctx context.Context, text string) bool {
	if i.opts.Tiers == nil {
		return false
	}
	k := tier.Key{Digest: i.opts.Secrets.Digest(text)}
	known := i.opts.Tiers.Look(k)
	if known.Subject == nil {
		known, _ = i.opts.Tiers.Lookup(ctx, k) // without an answer there is no subject
	}
	return known.Subject != nil
}

// subject returns the subject of a query. It is resolved already if Find returned the query.
func (i *Insight) subject(ctx context.Context, q Query) (*subject, error) {
	if s := q.found; s != nil {
		if q.Rule != "" && !hasRule(s.rules, q.Rule) {
			return nil, errRule
		}
		found := *s
		found.query.Rule = q.Rule
		return &found, nil
	}
	rules := i.opts.Rules()
	pq, err := parse(rules, &q)
	if err != nil {
		return nil, err
	}
	pq.Subjects, pq.Wait, pq.Overridden, pq.Grants, pq.Now = i.opts.Subjects, subjectWait, i.opts.Overridden, i.opts.Grants.Active, i.opts.Now
	return &subject{Account: explain.AccountOf(ctx, rules, pq), rules: rules, query: q}, nil
}

// parse checks a query, and removes from it what must not be shown.
func parse(rs *rules.Rules, q *Query) (pq explain.AccountQuery, err error) {
	set := 0
	for _, text := range []string{q.Subject, q.Address, q.Digest, q.Descriptor} {
		if text != "" {
			set++
		}
		if len(text) > maxQuery {
			return pq, badQuery("a field has %d bytes, and at most %d are allowed", len(text), maxQuery)
		}
	}
	if set != 1 {
		return pq, badQuery("name exactly one of subject, address, digest and descriptor")
	}
	if q.Rule != "" && !hasRule(rs, q.Rule) {
		return pq, errRule
	}
	switch {
	case q.Subject != "":
		pq.Subject = descriptors.Trim(q.Subject)
		if !utf8.ValidString(pq.Subject) || pq.Subject == "" {
			return pq, badQuery("subject: it is not an id: it is empty or not UTF-8")
		}
		q.Subject = pq.Subject
	case q.Digest != "":
		if pq.Digest, err = tier.ReadDigest(q.Digest); err != nil {
			return pq, badQuery("digest: %v", err)
		}
		q.Digest = pq.Digest
	case q.Address != "":
		var ok bool
		if pq.Address, ok = rules.ParseAddress(clientaddr.Host(q.Address)); !ok {
			return pq, badQuery("address: it is neither an IP address nor a network such as 192.0.2.0/24")
		}
		least := minBits6
		if pq.Address.Addr().Is4() {
			least = minBits4
		}
		if pq.Address.Bits() < least {
			return pq, badQuery("address: a network of /%d is too large; ask for /%d or smaller", pq.Address.Bits(), least)
		}
		q.Address = addressText(pq.Address)
	default:
		err = parseDescriptor(rs, q, &pq)
	}
	return pq, err
}

// parseDescriptor parses a domain and the entries of a descriptor.
func parseDescriptor(rs *rules.Rules, q *Query, pq *explain.AccountQuery) (err error) {
	text := q.Descriptor
	q.Descriptor = ""
	for at := 0; at < len(text) && text[at] != '='; at++ {
		if text[at] == '/' && rs.HasDomain(text[:at]) { // a domain may contain a slash
			pq.Domain, text = text[:at], text[at+1:]
			break
		}
	}
	if pq.Domain == "" {
		return badQuery("descriptor: it does not begin with a domain of the rules; write domain/key=value,key=value")
	}
	if pq.Entries, err = descriptors.Parse(text); err != nil {
		return badQuery("descriptor: after the domain, %v", err)
	}
	shown := make([]string, len(pq.Entries))
	for n, e := range pq.Entries {
		e = rs.Shown(e)
		shown[n] = descriptors.Escape(e.Key) + "=" + descriptors.Escape(e.Value)
	}
	q.Descriptor = pq.Domain + "/" + strings.Join(shown, ",")
	return nil
}

// matches reports whether a rule has the name of the query, if that has one.
func (s *subject) matches(r *rules.Rule) bool { return s.query.Rule == "" || named(r, s.query.Rule) }

// leavesOut reports whether the query has the name of another rule than rule i of the account.
func (s *subject) leavesOut(i int) bool {
	return s.query.Descriptor == "" && !s.matches(s.rules.All()[i])
}

func named(r *rules.Rule, name string) bool { return r.Name == name || r.GivenName() == name }

func hasRule(rs *rules.Rules, name string) bool {
	return name == rules.OverrideName || slices.ContainsFunc(rs.All(), func(r *rules.Rule) bool { return named(r, name) })
}

// Address returns the address of a client or the network in a text, as answers have it. It returns an
// empty text if it is neither.
func Address(text string) string {
	p, ok := rules.ParseAddress(clientaddr.Host(text))
	if !ok {
		return ""
	}
	return addressText(p)
}

func addressText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// recognizes reports whether the tiers have a subject, or it was denied. Otherwise its id or digest may
// be an API key.
func (i *Insight) recognizes(s *subject) bool {
	name := s.query.Subject + s.query.Digest
	return name == "" || s.Subject != nil || len(i.Denials(Filter{Subject: name, Limit: 1}).Denials) > 0
}

// identity is a number that a cursor has, so that it does not continue another list: of the
// query and of the rules.
func (s *subject) identity() uint64 {
	h := fnv.New64a()
	q := s.query
	for _, text := range []string{q.Subject, q.Address, q.Digest, q.Descriptor, q.Rule} {
		fmt.Fprintf(h, "%d %s ", len(text), text)
	}
	fmt.Fprint(h, s.rules.Sum())
	return h.Sum64()
}

// countsByAddress says why an unknown API key has no log.
const countsByAddress = "no subject has this API key, and unknown keys share one log for each client address: ask with the address"

// notes say what may surprise about a subject.
func (s *subject) notes() (notes []string) {
	add := func(is bool, text string) {
		if is {
			notes = append(notes, text)
		}
	}
	add(s.Unavailable, "the customer source does not answer: the limits are those of an unknown subject")
	add(s.Subject != nil && s.Subject.Disabled, "the subject is disabled: its API keys count as unknown ones")
	add(s.ByAddress, countsByAddress)
	if entry := s.rules.TrustedEntry(); entry != "" && s.query.Address == "" && s.query.Descriptor == "" {
		add(true, fmt.Sprintf("requests bring their tier in the entry %q; without it, the limits are these", entry))
	}
	add(s.query.Descriptor != "" && s.noLimit(), "no rule limits requests with this descriptor")
	return notes
}

func (s *subject) noLimit() bool {
	limits, _ := s.Rule(0)
	return len(limits) == 0
}
