package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// A Review describes a generation of rules to its author, and names what has no effect.
// "rls validate --json" prints its JSON form.
type Review struct {
	Domains []DomainReview `json:"domains"`
	// OnStoreError is the choice of rules without on_store_error (store.on_error).
	OnStoreError string `json:"on_store_error"`
	// TiersWithoutRule are in no by_tier, if a rule has one. TiersWithoutSubject have no
	// subject in the tiers file. The default tier is not among them.
	TiersWithoutRule    []string `json:"tiers_without_rule,omitempty"`
	TiersWithoutSubject []string `json:"tiers_without_subject,omitempty"`
}

// DomainReview is the part of a [Review] about one domain.
type DomainReview struct {
	Name  string       `json:"name"`
	Rules []RuleReview `json:"rules"`
}

// RuleReview is the part of a [Review] about one rule.
type RuleReview struct {
	ID   descriptors.RuleID `json:"-"`
	Name string             `json:"name"`
	Path string             `json:"path"` // key=value/key, without API keys
	// Place is the rule's file:line. Review leaves it empty, and the caller sets it.
	Place string        `json:"place,omitempty"`
	Terms []TermsReview `json:"terms,omitempty"`
	// Traits are what else the rule says; see [Rule.Traits].
	Traits []string `json:"traits,omitempty"`
	// Unreachable says why no request can match the rule. It is empty if one can.
	Unreachable string `json:"unreachable,omitempty"`
	// Notes say what may surprise the author.
	Notes []string `json:"notes,omitempty"`
}

// TermsReview are the terms of a rule for one tier, or for all other tiers.
type TermsReview struct {
	Tier      string        `json:"tier,omitempty"` // empty: all other tiers
	Unlimited bool          `json:"unlimited,omitempty"`
	Observe   float64       `json:"observe,omitempty"`
	Limits    []LimitReview `json:"limits,omitempty"`
}

// LimitReview is one limit with the memory of its logs.
type LimitReview struct {
	// Requests is the most in a window, at once (a token bucket), or at the same time (in
	// flight). Window is what names the log; of a limit in flight it is the hold.
	Requests uint64 `json:"requests"`
	Window   string `json:"window"`
	// Limit is the limit as [FormatLimit] writes it.
	Limit  string `json:"limit"`
	Policy string `json:"policy"`
	// Rate is the number of requests that come back to a token bucket in each window.
	Rate uint32 `json:"rate,omitempty"`
	// Words say how the limit counts, and what it admits at worst. They are empty for the policy
	// sliding, which never admits more than the limit.
	Words     string `json:"words,omitempty"`
	Precision string `json:"precision,omitempty"` // empty: exact
	Lease     string `json:"lease,omitempty"`     // empty: none
	// Bytes is the largest size of one log of the limit without its key; see
	// [packed.LogBytes].
	Bytes int `json:"bytes_per_key"`
	// Pointless says why the limit never denies. It is empty if the limit may deny.
	Pointless string `json:"pointless,omitempty"`
}

// Review reviews the rules.
func (rs *Rules) Review() Review {
	review := Review{OnStoreError: rs.storeError.String()}
	named := make(map[string]bool)
	var overrides observing
	if rs.tiers != nil {
		overrides.only, overrides.not = rs.tiers.Observed()
	}
	for _, name := range rs.Domains() {
		d := DomainReview{Name: name, Rules: []RuleReview{}}
		levels := make(siblings)
		for _, r := range rs.rules {
			if r.Domain == name {
				levels.add(r)
			}
		}
		for _, r := range rs.rules {
			if r.Domain == name {
				d.Rules = append(d.Rules, rs.reviewRule(r, levels, overrides))
				for t := range r.ByTier {
					named[t] = true
				}
			}
		}
		review.Domains = append(review.Domains, d)
	}
	if rs.tiers == nil {
		return review
	}
	if len(named) == 0 {
		return review // no rule asks for tiers
	}
	subjects := rs.tiers.SubjectsByTier()
	for _, t := range rs.tiers.Tiers() {
		if !named[t] {
			review.TiersWithoutRule = append(review.TiersWithoutRule, t)
		}
		if !rs.away && subjects[t] == 0 && t != rs.tiers.DefaultTier() {
			review.TiersWithoutSubject = append(review.TiersWithoutSubject, t)
		}
	}
	return review
}

