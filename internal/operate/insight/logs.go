package insight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// A LogsQuery chooses logs of all subjects.
type LogsQuery struct {
	// Rules are names of rules. Nil: all rules.
	Rules []string
	// Cursor continues a list; see [Logs.Next].
	Cursor string
}

// Logs are logs of all subjects, with what is used of their limits. Logs of limits that came with
// requests are not among them, and neither are logs in which nothing counts.
type Logs struct {
	// Logs are the logs of one page. A log may be on two pages.
	Logs []LimitUsage `json:"logs"`
	// Next is the cursor of the next page. Empty: this page is the last. A page may have no logs
	// although another one follows.
	Next string `json:"next,omitempty"`
	// Source is where the numbers are from: memory or redis.
	Source string `json:"source"`
	// Instance is the process that answered.
	Instance string    `json:"instance"`
	At       time.Time `json:"at"`
}

// A logsCursor is where a list of logs has come to.
type logsCursor struct {
	// List is the cursor of the store's list. The logs of the call with it whose digest is at
	// most After are listed already.
	List  string `json:"l,omitempty"`
	After []byte `json:"n,omitempty"`
}

var errLogsCursor = &InvalidError{"cursor: the list cannot continue from it; begin again without it"}

// Logs returns logs of all subjects. It charges nothing and writes nothing. The error is a
// [InvalidError], that of ctx, or that of the store.
func (i *Insight) Logs(ctx context.Context, q LogsQuery) (*Logs, error) {
	rs := i.opts.Rules()
	for _, name := range q.Rules {
		if !hasRule(rs, name) || name == rules.OverrideName {
			return nil, badQuery("rule: no rule has the name of entry %d; GET /v1/rules lists the names", slices.Index(q.Rules, name)+1)
		}
	}
	var at logsCursor
	if q.Cursor != "" && !readCursor(q.Cursor, &at) {
		return nil, errLogsCursor
	}
	out := &Logs{Logs: []LimitUsage{}, Source: i.opts.Store, Instance: i.opts.Instance, At: i.opts.Now()}
	begun := time.Now()
	for n := 0; n < pageSteps && len(out.Logs) < pageLimits && time.Since(begun) < pageTime; n++ {
		more, err := i.logs(ctx, rs, &q, &at, out)
		if err != nil || !more {
			return out, err
		}
	}
	out.Next = cursorOf(at)
	return out, nil
}

// logs adds the logs of one call of the store's list to out. It returns false after the last.
func (i *Insight) logs(ctx context.Context, rs *rules.Rules, q *LogsQuery, at *logsCursor, out *Logs) (more bool, err error) {
	var match inspect.Match
	if len(q.Rules) == 1 {
		match.Contains = contains(rs, q.Rules[0])
	}
	within, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	ids, next, err := i.opts.Inspector.List(within, match, at.List)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, inspect.ErrCursor) && at.List != "":
		return false, errLogsCursor
	default:
		return false, fmt.Errorf("the %s store cannot list its logs (%s)", i.opts.Store, causeOf(err))
	}
	var limits []explain.AccountLimit
	whole := true
	for _, found := range after(ids, at.After) {
		if len(limits)+len(out.Logs) >= pageLimits {
			whole = false // the next call lists the rest again
			break
		}
		at.After = found.digest[:]
		l, ok := explain.Log(ctx, rs, explain.AccountQuery{Subjects: i.opts.Subjects, Grants: i.opts.Grants.Active, Now: i.opts.Now}, found.id)
		if !ok || len(q.Rules) > 0 && !slices.ContainsFunc(q.Rules, func(name string) bool { return named(l.Rule, name) }) {
			continue
		}
		limits = append(limits, l)
	}
	if whole {
		at.List, at.After = next, nil
	}
	if err := i.readLogs(ctx, limits, out); err != nil {
		return false, err
	}
	return !whole || next != "", nil
}

// contains returns a text that is in the names of all logs of the rules with a name.
func contains(rs *rules.Rules, name string) (text string) {
	for _, r := range rs.All() {
		if named(r, name) {
			if text != "" {
				return "" // several rules
			}
			text = "}:" + string(r.ID())
		}
	}
	if len(text) > maxSearched {
		return "" // a digest stands for a part of it
	}
	return text
}

// maxSearched bounds the text that names of logs are searched for, in bytes.
const maxSearched = 256

// readLogs adds to out what the store has counted.
func (i *Insight) readLogs(ctx context.Context, limits []explain.AccountLimit, out *Logs) error {
	var ids []window.LogID
	for n := range limits {
		ids = append(ids, limits[n].Log)
	}
	readings, err := i.readAll(ctx, ids)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("the %s store does not answer (%s)", i.opts.Store, causeOf(err))
	}
	for n := range limits {
		u := limitUsage(&limits[n], readings[limits[n].Log])
		if u.Used == 0 {
			continue
		}
		u.Subject = limits[n].Subject
		out.Logs = append(out.Logs, u)
	}
	return nil
}
