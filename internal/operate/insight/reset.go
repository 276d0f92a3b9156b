package insight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

const (
	// maxReason bounds a reason, and maxBy the name of who asks, in bytes.
	maxReason, maxBy = 500, 128
	// maxReset is the most logs of one reset.
	maxReset = 10_000
	// removeAtOnce is how many logs one call of the store removes, if no tag has more.
	removeAtOnce = 480
	// resetTime bounds the time that a reset takes. It goes on if the caller leaves, so that
	// its end is in the audit log. listTime is the part in which it finds the logs, so that the
	// rest is enough to remove those that it has found.
	resetTime, listTime = 30 * time.Second, 20 * time.Second
	// maxRemoved is the length of [Reset.Removed]. Of a reset that is kept, it is keptRemoved.
	maxRemoved, keptRemoved = 100, 20
	// KeptResets is the number of resets that are kept. keptText bounds each of their texts in
	// bytes, but that of the reason, of a problem, and of the query, whose ids have at most
	// tier.MaxText.
	KeptResets, keptText, keptProblem = 200, maxText, 1000
)

// Resets are the last resets of one process or of several, the newest first.
type Resets struct {
	Resets    []Reset   `json:"resets"`
	Instances Instances `json:"instances,omitempty"`
}

// resets are the last resets of this process.
type resets struct {
	mu    sync.Mutex
	count uint64
	last  []Reset // the oldest first
}

// Reset removes the logs of a subject, so that its limits are reset, in this process and in
// every other one that shares the store. It writes a line to the audit log, also if there was
// nothing to remove. If some logs cannot be removed, [Reset.Problem] says so, and
// [Reset.Removed] has the others. The error is a [InvalidError], or that of ctx; nothing was
// removed then.
func (i *Insight) Reset(ctx context.Context, r ResetRequest) (*Reset, error) {
	if err := CheckReason(r.Reason); err != nil {
		return nil, err
	}
	s, err := i.subject(ctx, r.Query)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
	defer cancel()
	listing, stop := context.WithTimeout(within, listTime)
	limits, problem, err := i.logsOf(listing, s)
	stop()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, err
	}
	reset := &Reset{By: shownUpTo(r.By, maxBy), Query: s.query, Reason: r.Reason, Instance: i.opts.Instance, Removed: []LimitUsage{}}
	removed, failed := i.remove(within, limits)
	reset.Problem = join(problem, failed)
	if len(limits) == 0 && s.ByAddress {
		reset.Problem = join(reset.Problem, countsByAddress)
	}
	for n := range limits {
		reading := removed[limits[n].Log]
		if reading == nil || reading.Contents.Bytes == 0 {
			continue
		}
		if reset.Logs++; len(reset.Removed) < maxRemoved {
			reset.Removed = append(reset.Removed, limitUsage(&limits[n], reading))
		}
	}
	if reset.Logs == 0 && s.query.Subject != "" && !i.recognizes(s) {
		reset.Query.Subject = hiddenValue
		reset.Problem = join(reset.Problem, i.unrecognized(s))
	}
	reset.At = i.opts.Now()
	i.keep(reset)
	i.audit(reset)
	if i.opts.Removed != nil {
		i.opts.Removed()
	}
	return reset, nil
}

// CheckReason returns an [InvalidError] if a reason of a reset is no readable line.
func CheckReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return badQuery("reason: it is missing; say why, for the audit log")
	case len(reason) > maxReason:
		return badQuery("reason: it has %d bytes, and at most %d are allowed", len(reason), maxReason)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return badQuery("reason: it is not one line of printable text")
	}
	return nil
}

// logsOf returns all limits of a subject whose logs have a name, and says what is missing.
func (i *Insight) logsOf(ctx context.Context, s *subject) (limits []explain.AccountLimit, problem string, err error) {
	w, err := i.walk(s, "")
	if err != nil {
		return nil, "", err
	}
	listed := make(map[window.LogID]bool)
	for w.Stage < atMissing {
		step, err := w.step(ctx, math.MaxInt)
		if err != nil && ctx.Err() == nil {
			return limits, "the store cannot list all of its logs, so some may remain: reset again", nil
		}
		for _, l := range step {
			if hasLog(&l) && !listed[l.Log] {
				listed[l.Log] = true
				limits = append(limits, l)
			}
		}
		switch {
		case ctx.Err() != nil:
			return limits, "the store took too long to list its logs, so some may remain: reset again", nil
		case len(limits) > maxReset:
			return limits[:maxReset], fmt.Sprintf("the subject has more than %d logs: reset again to remove the others", maxReset), nil
		}
	}
	if w.problem != nil {
		problem = i.storeName() + " cannot list its logs, so some may remain: reset again once it answers" + seeWhy
	}
	return limits, problem, nil
}