// observing has how many subjects of the tiers file a rule only observes, or does not, by their
// overrides. The keys are names of rules.
type observing struct{ only, not map[string]int }

// observeNotes says for how many subjects of the tiers file the rule only observes, or does not,
// by their overrides.
func (r *Rule) observeNotes(overrides observing) (notes []string) {
	if r.Always {
		return nil // observe has no effect
	}
	say := func(n int, what string) {
		if n > 0 {
			whose := "subjects, by their overrides"
			if n == 1 {
				whose = "subject, by its override"
			}
			notes = append(notes, fmt.Sprintf("%s for %s %s", what, words.Count(uint64(n)), whose))
		}
	}
	say(overrides.only[r.Name], "only observed")
	say(overrides.not[r.Name], "enforced")
	return notes
}

func (rs *Rules) reviewRule(r *Rule, levels siblings, overrides observing) RuleReview {
	review := RuleReview{ID: r.id, Name: r.Name, Path: strings.TrimPrefix(r.label, r.Domain+"|"), Traits: r.Traits()}
	review.Unreachable, review.Notes = levels.judge(r)
	var count counting
	add := func(tierName string, t *Terms) {
		review.Terms = append(review.Terms, reviewTerms(tierName, t, r.Always))
		if note := tooCostly(r.Factor, tierName, t); note != "" {
			review.Notes = append(review.Notes, note)
		}
		count.add(t)
	}
	if !r.Terms.empty() {
		add("", &r.Terms)
	}
	if len(r.ByTier) > 0 {
		var others []string
		for _, t := range rs.tiers.Tiers() {
			if terms, ok := r.ByTier[t]; ok {
				add(t, &terms)
			} else {
				others = append(others, t)
			}
		}
		if len(others) > 0 {
			review.Notes = append(review.Notes, "by_tier does not list "+strings.Join(others, ", ")+": the limit for other tiers applies")
		}
	}
	review.Notes = append(review.Notes, count.notes()...)
	if r.Once.Entry != "" {
		review.Notes = append(review.Notes, "charge_once: a caller can save up the free retries of all requests that the limit admits, and send them at once; the store keeps a receipt of each, of about 200 bytes")
	}
	review.Notes = append(review.Notes, r.observeNotes(overrides)...)
	return review
}

// tooCostly says that the cost of one request is above a limit of the terms, so that each is
// denied. It returns an empty text if it is not, or if the terms only observe.
func tooCostly(cost uint64, tierName string, t *Terms) string {
	if t.Unlimited || t.Observe == 1 {
		return ""
	}
	for i := range t.Limits {
		l := &t.Limits[i]
		if cost <= 1 || cost <= l.Hits {
			continue
		}
		who := ""
		if tierName != "" {
			who = " of tier " + tierName
		}
		return fmt.Sprintf("a request costs %d, above the limit of %s%s: each is denied, however long its caller waits", cost, FormatLimit(l.Limit), who)
	}
	return ""
}

func reviewTerms(tierName string, t *Terms, always bool) TermsReview {
	review := TermsReview{Tier: tierName, Unlimited: t.Unlimited, Observe: t.Observe}
	for i := range t.Limits {
		l := &t.Limits[i]
		lr := LimitReview{
			Requests: l.Hits,
			Window:   FormatWindow(l.Window),
			Limit:    FormatLimit(l.Limit),
			Policy:   l.Policy.String(),
			Rate:     l.Rate,
			Bytes:    packed.LogBytes(&window.Check{Limit: l.Limit, Precision: l.Precision}),
		}
		if l.Policy != window.Sliding {
			lr.Words = amount(l)
		}
		if !always { // otherwise a report may exceed both limits
			lr.Pointless = pointless(t.Limits, i)
		}
		if p := l.Rounding(); p > 0 {
			lr.Precision = p.String()
		}
		lr.Lease = FormatLease(l.Lease)
		review.Limits = append(review.Limits, lr)
	}
	return review
}

