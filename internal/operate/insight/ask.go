package insight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

const (
	// pageLimits is the most limits of a page.
	pageLimits = 100
	// pageSteps is the most calls of the store's list for a page.
	pageSteps = 16
	// pageTime is how long a page is searched for. A call that has begun may end later.
	pageTime = time.Second
	// historyParts is the number of parts of [LimitUsage.History].
	historyParts = 60
	// maxCause bounds what an answer repeats of an error, in bytes.
	maxCause = 300
)

// The values of [Usage.Source] besides the names of stores. SourceNone: what is used is not known.
const (
	sourceLocal = "local"
	SourceNone  = "none"
)

// Usage returns what a subject has used of every limit that applies to it. It charges nothing
// and writes nothing. If the store is unavailable, it returns what this process has counted
// meanwhile, and [Usage.Problem] says so. The error is a [InvalidError], or that of ctx.
func (i *Insight) Usage(ctx context.Context, q Query) (*Usage, error) {
	cursor := q.Cursor
	q.Cursor = ""
	s, err := i.subject(ctx, q)
	if err != nil {
		return nil, err
	}
	w, err := i.walk(s, cursor)
	if err != nil {
		return nil, err
	}
	u := &Usage{Query: s.query, Source: i.opts.Store, ByAddress: s.ByAddress, Notes: s.notes(), Origin: Origin{Instance: i.opts.Instance, At: i.opts.Now()}, Limits: []LimitUsage{}}
	u.describe(s)
	if s.rules.Missing() {
		u.Problem = rules.ErrMissing.Error()
	}
	limits, err := w.page(ctx)
	if err != nil {
		return nil, err
	}
	u.Next = w.cursor()
	if err := i.read(ctx, u, limits, w.problem); err != nil {
		return nil, err
	}
	i.hide(s, u)
	return u, nil
}

// hide removes an id that is not recognized from an answer.
func (i *Insight) hide(s *subject, u *Usage) {
	used := slices.ContainsFunc(u.Limits, func(l LimitUsage) bool { return l.Used > 0 })
	if u.Recognized = used || i.recognizes(s); u.Recognized || s.query.Subject == "" {
		return
	}
	u.Subject, u.Query.Subject, u.Unknown = hiddenValue, hiddenValue, i.unrecognized(s)
	for n := range u.Limits {
		u.Limits[n].Log = ""
	}
}

// describe sets what is known of a subject.
func (u *Usage) describe(s *subject) {
	u.Subject = s.query.Subject
	if known := s.Subject; known != nil {
		u.Known, u.Subject, u.Disabled, u.Labels = true, known.ID, known.Disabled, known.Labels()
	}
	if u.Known || s.query.Address == "" {
		u.Tier = s.rules.TierOf(s.Subject)
	}
}

// page returns the limits of a page. The walk is then at the next one.
func (w *walk) page(ctx context.Context) (all []explain.AccountLimit, err error) {
	begun := time.Now()
	listed := make(map[window.LogID]bool)
	for n := 0; w.Stage != atEnd && len(all) < pageLimits && !w.full; n++ {
		if n > pageSteps || time.Since(begun) > pageTime {
			break
		}
		limits, err := w.step(ctx, pageLimits-len(all))
		if err != nil {
			return nil, err
		}
		for _, l := range limits {
			if l.Log.Key == "" || !listed[l.Log] {
				listed[l.Log] = true
				all = append(all, l)
			}
		}
	}
	return all, nil
}

// read adds limits to the answer, with what the store has counted.
func (i *Insight) read(ctx context.Context, u *Usage, limits []explain.AccountLimit, listed error) error {
	var ids []window.LogID
	for _, l := range limits {
		if hasLog(&l) {
			ids = append(ids, l.Log)
		}
	}
	readings, err := i.readAll(ctx, ids)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var counted map[window.LogID]bool // by this process
	if err != nil || listed != nil {
		var problem string
		readings, counted, problem = i.readLocal(ctx, u, ids, readings, listed)
		u.Problem = join(u.Problem, problem)
	}
	for n := range limits {
		l := &limits[n]
		one := limitUsage(l, readings[l.Log])
		if one.Budget && readings[l.Log] != nil && !counted[l.Log] {
			i.useBudget(ctx, l, &one)
		}
		if counted[l.Log] {
			one.Local, one.OnStoreError = true, l.Rule.StoreError().String()
			i.useFallbackQuota(ctx, l, &one)
		}
		u.Limits = append(u.Limits, one)
	}
	return nil
}

// readAll reads logs from the store. On an error it returns those that it could read.
func (i *Insight) readAll(ctx context.Context, ids []window.LogID) (map[window.LogID]*inspect.Reading, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	readings, err := i.opts.Inspector.Read(within, ids)
	return byLog(readings), err
}

func byLog(readings []inspect.Reading) map[window.LogID]*inspect.Reading {
	m := make(map[window.LogID]*inspect.Reading, len(readings))
	for i := range readings {
		m[readings[i].ID] = &readings[i]
	}
	return m
}

// useBudget sets what is spent and reserved of a budget, and what that leaves. If the store does not answer,
// the usage is that of the log, as if nothing was reserved. Above the limit, reservations that have expired are
// not in it.
func (i *Insight) useBudget(ctx context.Context, l *explain.AccountLimit, u *LimitUsage) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	d, ok := i.ask(ctx, i.opts.Budgets, l)
	if !ok {
		return
	}
	u.set(&d)
	u.Used, u.Reserved = max(u.Used, l.Limit.Hits-min(l.Limit.Hits, d.Remaining+d.Reserved)), d.Reserved
}

