package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
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
	// Location is the rule's file:line. Review leaves it empty, and the caller sets it.
	Location string        `json:"place,omitempty"`
	Terms    []TermsReview `json:"terms,omitempty"`
	// Traits are what else the rule says; see [rules.Rule.Traits].
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
	// Limit is the limit as [rules.FormatLimit] writes it.
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

// NewReview reviews rules.
func NewReview(rs *rules.Rules) Review {
	review := Review{OnStoreError: rs.OnStoreError().String()}
	named := make(map[string]bool)
	var overrides observing
	if rs.Tiers() != nil {
		overrides.only, overrides.not = rs.Tiers().Observed()
	}
	for _, name := range rs.Domains() {
		d := DomainReview{Name: name, Rules: []RuleReview{}}
		levels := make(siblings)
		for _, r := range rs.All() {
			if r.Domain == name {
				levels.add(r)
			}
		}
		for _, r := range rs.All() {
			if r.Domain == name {
				d.Rules = append(d.Rules, reviewRule(rs, r, levels, overrides))
				for t := range r.ByTier {
					named[t] = true
				}
			}
		}
		review.Domains = append(review.Domains, d)
	}
	if rs.Tiers() == nil {
		return review
	}
	if len(named) == 0 {
		return review // no rule asks for tiers
	}
	subjects := rs.Tiers().SubjectsByTier()
	for _, t := range rs.Tiers().Tiers() {
		if !named[t] {
			review.TiersWithoutRule = append(review.TiersWithoutRule, t)
		}
		if !rs.Elsewhere() && subjects[t] == 0 && t != rs.Tiers().DefaultTier() {
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
func observeNotes(r *rules.Rule, overrides observing) (notes []string) {
	if r.Charge.Always {
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

func reviewRule(rs *rules.Rules, r *rules.Rule, levels siblings, overrides observing) RuleReview {
	review := RuleReview{ID: r.ID(), Name: r.Name, Path: strings.TrimPrefix(r.String(), r.Domain+"|"), Traits: r.Traits()}
	review.Unreachable, review.Notes = levels.judge(r)
	var count counting
	add := func(tierName string, t *rules.Terms) {
		review.Terms = append(review.Terms, reviewTerms(tierName, t, r.Charge.Always))
		if note := tooCostly(r.Charge.Factor, tierName, t); note != "" {
			review.Notes = append(review.Notes, note)
		}
		count.add(t)
	}
	if !r.Terms.Empty() {
		add("", &r.Terms)
	}
	if len(r.ByTier) > 0 {
		var others []string
		for _, t := range rs.Tiers().Tiers() {
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
	if r.Charge.Once.Entry != "" {
		review.Notes = append(review.Notes, "charge_once: a caller can save up the free retries of all requests that the limit admits, and send them at once; the store keeps an idempotency record of each, of about 200 bytes")
	}
	review.Notes = append(review.Notes, observeNotes(r, overrides)...)
	return review
}

// tooCostly says that the cost of one request is above a limit of the terms, so that each is
// denied. It returns an empty text if it is not, or if the terms only observe.
func tooCostly(cost uint64, tierName string, t *rules.Terms) string {
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
		return fmt.Sprintf("a request costs %d, above the limit of %s%s: each is denied, however long its caller waits", cost, l.Text(), who)
	}
	return ""
}

func reviewTerms(tierName string, t *rules.Terms, always bool) TermsReview {
	review := TermsReview{Tier: tierName, Unlimited: t.Unlimited, Observe: t.Observe}
	for i := range t.Limits {
		l := &t.Limits[i]
		lr := LimitReview{
			Requests: l.Hits,
			Window:   rules.FormatWindow(l.Window),
			Limit:    l.Text(),
			Policy:   l.Policy.String(),
			Rate:     l.Rate,
			Bytes:    packed.LogBytes(&window.Check{Limit: l.Limit, Precision: l.Precision}),
		}
		if l.Policy != window.Sliding {
			lr.Words = l.Words()
		}
		if !always { // otherwise a report may exceed both limits
			lr.Pointless = pointless(t.Limits, i)
		}
		if p := l.Rounding(); p > 0 {
			lr.Precision = p.String()
		}
		lr.Lease = rules.FormatLease(l.Lease)
		review.Limits = append(review.Limits, lr)
	}
	return review
}

// pointless names the other limit because of which limit i never denies. It returns an
// empty text if limit i may deny.
func pointless(limits []rules.Limit, i int) string {
	for j := range limits {
		l, o := &limits[i], &limits[j]
		if j == i || !implies(o, l) || i < j && implies(l, o) {
			continue // if two imply each other, the second is pointless
		}
		return fmt.Sprintf("%s never lets more than %d through in %s", rules.FormatLimit(o.Limit), o.Hits*rules.Covering(o, l), rules.FormatWindow(l.Window))
	}
	return ""
}

// implies reports whether o never allows enough to exceed l. It is certain only if o bounds
// every interval, or if both count in fixed windows that begin together.
func implies(o, l *rules.Limit) bool {
	switch {
	case o.Policy == window.Sliding && (l.Policy == window.Sliding || l.Policy == window.Fixed):
	case o.Policy == window.Fixed && l.Policy == window.Fixed && l.Window%o.Window == 0:
	default:
		return false
	}
	return o.Hits <= l.Hits/rules.Covering(o, l)
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

// mostPatterns bounds how many patterns of one level others are compared with.
const mostPatterns = 1000

func (s siblings) add(r *rules.Rule) {
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
func (s siblings) judge(r *rules.Rule) (unreachable string, notes []string) {
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
	steps := l.searched * (1 + value)
	if l.noted || steps <= decide.FewSteps {
		return ""
	}
	l.noted = true
	return fmt.Sprintf("%s has %s wildcards here with text between two *, which is searched in the whole value: a value of 1 KiB may take %v, and on_store_error decides requests with more than %s bytes",
		key, words.Count(uint64(l.searched)), (time.Duration(steps) * time.Nanosecond).Round(10*time.Microsecond), words.Count(uint64(max(0, decide.MostSteps/l.searched-1))))
}