// pointless names the other limit because of which limit i never denies. It returns an
// empty text if limit i may deny.
func pointless(limits []Limit, i int) string {
	for j := range limits {
		l, o := &limits[i], &limits[j]
		if j == i || !implies(o, l) || i < j && implies(l, o) {
			continue // if two imply each other, the second is pointless
		}
		return fmt.Sprintf("%s never lets more than %d through in %s", FormatLimit(o.Limit), o.Hits*Covering(o, l), FormatWindow(l.Window))
	}
	return ""
}

// implies reports whether o never allows enough to exceed l. It is certain only if o bounds
// every interval, or if both count in windows of the clock that begin together.
func implies(o, l *Limit) bool {
	switch {
	case o.Policy == window.Sliding && (l.Policy == window.Sliding || l.Policy == window.Fixed):
	case o.Policy == window.Fixed && l.Policy == window.Fixed && l.Window%o.Window == 0:
	default:
		return false
	}
	return o.Hits <= l.Hits/Covering(o, l)
}

// Covering returns how many windows of o cover the longest time that a hit counts in l.
func Covering(o, l *Limit) uint64 {
	return uint64((l.Window + l.Rounding() + o.Window - 1) / o.Window)
}

// Traits lists the options of a rule other than its limits. Of a denial's body and of
// metadata, which may be long, it says only that the rule has them.
func (r *Rule) Traits() []string {
	var parts []string
	add := func(is bool, text string) {
		if is {
			parts = append(parts, text)
		}
	}
	add(r.Scope != "", "scope="+r.Scope)
	add(r.Priority != window.PriorityNormal, "priority="+r.Priority.String())
	add(r.Quota, "quota")
	add(slices.Contains(r.Share, true), "share_threshold")
	add(r.Always, "charge=always")
	add(r.AllowedOnly, "charge=allowed")
	add(r.Factor > 1, fmt.Sprintf("cost=%d", r.Factor))
	add(r.Once.Entry != "", fmt.Sprintf("charge_once=%q", r.Once))
	add(len(r.Replaces) > 0, fmt.Sprintf("replaces=%q", r.Replaces))
	add(r.OnStoreError != StoreErrorUnset, "on_store_error="+r.OnStoreError.String())
	add(r.RetryJitter > 0, fmt.Sprintf("retry_jitter=%.4g%%", 100*r.RetryJitter))
	add(r.Detailed, "detailed_metric")
	add(slices.Contains(r.ValueInMetric, true), "value_to_metric")
	add(r.Denial != Denial{}, "own denial")
	add(len(r.Metadata) > 0, "metadata")
	return parts
}

// siblings has the patterns of each level of a domain's rules, by the path above and the key.
type siblings map[levelKey]*patterns

type levelKey struct {
	above descriptors.RuleID
	key   string
}

// patterns are those of one level, in their order.
type patterns struct {
	compared []descriptors.Pattern // the first, up to mostPatterns
	known    map[string]bool       // all of them
	searched int                   // how many are searched in a whole value
	noted    bool                  // a rule has the note about the cost
}

// OpenToOneCaller returns the indexes in [Rules.All] of the rules whose requests in flight one
// caller without an API key can fill: all callers share one log, and the domain has no rule with a
// smaller limit in flight for each address or each subject.
func (rs *Rules) OpenToOneCaller() (all []int) {
	least := make(map[string]uint64) // of one caller, by the domain
	for _, r := range rs.rules {
		if most, ok := rs.inFlightOf(r); ok && rs.countsEachCaller(r) {
			if before, ok := least[r.Domain]; !ok || most < before {
				least[r.Domain] = most
			}
		}
	}
	for i, r := range rs.rules {
		most, ok := rs.inFlightOf(r)
		ofOne := len(r.identity) > 0 || r.hasSubject || slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return isAddressKey(n.Key) })
		if own, bounded := least[r.Domain]; ok && !ofOne && most > 0 && (!bounded || own >= most) {
			all = append(all, i)
		}
	}
	return all
}