// set sets what a decision leaves of a limit.
func (c *Counter) set(d *window.Decision) {
	c.Remaining, c.NextFree, c.Empty = d.Remaining, d.UnitAfter.Seconds(), d.ResetAfter.Seconds()
}

// ask asks a store for a cost of 0 under a limit. It reports false if the store did not answer, or cannot.
func (i *Insight) ask(ctx context.Context, store window.Store, l *explain.AccountLimit) (window.Decision, bool) {
	c := window.Check{Key: l.Log.Key, Limit: l.Limit.Limit, Scope: l.Log.Scope, Precision: l.Limit.Precision}
	if l.Limit.Calendar != nil {
		c.Period = l.Limit.Calendar.Period(i.opts.Now())
	}
	if l.Limit.Budget != nil {
		c.Budget, c.Stream = &l.Limit.Budget.Budget, max(1, window.StreamID(rand.Uint64())) //nolint:gosec // it reserves nothing
	}
	var d [1]window.Decision
	if store == nil || c.Log() != l.Log { // an old window of the log
		return d[0], false
	}
	_, err := store.Take(ctx, window.MayWait, []window.Check{c}, d[:])
	return d[0], err == nil
}

// useFallbackQuota sets what the fallback quota of this process has left, because that decides while the store is
// unavailable. If the quota does not answer, the usage is that of the whole limit.
func (i *Insight) useFallbackQuota(ctx context.Context, l *explain.AccountLimit, u *LimitUsage) {
	if l.Sent || l.Rule.StoreError() != rules.StoreErrorLocal {
		return
	}
	if d, ok := i.ask(ctx, i.opts.FallbackQuotas, l); ok {
		u.set(&d)
	}
}

// readLocal returns readings with what this process has counted in the logs that the store did not
// return, which these are, and a sentence about that.
func (i *Insight) readLocal(ctx context.Context, u *Usage, ids []window.LogID, readings map[window.LogID]*inspect.Reading, listed error) (all map[window.LogID]*inspect.Reading, counted map[window.LogID]bool, problem string) {
	var missing []window.LogID
	for _, id := range ids {
		if readings[id] == nil {
			missing = append(missing, id)
		}
	}
	what := "what is used cannot be known while " + i.storeName() + " is unavailable"
	if len(missing) < len(ids) {
		what = fmt.Sprintf("what is used of %d of %d limits cannot be known while a part of %s is unavailable", len(missing), len(ids), i.storeName())
	}
	if len(missing) == 0 && listed != nil {
		what = i.storeName() + " cannot list its counters, so limits may be missing"
	}
	if len(missing) == 0 && len(ids) > 0 {
		return readings, nil, what + seeWhy
	}
	var local []inspect.Reading
	known := i.opts.Local != nil
	if known {
		var err error
		local, err = i.opts.Local.Read(ctx, missing)
		known = err == nil
	}
	if !known {
		u.Source = SourceNone
		return readings, nil, what + seeWhy
	}
	if readings == nil {
		readings = make(map[window.LogID]*inspect.Reading)
	}
	counted = make(map[window.LogID]bool)
	for n := range local {
		readings[local[n].ID], counted[local[n].ID] = &local[n], true
	}
	u.Source = sourceLocal
	return readings, counted, what + ": the numbers are those of this instance alone" + seeWhy
}

// seeWhy says where the error of a store is.
const seeWhy = "; the overview of the console, GET /v1/state and the log say what is wrong with it"

// storeName returns the name of the store for a sentence.
func (i *Insight) storeName() string {
	if i.opts.Store == "redis" {
		return "Redis"
	}
	return "the " + i.opts.Store + " store"
}

// causeOf returns an error on one line, cut to a bound.
func causeOf(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	return text
}

func join(texts ...string) string {
	texts = slices.DeleteFunc(texts, func(t string) bool { return t == "" })
	return strings.Join(texts, "; ")
}

// hasLog reports whether a limit has a log whose name is known.
func hasLog(l *explain.AccountLimit) bool {
	return l.Log.Key != "" && !l.Unlimited && l.Limit.Hits != window.Unlimited
}

// limitUsage returns what a log says under a limit. r is nil if there is no log.
func limitUsage(l *explain.AccountLimit, r *inspect.Reading) LimitUsage {
	u := LimitUsage{
		Domain: l.Rule.Domain, Rule: l.Rule.Name, Path: l.Rule.String(), LogName: LogName{Values: strings.Join(l.Values, ", "), Scope: l.Rule.Storage.Scope},
		Basis: Basis{l.Tier, l.Override, l.Grant, l.Carried}, Shadow: l.Observed, ObserveOverride: l.OverrideObserve, ReplacedBy: l.ReplacedBy, Unlimited: l.Unlimited,
	}
	if u.Path == "" { // of a limit that came with requests
		u.Path = l.Rule.Domain
	}
	if l.Unlimited {
		return u
	}
	u.Terms, u.Sent, u.Budget = TermsOf(&l.Limit), l.Sent, l.Limit.Budget != nil
	u.NoLog = l.Log.Key == ""
	if l.Limit.Hits != window.Unlimited {
		u.Log = l.Shown
	}
	if r == nil {
		r = &inspect.Reading{ID: window.LogID{Window: l.Limit.Window, Policy: l.Limit.Policy}}
	}
	limit := l.Limit.Limit
	if l.Sent {
		limit.Hits = window.Unlimited - 1 // the waits do not depend on the limit then
	}
	d := r.Ask(limit)
	u.set(&d)
	if l.Sent {
		u.Remaining = 0
	}
	if u.Used = r.Used(limit); u.Used > 0 {
		u.History = r.History(historyParts)
	}
	return u
}
