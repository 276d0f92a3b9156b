package explain

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// An Explanation describes how the rules come to a verdict.
type Explanation struct {
	// Lines describe it step by step.
	Lines []string
	// Verdict is the verdict.
	Verdict decide.Verdict
}

// Explain decides a request by d, and explains the answer. The store of d is empty or a [Live] one,
// and nothing else uses it: d is a [decide.Decider.Trial]. The explanation has no values of API keys.
// inRedis returns the name of a log in Redis; nil: no log is there. Explain returns the errors of
// Decide, and one for a domain without rules, which Decide allows. It is safe for concurrent use.
func Explain(ctx context.Context, d *decide.Decider, req decide.Request, inRedis func(window.LogID) string) (*Explanation, error) {
	var c decide.Call
	rs := d.Rules()
	d.Prepare(ctx, &c, req)
	if _, err := c.Decide(ctx, window.MayWait); err != nil {
		return nil, err
	}
	if c.Domain() == nil {
		return nil, fmt.Errorf("the rules have no domain %q: every request for it is allowed", req.Domain)
	}
	e := &Explanation{Verdict: *c.Verdict()}
	v := &e.Verdict
	for i := range req.Descriptors {
		e.addf("descriptor %d", i+1)
		e.explainMatch(rs, c.Domain(), &req.Descriptors[i], &v.Matches[i])
		m := &v.Matches[i]
		switch {
		case m.ReplacedBy != nil:
			e.addf("  the rule %s is replaced by the rule %s, which this request matches too", m.Rule.Name, m.ReplacedBy.Name)
		case m.Unlimited:
			e.addf("  the rule %s does not limit it: unlimited", m.Rule.Name)
		case v.Strictest[i] < 0 && m.Rule != nil:
			e.addf("  the rule %s has no limit", m.Rule.Name)
		}
		for j := range v.Limits {
			if v.Limits[j].Descriptor == i {
				e.explainLimit(&v.Limits[j], m, c.Checks()[j].Log(), inRedis)
			}
		}
	}
	if what := c.Exceeds(); what != "" {
		e.addf("the request exceeds a bound, so on_store_error decides it: only allow lets it pass: %s", what)
	}
	e.explainVerdict()
	return e, nil
}

func (e *Explanation) addf(format string, args ...any) {
	e.Lines = append(e.Lines, fmt.Sprintf(format, args...))
}

// mostTried is the most wildcards of an entry that an explanation lists, which do not fit.
const mostTried = 10

func (e *Explanation) explainMatch(rs *rules.Rules, dom *rules.Domain, desc *decide.Descriptor, m *decide.Match) {
	if o := desc.Override; o != nil {
		e.addf("  comes with a limit, which replaces those of any rule: %s", rules.FormatLimit(*o))
	}
	if d := desc.Entries; m.Rule == nil && len(d) == 1 && rules.NamesForm(d[0].Key, d[0].Value) {
		e.addf("  form=%s: denied clients get an answer as this kind of client reads it, unless a rule has a body", d[0].Value)
		return
	}
	entries := m.Limited(desc.Entries)
	steps := dom.Tree.Trace(entries)
	for _, s := range steps {
		entry := s.Entry
		if rs.HidesEntry(entry.Key) {
			entry.Value = rules.HiddenValue
		}
		for i, p := range s.Tried {
			if i == mostTried {
				e.addf("  %s=%s does not fit %s more wildcards", entry.Key, entry.Value, words.Count(uint64(len(s.Tried)-i)))
				break
			}
			e.addf("  %s=%s does not fit %v", entry.Key, entry.Value, p)
		}
		switch taken := s.Taken; {
		case taken.Key == "":
			e.addf("  %s=%s: no rule here has this key with this value, or the key alone", entry.Key, entry.Value)
		case taken.AnyValue:
			e.addf("  %s=%s matches the key with any value", entry.Key, entry.Value)
		case taken.Pattern:
			e.addf("  %s=%s matches the wildcard %v", entry.Key, entry.Value, taken)
		default:
			e.addf("  %s=%s matches this value", entry.Key, entry.Value)
		}
	}
	if _, ok := dom.Tree.Match(entries); !ok && len(steps) > 0 && len(steps) == len(entries) && steps[len(steps)-1].Taken.Key != "" {
		e.addf("  no rule ends here: a descriptor that is longer or shorter than a rule is not limited by it")
	}
	if len(entries) == len(desc.Entries) {
		return
	}
	how := "this rule charges each request"
	switch {
	case m.Rule == nil:
		how = "no rule matches the other entries"
	case m.Rule.Charge.Once.Entry != "":
		how = m.Rule.Charge.Once.String()
	}
	e.addf("  %s=*** names the attempt, and not the log: %s", dom.Once.Charge.Once.Entry, how)
}

