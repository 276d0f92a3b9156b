package diff

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/window"
)

// Live says who would be denied now if the new rules had counted what a service has counted.
type Live struct {
	// Limits are the limits that are new for some of the logs.
	Limits []LiveLimit `json:"limits"`
	// Problems say what is missing: an instance that does not answer.
	Problems []string `json:"problems"`
}

// A LiveLimit is a limit of the new rules, with the logs that it would be asked for.
type LiveLimit struct {
	Rule string `json:"rule"`
	// Path is the rule's position in the rules.
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	// Logs is how many logs the service has under its rule, each of a subject or of other values.
	Logs int `json:"logs"`
	// Denied is how many of them would be denied the next request, and Already how many of
	// these are denied by the old limit too. Unknown is how many subjects have limits that only the
	// customer source has.
	Denied  int `json:"denied"`
	Already int `json:"already_denied"`
	Unknown int `json:"unknown"`
	// Observed is true if the new limit is only observed, so it denies nothing.
	Observed bool `json:"observed"`
	// History is [Kept] if the new rules go on with the logs. If it is [Empty], the limit starts
	// with nothing used, and the logs say nothing of it: Denied, Already and Unknown are 0.
	History string `json:"history"`
	// Callers are those who would be denied, at most [MaxSubjects], the most used first.
	Callers []LiveCaller `json:"parties"`
	LeftOut int          `json:"left_out"`
}

// A LiveCaller is one log.
type LiveCaller struct {
	// Who: the id of the subject, or the values that the log belongs to.
	Who  string `json:"who"`
	Tier string `json:"tier,omitempty"`
	// Used is what counts for the new limit.
	Used     uint64 `json:"used"`
	Limit    uint64 `json:"limit"`
	OldLimit uint64 `json:"old_limit"`
}

// liveKey groups logs of one caller under a rule.
type liveKey struct {
	source          int
	path, log, tier string
}

// AddLive adds to the report who would be denied, by the logs of instances that do not share
// them. problems say which instances did not answer.
func (r *Report) AddLive(old, now Set, instances [][]insight.LimitUsage, problems []string) {
	l := live{old: old, new: now, byPath: make(map[string]*rules.Rule), found: make(map[[4]string]*LiveLimit)}
	for _, rule := range now.Rules.All() {
		l.byPath[rule.String()] = rule
	}
	callers := make(map[liveKey][]insight.LimitUsage)
	for source, logs := range instances {
		for _, log := range logs {
			k := liveKey{source, log.Path, log.Log + "\x00" + log.Subject + "\x00" + log.Values, log.Tier}
			if log.Sent || log.Unlimited {
				continue
			}
			if !slices.ContainsFunc(callers[k], func(o insight.LimitUsage) bool { return o.Policy == log.Policy && o.Window == log.Window }) {
				callers[k] = append(callers[k], log)
			}
		}
	}
	for _, logs := range callers {
		l.caller(logs)
	}
	r.Live = &Live{Limits: l.sorted(), Problems: append([]string{}, problems...)}
}

// live is the work of one AddLive.
type live struct {
	old, new Set
	byPath   map[string]*rules.Rule
	found    map[[4]string]*LiveLimit
}

// caller adds the logs of one caller under one rule.
func (l *live) caller(logs []insight.LimitUsage) {
	one := &logs[0]
	rule := l.byPath[one.Path]
	if rule == nil {
		return // the rule is gone, and denies nothing
	}
	s, known := l.subject(one)
	limits := sampleOf(l.new.Rules, rule, s)
	old := l.old.Rules.Rule(rule.ID())
	changed := old == nil || max(old.Charge.Factor, 1) != max(rule.Charge.Factor, 1) || old.TermsOf(one.Tier).Observe != rule.TermsOf(one.Tier).Observe
	for i := range limits {
		limit := &limits[i]
		if limit.Unlimited || limit.Limit.Hits == window.Unlimited {
			continue
		}
		at := slices.IndexFunc(logs, func(u insight.LimitUsage) bool { return sameLog(&u, limit) })
		if at >= 0 && !changed && logs[at].Amount() == limit.Limit.Text() {
			continue
		}
		was, history := amounts(logs), Empty
		if at >= 0 {
			was = logs[at].Amount()
		}
		if at >= 0 && old != nil && slices.ContainsFunc(sampleOf(l.old.Rules, old, s), func(o explain.AccountLimit) bool { return o.Log == limit.Log }) {
			history = Kept
		}
		observed := limit.Observed
		if fraction := rule.TermsOf(limit.Tier).Observe; fraction > 0 && fraction < 1 && !strings.Contains(one.Log, hiddenValue) {
			observed = identity.Observes(fraction, one.Log)
		}
		of := l.limit(rule, was, limit.Limit.Text(), history, observed)
		of.Logs++
		switch {
		case history == Empty:
		case !known:
			of.Unknown++
		default:
			of.add(&logs[at], limit, max(rule.Charge.Factor, 1))
		}
	}
}