// inFlightOf returns the rule's limit in flight for a caller without an API key.
func (rs *Rules) inFlightOf(r *Rule) (most uint64, ok bool) {
	l := limitWith(r.TermsOf(rs.TierOf(nil)).Limits, window.InFlight)
	if l == nil {
		return 0, false
	}
	return l.Hits, true
}

// countsEachCaller reports whether callers without an API key have logs of their own under the rule:
// by their address, or by another subject than an API key in the descriptor.
func (rs *Rules) countsEachCaller(r *Rule) bool {
	for i, n := range r.Path {
		if n.Open() && !r.Shares(i) && isAddressKey(n.Key) {
			return true
		}
	}
	return r.hasSubject && (r.subject < 0 || r.Path[r.subject].Open() && !rs.secrets.Is(r.Subject))
}

// mostPatterns bounds how many patterns of one level others are compared with.
const mostPatterns = 1000

func (s siblings) add(r *Rule) {
	for i, n := range r.Path {
		if !n.Pattern {
			continue
		}
		k := levelKey{descriptors.NewRuleID(r.Domain, r.Path[:i]), n.Key}
		level := s[k]
		if level == nil {
			level = &patterns{known: make(map[string]bool)}
			s[k] = level
		}
		if level.known[n.Value] {
			continue
		}
		level.known[n.Value] = true
		p := descriptors.NewPattern(n.Value)
		if p.Searches() {
			level.searched++
		}
		if len(level.compared) < mostPatterns {
			level.compared = append(level.compared, p)
		}
	}
}

// judge finds an earlier pattern that matches all requests of the rule, and says what patterns cost.
func (s siblings) judge(r *Rule) (unreachable string, notes []string) {
	for i, n := range r.Path {
		if !n.Open() {
			continue
		}
		level := s[levelKey{descriptors.NewRuleID(r.Domain, r.Path[:i]), n.Key}]
		if level == nil {
			continue
		}
		if unreachable := level.before(n); unreachable != "" {
			return unreachable, nil
		}
		if note := level.cost(n.Key); note != "" {
			notes = append(notes, note)
		}
	}
	return "", notes
}

// before finds a pattern before a node that matches all of its values.
func (l *patterns) before(n descriptors.Node) (unreachable string) {
	for i := range l.compared {
		p := &l.compared[i]
		before := descriptors.Node{Key: n.Key, Value: p.String(), Pattern: true}
		switch {
		case n.AnyValue && p.Covers(descriptors.Wildcard):
			return fmt.Sprintf("%v matches every value before %v", before, n)
		case n.AnyValue:
		case p.String() == n.Value:
			return "" // later patterns match nothing that this one matches
		case p.Covers(n.Value):
			return fmt.Sprintf("%v comes before %v and matches all of its values", before, n)
		}
	}
	return ""
}

// cost says what the patterns of a level cost, once, if matching a value of 1 KiB takes so long that
// the request leaves the goroutine that has read it.
func (l *patterns) cost(key string) string {
	const value = 1 << 10
	n := len(l.known)
	steps := n + l.searched*value
	if l.noted || steps <= fewSteps {
		return ""
	}
	l.noted = true
	text := fmt.Sprintf("%s has %s wildcards here, which are tried one after the other: a value of 1 KiB may take %v", key, words.Count(uint64(n)), (time.Duration(steps) * time.Nanosecond).Round(10*time.Microsecond))
	if l.searched > 0 {
		text += fmt.Sprintf("; text between two * is searched in the whole value, so on_store_error decides requests with more than %s bytes", words.Count(uint64(max(0, mostSteps-n)/l.searched)))
	}
	return text
}
