package insight

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Query names a subject. Exactly one of the first four fields is set.
type Query struct {
	// Subject is the id of a subject.
	Subject string `json:"subject,omitempty"`
	// Address is a client's IP address, or a prefix of a masked one.
	Address string `json:"address,omitempty"`
	// Digest is the digest of an API key: 64 hex digits, as rls digest prints it.
	Digest string `json:"digest,omitempty"`
	// Descriptor is a domain and the entries of one descriptor: edge/route=search,api_key=k1.
	// The values of API keys are digested before they are kept anywhere.
	Descriptor string `json:"descriptor,omitempty"`
	// Rule, unless empty, leaves only the limits of the rule with this name.
	Rule string `json:"rule,omitempty" doc:"only this rule"`
	// Cursor continues a list; see [Usage.Next].
	Cursor string `json:"-"`

	found *subject // from [Insight.Find]; nil: the subject is not resolved yet
}

// Usage is what one subject has used of the limits that apply to it.
type Usage struct {
	Query Query `json:"query"`
	// Known is true if the tiers have the subject.
	Known    bool              `json:"known"`
	Subject  string            `json:"subject,omitempty"`
	Tier     string            `json:"tier,omitempty"`
	Disabled bool              `json:"disabled,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Limits are at most 100. A log may be on two pages.
	Limits []LimitUsage `json:"limits"`
	// Next is the cursor of the next page. Empty: this page is the last. A page may have no
	// limits although another one follows.
	Next string `json:"next,omitempty"`
	// Source is where the numbers are from: memory, redis, local if a store is unavailable and this
	// process counts by itself, or none. If it is local, [Outage] says for which limits.
	Source string `json:"source"`
	// Problem says why Source is local, or what is missing.
	Problem string `json:"problem,omitempty"`
	// ByAddress is true if an unknown API key counts for the address of its client, so that the
	// limits of the key do not say whether its requests pass.
	ByAddress bool `json:"by_address,omitempty"`
	// Recognized is false for an id or a digest that the tiers do not have, that has used nothing and
	// was not denied. It may be an API key.
	Recognized bool `json:"-"`
	// Unknown is not empty if no subject with this id is known: it says so, and which ids are spelled
	// alike. The answer does not repeat the id, because it may be an API key.
	Unknown string `json:"unknown,omitempty" doc:"no such customer; similar ids"`
	// Notes say what may surprise the reader.
	Notes []string `json:"notes,omitempty"`
	Origin
}

// Origin says which process answered, and when.
type Origin struct {
	// Instance is the process that answered.
	Instance string    `json:"instance"`
	At       time.Time `json:"at"`
}

// LimitUsage is one limit and its log.
type LimitUsage struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Path is the rule's position in the rules: edge|route=search/api_key.
	Path string `json:"path"`
	LogName
	Basis
	// Shadow is true if the limit is only observed. ObserveOverride is true if the subject's
	// override says so, or says that it is not.
	Shadow          bool `json:"shadow,omitempty" doc:"shadow mode: the limit never denies"`
	ObserveOverride bool `json:"observe_override,omitempty" doc:"the customer's override decides about shadow mode"`
	// ReplacedBy are the names of the rules that replace this one in requests that both apply to.
	ReplacedBy []string `json:"replaced_by,omitempty"`
	// Unlimited is true if the rule does not limit the subject. Outage, Terms, Counter and what
	// follows are zero then.
	Unlimited bool `json:"unlimited,omitempty"`
	// Sent is true if the limit came with requests, which alone know its number: Limit and
	// Remaining are zero.
	Sent bool `json:"sent,omitempty" doc:"the limit came with requests: limit and remaining are 0"`
	// NoLog is true if the rule has a log for each value of another entry, and the subject has
	// none yet. Only Policy, Limit, Remaining and Window are set then.
	NoLog bool `json:"no_log,omitempty" doc:"nothing is used yet"`
	// Budget is true if requests reserve what they may cost.
	Budget bool `json:"budget,omitempty" doc:"requests reserve what they may cost, and spend it when they end"`
	Outage
	Terms
	Counter
}

// Use says how much of the limit is used: 5 used of 5 per 1m, or 12.40 of 500.00 USD used, 3.10 reserved.
func (l *LimitUsage) Use() string {
	if l.Budget {
		return l.UseOf(l.Used, l.Reserved)
	}
	return l.Units(l.Used) + " used of " + l.Amount()
}

// A Basis says whose limit it is.
type Basis struct {
	// Tier is the tier whose limit it is. Override is true if it is an override of
	// the subject.
	Tier     string `json:"tier,omitempty"`
	Override bool   `json:"override,omitempty"`
	// Grant has raised the limit for a time, or is nil.
	Grant *grant.Grant `json:"grant,omitempty" doc:"it has raised the limit for a time"`
	// Carried is the key in the metadata of an authorization, if the tier carries the limit and it comes
	// with requests.
	Carried string `json:"carried,omitempty" doc:"the tier carries the limit, and requests bring it: its key in the metadata of an authorization"`
}

// A LogName says which log counts for a limit.
type LogName struct {
	// Subject is whose log it is, in a list of logs of all subjects. Empty: the log is not that of
	// a subject.
	Subject string `json:"subject,omitempty"`
	// Scope is the store in which the limit counts, if that is not the store of the region.
	Scope string `json:"scope,omitempty"`
	// Values are the values that the log belongs to, besides the subject: route=search.
	Values string `json:"values,omitempty"`
	// Log is the name of the log in the store, after the key prefix and before the window,
	// without values that must not be shown.
	Log string `json:"log,omitempty"`
}

// An Outage says what decides if the store did not return a log.
type Outage struct {
	// Local is true if the store did not return the log. Used is what this process has counted by
	// itself. OnStoreError is what decides then: allow, deny, report or local. With local, Remaining is
	// what the fallback quota of this process has left.
	Local        bool   `json:"local,omitempty" doc:"the store did not answer: used is what this instance counted"`
	OnStoreError string `json:"on_store_error,omitempty" doc:"what decides then; with local, remaining is the part of this instance"`
}

// Chosen reports whether a choice of the rule decides because its store does not answer, and not the
// limit.
func (o *Outage) Chosen() bool {
	return o.Local && o.OnStoreError != "" && o.OnStoreError != rules.StoreErrorLocal.String()
}

// Terms are the numbers of a limit.
type Terms struct {
	// Policy is how the limit counts: sliding, token_bucket, fixed, calendar, sliding_counter or
	// in_flight.
	Policy string `json:"policy,omitempty"`
	// Limit is the most in a window or a period, at once (the burst of a bucket), or at the same
	// time. Rate is what comes back to a bucket in each window, and zero for other policies.
	Limit uint64 `json:"limit"`
	Rate  uint64 `json:"rate,omitempty"`
	// Window is in seconds: the usual length of a calendar's period, and of a limit in flight the
	// longest time that a request counts.
	Window float64 `json:"window_seconds" doc:"the length of the window; of in_flight, hold"`
	// Currency is the currency of which hits are millionths, such as usd. Empty: hits are units.
	Currency string `json:"currency,omitempty" doc:"numbers are millionths of it"`
}

// TermsOf returns the numbers of a limit.
func TermsOf(l *rules.Limit) Terms {
	return Terms{Policy: l.Policy.String(), Limit: l.Hits, Rate: uint64(l.Rate), Window: l.Window.Seconds(), Currency: l.Currency}
}

// of returns the limit of a rule with these numbers.
func (t *Terms) of() *rules.Limit { return &rules.Limit{Limit: t.limit(), Currency: t.Currency} }

// Amount returns the limit as operators read it: 100 per 1m, or 500.00 USD per month.
func (t *Terms) Amount() string { return t.of().Text() }

// UseOf returns how much of a budget is used: 12.40 of 500.00 USD used, 3.10 reserved.
func (t *Terms) UseOf(spent, reserved uint64) string {
	return string(t.of().AppendUse(nil, spent, reserved))
}

// Units returns a number of hits as operators read it: 1200, or 12.40 USD.
func (t *Terms) Units(n uint64) string { return rules.Amount(n, t.Currency) }

// Hits returns a number of hits for a page: 1,200, or 12.40 USD.
func (t *Terms) Hits(n uint64) string {
	if t.Currency == "" {
		return words.Count(n)
	}
	return t.Units(n)
}

// Per returns Amount without its numbers, for a limit whose numbers are not known: per 1m.
func (t *Terms) Per() string {
	text, _, _ := strings.Cut(t.Amount(), ", bursts")
	return strings.TrimPrefix(text, "0 ")
}

// limit returns the limit itself. A Window that is not a time is left out.
func (t *Terms) limit() window.Limit {
	l := window.Limit{Hits: t.Limit, Rate: uint32(min(t.Rate, math.MaxUint32)), Policy: rules.ParsePolicy(t.Policy)}
	if t.Window > 0 && t.Window < window.MaxWindow.Seconds()*2 {
		l.Window = time.Duration(math.Round(t.Window*1e6)) * time.Microsecond
	}
	return l
}

// A Counter is what a log says under a limit.
type Counter struct {
	Used uint64 `json:"used" doc:"of a budget: what is spent"`
	// Reserved is what streams have reserved of a budget, besides Used.
	Reserved  uint64 `json:"reserved,omitempty" doc:"reserved of a budget, besides used"`
	Remaining uint64 `json:"remaining" doc:"0: requests are denied"`
	// NextFree and Empty are in seconds. NextFree is when Remaining becomes larger than now if no
	// request spends, and Empty when the log is empty; both are zero if it is.
	NextFree float64 `json:"next_free_seconds" doc:"until quota is free again"`
	Empty    float64 `json:"empty_seconds" doc:"until all of the limit is free"`
	// History is the log in up to 60 parts of the window, the oldest first. Only a sliding window
	// has one.
	History []uint64 `json:"history,omitempty" doc:"usage in parts of a sliding window, the oldest first"`
}

// Passes says when a request of cost 1 passes, in a sentence. The limit must have a log or a number.
func (l *LimitUsage) Passes() string {
	switch {
	case l.Limit == 0:
		return "No request passes: the limit is 0."
	case l.Remaining > 0:
		return "A request passes now, up to a cost of " + l.Hits(l.Remaining) + "."
	case l.limit().Policy == window.InFlight:
		return "A request passes when another one ends, in " + words.Seconds(l.NextFree) + " at the latest."
	case l.Reserved > 0:
		return "A request passes when another one ends and has cost less than it reserved, or in " + words.Seconds(l.NextFree) + "."
	case l.Currency != "":
		return "A request passes in " + words.Seconds(l.NextFree) + "."
	default:
		return "A request of cost 1 passes in " + words.Seconds(l.NextFree) + "."
	}
}

// Denies reports whether the limit is known to deny the next request of cost 1.
func (l *LimitUsage) Denies() bool {
	return !l.Local && !l.Unlimited && !l.Shadow && !l.Sent && !l.Chosen() && l.Remaining == 0
}

// Uncertain reports whether what is used of an enforced limit is not known, because its store is
// unavailable.
func (u *Usage) Uncertain() bool {
	return u.Source == SourceNone || slices.ContainsFunc(u.Limits, func(l LimitUsage) bool { return l.Local && !l.Shadow })
}

// Denying returns the limits that deny the next request of cost 1. The first decides how long it has
// to wait: it is a limit of 0, or that with the longest wait.
func (u *Usage) Denying() (limits []*LimitUsage) {
	for i := range u.Limits {
		if l := &u.Limits[i]; l.Denies() {
			limits = append(limits, l)
		}
	}
	slices.SortStableFunc(limits, func(a, b *LimitUsage) int {
		return cmp.Or(cmp.Compare(min(a.Limit, 1), min(b.Limit, 1)), cmp.Compare(b.NextFree, a.NextFree))
	})
	return limits
}

// A ResetRequest says which logs to remove: those of a query, which has no cursor.
type ResetRequest struct {
	Query
	// Reason is required, for the audit log.
	Reason string `json:"reason" doc:"for the audit log; no API key"`
	// By is who asks: the name of the token's line, or the address on loopback.
	By string `json:"-"`
}

// A Reset is what an operator has removed.
type Reset struct {
	ID     uint64    `json:"id"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Query  Query     `json:"query"`
	Reason string    `json:"reason"`
	// Removed are the logs with what was in them, at most 100 of them; Logs is their number.
	Removed []LimitUsage `json:"removed"`
	Logs    int          `json:"logs"`
	// Problem says what could not be removed.
	Problem  string `json:"problem,omitempty"`
	Instance string `json:"instance"`
}
