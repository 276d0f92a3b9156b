package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

const (
	// every is the time between two takes. The ranking of subjects has whole minutes.
	every = time.Minute
	// shownSubjects is how many subjects of a day an answer has.
	shownSubjects = 20
)

// What a [History] is of: all instances that share Redis, or this one.
const (
	OfService  = "service"
	OfInstance = "instance"
)

// Options of a [Counter]. Totals, Denied, Now and Log are required.
type Options struct {
	// Totals reads the counts of all rules since the start of the process.
	Totals func(*metrics.Totals)
	// Denied is [insight.Insight.DeniedIn].
	Denied func(minute time.Time) map[string]uint64
	// Redis is where instances add up their counts. Nil: counts are those of this process.
	Redis *Redis
	// File keeps the counts of a process without Redis until the next one. Empty: nothing does.
	File string
	Now  func() time.Time
	Log  *zap.Logger
}

// A Counter counts. Create it with [New]. Read is safe for concurrent use.
type Counter struct {
	opts Options
	// Of the last take, for Run and Close alone:
	totals  metrics.Totals
	counted metrics.Differ
	minute  time.Time // the first one whose denials are not counted
	failing bool      // the last write failed

	mu   sync.Mutex
	days days // with Redis, what is not there yet

	reading sync.Mutex
	read    days // as Redis had them, for a minute
	readAt  time.Time
}

// New returns a Counter, with the counts of the file. Close it before the store.
func New(o Options) *Counter {
	h := &Counter{opts: o, minute: o.Now().Truncate(every), days: make(days)}
	if o.File != "" {
		all, err := load(o.File)
		if err != nil {
			o.Log.Error("the history of denials is empty: its file cannot be used; the next shutdown replaces it", zap.String("file", o.File), zap.Error(err))
		} else {
			h.days = all
		}
	}
	return h
}

// Run counts once a minute until ctx ends, and returns nil.
func (h *Counter) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.take(h.opts.Now(), false)
			h.write(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Close counts what is new since the last minute, and writes it to Redis or to the file. Call it once,
// after Run.
func (h *Counter) Close() error {
	h.take(h.opts.Now(), true)
	h.write(context.Background())
	if h.opts.File == "" || h.opts.Redis != nil {
		return nil
	}
	if err := save(h.opts.File, h.days); err != nil {
		return fmt.Errorf("the history of denials: %w", err)
	}
	return nil
}

// take counts what is new since the last take, in the hour of the minute before now. At the end it
// counts the denials of the minute that is not over, too.
func (h *Counter) take(now time.Time, end bool) {
	h.opts.Totals(&h.totals)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := now.Add(-every / 2).UTC()
	today := h.days.of(at)
	for _, r := range h.counted.Since(h.totals.Rules) {
		if c := (Count{uint64(r.Decisions), uint64(r.Denials)}); r.Rule != "" && c != (Count{}) {
			today.add(nameOf(r.Domain, r.Rule), at.Hour(), c)
		}
	}
	until := now.Truncate(every)
	if end {
		until = until.Add(every)
	}
	// The ranking knows five minutes.
	if first := until.Add(-5 * every); h.minute.Before(first) {
		h.minute = first
	}
	for ; h.minute.Before(until); h.minute = h.minute.Add(every) {
		for who, denials := range h.opts.Denied(h.minute) {
			h.days.of(h.minute).deny(who, denials)
		}
	}
	h.days.forget(now)
}

// write moves the counts to Redis. What Redis does not take stays for the next minute.
func (h *Counter) write(ctx context.Context) {
	if h.opts.Redis == nil {
		return
	}
	h.mu.Lock()
	all := h.days
	h.days = make(days)
	h.mu.Unlock()
	var failed error
	for at, d := range all {
		if failed == nil {
			failed = h.opts.Redis.add(ctx, at, d)
		}
		if failed == nil {
			delete(all, at)
		}
	}
	if failed != nil {
		// Only this goroutine adds to the days.
		h.mu.Lock()
		h.days = all
		h.mu.Unlock()
	}
	if is := failed != nil; is != h.failing {
		h.failing = is
		if is {
			h.opts.Log.Warn("Redis does not take the history of denials; rls keeps it and tries again each minute", zap.Error(failed))
		} else {
			h.opts.Log.Info("Redis takes the history of denials again")
		}
	}
}

// A Query says what to answer. The zero value asks for nothing.
type Query struct {
	// Rule and Subject choose one rule by its name, and one subject by its id, its digest or its
	// masked address. If one is set, the answer has nothing of the other kind.
	Rule, Subject string
	// From and To bound the hours, and the days in which they are. To is not one of them. Read
	// takes no earlier day than it keeps, and nothing after now.
	From, To time.Time
}

// A History is what a service has counted.
type History struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Of is [OfService] or [OfInstance].
	Of string `json:"of"`
	// Rules has the rules with decisions, by domain and name.
	Rules []RuleHistory `json:"rules"`
	// Days has the days on which subjects were denied, the oldest first.
	Days []Day `json:"days"`
}