func (e *Explanation) explainLimit(s *decide.LimitStatus, m *decide.Match, log window.LogID, inRedis func(window.LogID) string) {
	e.addf("  rule %s%s: %s%s", s.Rule.Name, whose(s), s.Limit.Text(), modeOf(s))
	if s.Source == verdict.SourceGrant {
		e.addf("    granted: %s", m.Grant)
	}
	if s.Limit.Policy != window.Sliding {
		e.explainPolicy(s)
	}
	if s.Rule.Store() != window.Region {
		e.addf("    counted in the scope %s", s.Rule.Storage.Scope)
	}
	unlimited := s.Limit.Hits == window.Unlimited
	if s.Limit.Precision > 0 && !unlimited {
		e.addf("    a hit counts up to %v longer than the window", s.Limit.Precision)
	}
	if lease := rules.FormatLease(s.Limit.Lease); lease != "" && s.Mode == window.Enforce {
		e.addf("    lease %s, where a key is asked for often", lease)
	}
	if unlimited {
		e.addf("    log   none: a limit of %d keeps no log, denies nothing, and always shows all of it remaining", uint64(window.Unlimited))
	} else {
		e.addf("    log   %s", log.Key)
		if inRedis != nil {
			e.addf("    in Redis: %s", inRedis(log))
		}
	}
	e.addf("    while the store cannot decide: %s", s.Rule.StoreError())
	switch d := &s.Decision; {
	case !d.Allowed && !d.Never && s.Limit.Policy == window.InFlight:
		e.addf("    cost  %d, has no room until an active request ends", s.Cost)
	case d.Never:
		e.addf("    cost  %d, more than the limit: it is denied however long the caller waits", s.Cost)
	case d.HoldsFull:
		e.addf("    cost  %s, has no room: %d requests have reserved a part of the budget, the most at once", rules.Amount(s.Cost, s.Limit.Currency), window.MaxHolds)
	case s.Limit.Budget != nil && d.Allowed:
		e.addf("    cost  %s, has room: %s", rules.Amount(s.Cost, s.Limit.Currency), s.Limit.AppendUse(nil, s.Spent(), d.Reserved))
	case s.Limit.Budget != nil:
		e.addf("    cost  %s, has no room: %s", rules.Amount(s.Cost, s.Limit.Currency), s.Limit.AppendUse(nil, s.Spent(), d.Reserved))
	case d.Allowed:
		e.addf("    cost  %d, has room, %d remain", s.Cost, d.Remaining)
	default:
		e.addf("    cost  %d, has no room for %v", s.Cost, d.RetryAfter.Round(time.Millisecond))
	}
	if s.Cost == 0 && s.Rule.ChargeUnsaid() && s.Mode != window.Refund {
		e.addf("    a cost of 0 asks and charges nothing; if usage is reported after the response, the rule needs charge: always")
	}
	if f := s.Rule.Answer.Denial.Form; f != rules.FormUnset && s.MayDeny() {
		e.addf("    body    %s: denied clients get an answer as this kind of client reads it", f)
	}
	if s.Rule.Answer.NeverRetry && s.MayDeny() {
		e.addf("    client_retry never: x-should-retry asks denied clients not to send the request again")
	}
	if jitter := s.Rule.Answer.RetryJitter; jitter > 0 && s.MayDeny() {
		e.addf("    retry_jitter %.4g%%: a caller who must wait is asked to wait longer by up to this percentage, and this caller by %.2g%%", 100*jitter, 100*s.Jitter)
	}
}

// whose describes the callers that a limit counts.
func whose(s *decide.LimitStatus) (who string) {
	if s.Tier != "" {
		who = " for tier " + s.Tier
	}
	if s.Subject != "" {
		who += " of subject " + s.Subject
	}
	switch s.Source {
	case verdict.SourceOverride:
		who += ", by an override"
	case verdict.SourceGrant:
		who += ", raised by a grant"
	case verdict.SourceUnresolved:
		who += " (the customer source cannot say whose)"
	}
	return who
}

// modeOf says how a limit is charged and enforced.
func modeOf(s *decide.LimitStatus) string {
	switch {
	case s.Mode == window.Refund:
		return ", a refund"
	case s.Enforcement == verdict.ObservedForSubject:
		return ", only observed for this subject"
	case s.Observed():
		return ", only observed"
	case s.Enforcement == verdict.EnforcedForSubject:
		return ", enforced for this subject"
	case s.Mode == window.Always:
		return ", charged even if the request is denied"
	case s.Quota:
		return ", one of several quota rules"
	case s.Update.Records:
		return ", recorded even if it does not fit while something remains"
	default:
		return ""
	}
}

// explainPolicy describes the policy of a limit that is no sliding window.
func (e *Explanation) explainPolicy(s *decide.LimitStatus) {
	l, label := s.Limit, ""
	if s.Period.SubjectDay {
		l.StartsLabel, label = "", "; the day is in the label "+l.StartsLabel // l.Calendar has the day
	}
	e.addf("    %s%s", l.Words(), label)
	if s.Period.Period != (window.Period{}) {
		start, end := l.Calendar.Local(s.Period.Start), l.Calendar.Local(s.Period.End)
		e.addf("    the present period is from %s to %s", start.Format(time.RFC3339), end.Format(time.RFC3339))
	}
}

func (e *Explanation) explainVerdict() {
	v := &e.Verdict
	if v.Allowed {
		e.addf("answer: OK")
	} else {
		e.addf("answer: OVER_LIMIT")
	}
	if v.Decisive >= 0 {
		e.addf("  headers and metadata describe the rule %s", v.Limits[v.Decisive].Rule.Name)
	}
	if v.Shadowed >= 0 {
		e.addf("  the rule %s would have denied it if it were not only observed", v.Limits[v.Shadowed].Rule.Name)
	}
}