// subject returns the subject of a log in the new tiers. known is false if its limits are from
// the customer source, which is not asked.
func (l *live) subject(u *insight.LimitUsage) (s *tier.Subject, known bool) {
	if u.Subject == "" {
		return nil, true
	}
	d := l.new.Rules.Tiers()
	if d == nil {
		return &tier.Subject{ID: u.Subject}, true
	}
	if s := d.ByID(u.Subject); s != nil && !s.Disabled {
		return s, true
	}
	if d.Subjects() > 0 {
		return &tier.Subject{ID: u.Subject, Tier: d.DefaultTier()}, true
	}
	return &tier.Subject{ID: u.Subject, Tier: u.Tier}, !u.Override
}

// amounts describes the limits of logs.
func amounts(logs []insight.LimitUsage) string {
	var all []string
	for i := range logs {
		all = append(all, logs[i].Amount())
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

// who names the caller of a log.
func who(u *insight.LimitUsage) string {
	switch {
	case u.Subject == "":
		return cmp.Or(u.Values, "all requests together")
	case u.Values == "":
		return u.Subject
	default:
		return u.Subject + " (" + u.Values + ")"
	}
}

// sameLog reports whether a limit counts in a log with this policy and window.
func sameLog(u *insight.LimitUsage, l *explain.AccountLimit) bool {
	length := time.Duration(u.Window*1e6+0.5) * time.Microsecond
	return rules.ParsePolicy(u.Policy) == l.Limit.Policy && (l.Limit.Policy == window.InFlight || length == l.Limit.Window)
}

// limit returns the entry for a limit.
func (l *live) limit(r *rules.Rule, was, is, history string, observed bool) *LiveLimit {
	key := [4]string{r.String(), was, is, history}
	if observed {
		key[3] += " observed"
	}
	if l.found[key] == nil {
		l.found[key] = &LiveLimit{Rule: r.Name, Path: r.String(), Old: was, New: is, History: history, Observed: observed, Callers: []LiveCaller{}}
	}
	return l.found[key]
}

// add adds the caller of a log if the new limit would deny its next request.
func (l *LiveLimit) add(u *insight.LimitUsage, limit *explain.AccountLimit, cost uint64) {
	p := LiveCaller{Who: who(u), Tier: limit.Tier, Used: u.Used, Limit: limit.Limit.Hits, OldLimit: u.Limit}
	if limit.Limit.Policy == window.TokenBucket { // its tokens stay, but not more than the burst
		p.Used = p.Limit - min(u.Limit-min(u.Used, u.Limit), p.Limit) + max(u.Used, u.Limit) - u.Limit
	}
	if p.Used <= p.Limit && p.Limit-p.Used >= cost {
		return
	}
	l.Denied++
	if u.Remaining == 0 && !u.Shadow {
		l.Already++
	}
	l.Callers = append(l.Callers, p)
}

// sorted returns the limits in a stable order, with a bounded number of callers.
func (l *live) sorted() []LiveLimit {
	all := []LiveLimit{}
	for _, one := range l.found {
		slices.SortFunc(one.Callers, func(a, b LiveCaller) int {
			return cmp.Or(cmp.Compare(b.Used, a.Used), strings.Compare(a.Who, b.Who), strings.Compare(a.Tier, b.Tier), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.OldLimit, b.OldLimit))
		})
		if one.LeftOut = max(0, len(one.Callers)-MaxSubjects); one.LeftOut > 0 {
			one.Callers = one.Callers[:MaxSubjects]
		}
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b LiveLimit) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Old, b.Old), strings.Compare(a.New, b.New), strings.Compare(a.History, b.History), cmp.Compare(number(a.Observed), number(b.Observed)))
	})
	return all
}

// maxAskedName bounds the names of rules to ask for, in bytes.
const maxAskedName = 4 << 10

// Asks returns the old names of the rules whose logs AddLive needs. Nil: all.
func (r *Report) Asks(old Set) (names []string) {
	if len(r.Tiers)+len(r.Subjects) > 0 {
		return nil
	}
	paths := make(map[string]bool)
	for i := range r.Rules {
		paths[r.Rules[i].Path] = r.Rules[i].What == "changed"
	}
	size := 0
	for _, rule := range old.Rules.All() {
		if paths[rule.String()] {
			names = append(names, rule.Name)
			size += len(rule.Name) + 1
		}
	}
	if size > maxAskedName {
		return nil
	}
	slices.Sort(names)
	return slices.Compact(names)
}