// A RuleHistory has the hours in which one rule decided. Without a domain it stands for all rules above
// the bound.
type RuleHistory struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Hours  []Hour `json:"hours"`
}

// An Hour is what a rule did in the hour that begins then.
type Hour struct {
	Hour time.Time `json:"hour"`
	Count
}

// A Day has the most denied subjects of a day in UTC, the most denied first.
type Day struct {
	Day      string             `json:"day"`
	Subjects []insight.TopEntry `json:"subjects"`
}

// Read answers a query. An error says that Redis did not answer, or that what it holds is malformed.
func (h *Counter) Read(ctx context.Context, q Query) (*History, error) {
	now := h.opts.Now().UTC()
	if first := now.AddDate(0, 0, 1-Days).Truncate(24 * time.Hour); q.From.Before(first) {
		q.From = first
	}
	if q.To.After(now) {
		q.To = now
	}
	a := &History{From: q.From.UTC(), To: q.To.UTC(), Of: OfInstance, Rules: []RuleHistory{}, Days: []Day{}}
	lock := &h.mu
	if h.opts.Redis != nil {
		a.Of, lock = OfService, &h.reading
	}
	lock.Lock()
	defer lock.Unlock()
	rules := make(map[string]*RuleHistory)
	for at := a.From.Truncate(24 * time.Hour); at.Before(a.To); at = at.AddDate(0, 0, 1) {
		d, err := h.day(ctx, date(at), now)
		if err != nil {
			return nil, err
		}
		if q.Subject == "" {
			d.addHours(rules, at, a, q.Rule)
		}
		if one := d.denied(q.Subject); q.Rule == "" && len(one) > 0 {
			a.Days = append(a.Days, Day{date(at), one})
		}
	}
	for _, r := range rules {
		a.Rules = append(a.Rules, *r)
	}
	slices.SortFunc(a.Rules, func(a, b RuleHistory) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	return a, nil
}

// addHours adds the hours of a day to rules.
func (d *day) addHours(rules map[string]*RuleHistory, begin time.Time, a *History, only string) {
	for n, hours := range d.Rules {
		domain, rule, _ := ruleOf(n) // it was checked
		shown := cmp.Or(rule, OtherRules)
		if only != "" && only != shown {
			continue
		}
		for i, c := range hours {
			at := begin.Add(time.Duration(i) * time.Hour)
			if c == (Count{}) || at.Before(a.From.Truncate(time.Hour)) || !at.Before(a.To) {
				continue
			}
			if rules[n] == nil {
				rules[n] = &RuleHistory{Domain: domain, Rule: shown}
			}
			rules[n].Hours = append(rules[n].Hours, Hour{at, c})
		}
	}
}

// denied returns the most denied subjects, or the one that a query asks for.
func (d *day) denied(only string) (all []insight.TopEntry) {
	for who, denials := range d.Subjects {
		e := insight.TopEntry{Count: denials}
		if e.Identify(who) && (only == "" || e.Digest == only || e.Digest == "" && e.Name == only) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b insight.TopEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), shownSubjects)]
}

// day returns a day of this process, or the day as Redis has or had it less than a minute ago. The
// caller holds mu or reading.
func (h *Counter) day(ctx context.Context, at string, now time.Time) (*day, error) {
	if h.opts.Redis == nil {
		return cmp.Or(h.days[at], new(day)), nil
	}
	if age := now.Sub(h.readAt); age < 0 || age >= every {
		h.read, h.readAt = make(days), now
	}
	if h.read[at] == nil {
		d, err := h.opts.Redis.read(ctx, at)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("the history of %s cannot be read: %w", at, err)
		}
		h.read[at] = d
	}
	return h.read[at], nil
}