// remove removes logs from the store, and what this process has counted in them by itself. It
// returns what was in them, and says what could not be removed.
func (i *Insight) remove(ctx context.Context, limits []explain.AccountLimit) (removed map[window.LogID]*inspect.Reading, problem string) {
	removed = make(map[window.LogID]*inspect.Reading)
	if len(limits) == 0 {
		return removed, ""
	}
	ids := make([]window.LogID, len(limits))
	for n := range limits {
		ids[n] = limits[n].Log
	}
	slices.SortStableFunc(ids, func(a, b window.LogID) int { return strings.Compare(window.HashTag(a.Key), window.HashTag(b.Key)) })
	var cause error
	for begin := 0; begin < len(ids); {
		end := begin + 1
		for end < len(ids) && (end < begin+removeAtOnce || window.HashTag(ids[end].Key) == window.HashTag(ids[end-1].Key)) {
			end++
		}
		readings, err := i.opts.Inspector.Remove(ctx, ids[begin:end])
		cause = cmp.Or(cause, err)
		for n := range readings {
			removed[readings[n].ID] = &readings[n]
		}
		begin = end
	}
	if left := len(ids) - len(removed); cause != nil {
		problem = fmt.Sprintf("%d of %d logs may not be removed: %s is unavailable; reset again once it answers%s", left, len(ids), i.storeName(), seeWhy)
	}
	return removed, join(problem, i.removeLocal(ctx, ids, removed))
}

// removeLocal removes what this process has counted by itself. Of logs that the store did not
// return, it adds that to removed.
func (i *Insight) removeLocal(ctx context.Context, ids []window.LogID, removed map[window.LogID]*inspect.Reading) (problem string) {
	if i.opts.Local == nil {
		return ""
	}
	readings, err := i.opts.Local.Remove(ctx, ids)
	for n := range readings {
		if r := &readings[n]; removed[r.ID] == nil && r.Contents.Bytes > 0 {
			removed[r.ID] = r
		}
	}
	if err != nil {
		return "what this instance has counted by itself may not be removed (" + causeOf(err) + ")"
	}
	return ""
}

// keep keeps a reset for [Insight.Audit], and gives it its number.
func (i *Insight) keep(r *Reset) {
	kept := *r
	// Copies, because a text can be a part of a longer one, and of a generation of the rules.
	kept.By, kept.Reason, kept.Problem = shown(r.By), shownUpTo(r.Reason, maxReason), shownUpTo(r.Problem, keptProblem)
	for _, text := range []*string{&kept.Query.Subject, &kept.Query.Address, &kept.Query.Digest, &kept.Query.Descriptor} {
		*text = shownUpTo(*text, tier.MaxText)
	}
	kept.Query.Rule, kept.Query.Cursor = shown(kept.Query.Rule), ""
	kept.Removed = slices.Clone(r.Removed[:min(len(r.Removed), keptRemoved)])
	for n := range kept.Removed {
		l := &kept.Removed[n]
		l.History, l.ReplacedBy, l.Log = nil, nil, ""
		for _, text := range []*string{&l.Domain, &l.Rule, &l.Path, &l.Values, &l.Tier} {
			*text = shownUpTo(*text, keptText)
		}
	}
	i.resets.mu.Lock()
	defer i.resets.mu.Unlock()
	i.resets.count++
	r.ID, kept.ID = i.resets.count, i.resets.count
	if len(i.resets.last) == KeptResets {
		copy(i.resets.last, i.resets.last[1:])
		i.resets.last = i.resets.last[:KeptResets-1]
	}
	i.resets.last = append(i.resets.last, kept)
}

func (i *Insight) audit(r *Reset) {
	if i.opts.Audit == nil {
		return
	}
	q := &r.Query
	fields := Texts("by", r.By, "subject", q.Subject, "address", q.Address, "digest", q.Digest, "descriptor", q.Descriptor, "rule", q.Rule, "reason", r.Reason, "problem", r.Problem)
	i.opts.Audit.Info("an operator has reset limits", append(fields, zap.Uint64("id", r.ID), zap.Int("logs", r.Logs))...)
}

// Audit returns the last resets that this process did, the newest first: up to 200. Each has
// up to 20 of the logs that were removed, without their history, their names and the rules that
// replace theirs. Long texts are cut; the audit log has all of them.
func (i *Insight) Audit() []Reset {
	i.resets.mu.Lock()
	defer i.resets.mu.Unlock()
	last := slices.Clone(i.resets.last)
	slices.Reverse(last)
	return last
}
