package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// EngineOptions of an [Engine]. Rules and Describer are required.
type EngineOptions struct {
	Rules     *rules.Rules
	Describer Describer
	// Locations has the location of each rule, in the order of Rules.All: file:line.
	Locations []string
	// Against are the rules of now. Nil: the report compares nothing.
	Against *rules.Rules
	// MaxBytes bounds the logs, as store.memory.max_bytes does. Zero: no bound.
	MaxBytes int64
	// WhatIf chooses the rules whose limits are varied, by their names. Nil: none.
	WhatIf func(rule string) bool
	// Decisions gets each decision. Nil disables it.
	Decisions *Decisions
	// Files are the names of the logs, for errors.
	Files []string
}

// An Engine decides the requests of logs, in the order of their times, and reports what the rules
// did. It is not safe for concurrent use. Close it after use.
type Engine struct {
	o        EngineOptions
	now      *decider
	was      *decider // nil without Against
	changed  Comparison
	newly    *tops // denied, and freed
	freed    *tops
	counts   Counts
	from, to time.Duration // of the requests, since 1970
	series   Series
	sample   sample
	wants    []accesslog.Attribute
	endings  endings
	number   uint64 // of the request, from 1

	questions []Question // what Envoy asks about the request
}

// NewEngine returns an engine that has decided nothing.
func NewEngine(o EngineOptions) *Engine {
	e := &Engine{o: o, wants: slices.Clone(o.Describer.Wants()), sample: sample{most: maxRemembered}, series: Series{Requests: []uint64{}, Denied: []uint64{}}}
	e.now = newDecider(o.Rules, o.MaxBytes, &e.sample)
	e.now.varies = o.WhatIf
	if e.endings.duration = slices.Index(e.wants, accesslog.Duration); e.endings.duration < 0 {
		e.endings.duration = len(e.wants)
		e.wants = append(e.wants, accesslog.Duration)
	}
	if o.Against != nil {
		e.was, e.newly, e.freed = newDecider(o.Against, o.MaxBytes, &e.sample), newTops(), newTops()
	}
	return e
}

// Logs decides the requests of logs with a new engine. If it also returns an error, the report is of a
// part of the requests.
func Logs(ctx context.Context, o EngineOptions, logs accesslog.Options) (*Report, error) {
	e := NewEngine(o)
	defer e.Close()
	logs.Want, logs.Done = e.Wants(), ctx.Done()
	reader, err := accesslog.Open(logs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }() // it was read to its end, or is given up
	failed := e.Run(ctx, reader)
	stats := reader.Stats()
	if failed != nil && stats.Lines == 0 && ctx.Err() == nil {
		return nil, failed
	}
	report, err := e.Report(context.WithoutCancel(ctx), stats)
	if err != nil {
		return nil, err
	}
	report.Partial = failed != nil
	if failed != nil && ctx.Err() != nil {
		failed = errors.New("interrupted; the report is of the requests before")
	}
	return report, failed
}

// Wants returns the attributes of the values of records.
func (e *Engine) Wants() []accesslog.Attribute { return e.wants }

// Close frees what the engine holds.
func (e *Engine) Close() {
	for _, s := range []*decider{e.now, e.was} {
		if s != nil {
			_ = s.timeline.Close() // never fails
		}
	}
}

// A Source gives records, the earliest first, and io.EOF at the end.
type Source interface {
	Next() (*accesslog.Record, error)
}

// cancelEvery is how many requests are decided between two looks at the context.
const cancelEvery = 1024

// Run decides all requests of a source. If ctx is done before the end, Run returns its error, and the
// report is of the requests so far.
func (e *Engine) Run(ctx context.Context, from Source) error {
	deciding := context.WithoutCancel(ctx) // a request is decided whole
	for looked := 0; ; looked++ {
		if looked%cancelEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := e.Add(deciding, r); err != nil {
			return fmt.Errorf("%s: %w", e.locationOf(r), err)
		}
	}
}

// locationOf names the line of a record.
func (e *Engine) locationOf(r *accesslog.Record) string {
	if r.File < len(e.o.Files) {
		return fmt.Sprintf("%s:%d", e.o.Files[r.File], r.Line)
	}
	return fmt.Sprintf("line %d", r.Line)
}

// Add decides a request. An error says why the rules cannot decide it, or that its decision cannot
// be written.
func (e *Engine) Add(ctx context.Context, r *accesslog.Record) error {
	if err := e.end(ctx, r.At); err != nil {
		return err
	}
	e.number++
	e.questions = e.o.Describer.Describe(e.questions[:0], r)
	if e.counts.Requests == 0 || r.At < e.from {
		e.from = r.At
	}
	e.to = max(e.to, r.At)
	e.counts.Requests++
	if len(e.questions) == 0 {
		e.counts.NoQuestion++
	}
	got, err := e.now.request(ctx, e, r)
	if err != nil {
		return err
	}
	e.series.Count(r.At, !got.allowed)
	e.now.sum(&got, r.At)
	var was outcome
	if e.was != nil {
		if was, err = e.was.request(ctx, e, r); err != nil {
			return err
		}
		e.was.sum(&was, r.At)
		switch {
		case got.allowed == was.allowed:
		case was.allowed:
			e.changed.NewlyDenied++
			e.newly.add(got.match.caller, r.At, got.subject)
		default:
			e.changed.Freed++
			e.freed.add(was.match.caller, r.At, was.subject)
		}
	}
	e.sample.bound(r.At.Microseconds())
	if e.o.Decisions != nil {
		return e.o.Decisions.add(r, &got, &was, e.was != nil)
	}
	return nil
}

// Report returns what the rules did so far. It decides first what Envoy asks at the ends of
// requests that are still open. logs says what was read.
func (e *Engine) Report(ctx context.Context, logs accesslog.Stats) (*Report, error) {
	if err := e.end(ctx, math.MaxInt64); err != nil {
		return nil, err
	}
	n, counts := e.now, e.counts
	counts.Allowed, counts.Denied, counts.Unlimited, counts.UnknownSubjects = n.allowed, n.denied, n.unlimited, n.unknown
	r := &Report{Counts: counts, Times: e.series, Logs: logs, Evicted: n.timeline.store.Stats().Evicted, LogsFraction: e.sample.fraction(), Subjects: n.tally.top.rows()}
	if r.Requests > 0 {
		r.From, r.To = at(e.from), at(e.to)
	}
	r.Unreported = append(e.o.Describer.Unreported(), e.endings.unreported()...)
	r.Rules, r.Totals = n.tally.report(e.o.Locations)
	r.Near = n.tally.near.n
	if e.was != nil {
		c := e.changed
		c.Allowed, c.Denied, c.NewlyDeniedTop, c.FreedTop = e.was.allowed, e.was.denied, e.newly.rows(), e.freed.rows()
		r.Against = &c
	}
	return r, nil
}
