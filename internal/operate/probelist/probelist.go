// Package probelist starts probes in all instances, and answers what they saw: a [List]. Its records are
// those of a sharedlist, and have a digest in place of the key.
package probelist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/apikey"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/sharedlist"
)

// Options of a [List]. All are required.
type Options struct {
	Document sharedlist.Document
	Secrets  *tier.Secrets
	Instance string // the name of this process in calls
	Now      func() time.Time
	Log      *zap.Logger
	Audit    *zap.Logger // gets a line for each probe
}

// A List has the probes of all instances. It is safe for concurrent use.
type List struct {
	opts   Options
	active *probe.Active
	shared *sharedlist.List[probe.Probe]
}

// New returns a list, which is empty until [List.Follow] or another method looks at the document.
func New(o Options) *List {
	l := &List{opts: o, active: probe.NewActive(o.Secrets, o.Instance, o.Now)}
	l.shared = sharedlist.New(sharedlist.Options[probe.Probe]{
		Name: "probes", Document: o.Document, Max: probe.MaxProbes, Now: o.Now, Log: o.Log,
		Parse:   func(data []byte) (*probe.Probe, error) { return probe.Parse(data, o.Now()) },
		Until:   func(p *probe.Probe) time.Time { return p.Until.Add(probe.Keep) },
		Changed: l.active.Store,
	})
	return l
}

// Active returns what denies calls.
func (l *List) Active() *probe.Active { return l.active }

// Follow follows the document until ctx ends, and then returns nil.
func (l *List) Follow(ctx context.Context) error { return l.shared.Run(ctx) }

// Write writes what this instance sees into the document until ctx ends, and then returns nil.
func (l *List) Write(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-l.active.Seen():
			batch := []probe.Seen{first}
			for more := true; more && len(batch) < probe.MaxCalls; {
				select {
				case one := <-l.active.Seen():
					batch = append(batch, one)
				default:
					more = false
				}
			}
			err := l.shared.Change(ctx, func(all []*probe.Probe) ([]*probe.Probe, error) { return add(all, batch), nil })
			if err != nil && ctx.Err() == nil {
				l.opts.Log.Warn("calls that a probe has denied are not written to the store; start another probe", zap.Error(err))
			}
		}
	}
}

// add returns the probes with further calls. The earlier calls stay if there are too many.
func add(all []*probe.Probe, batch []probe.Seen) []*probe.Probe {
	for i, p := range all {
		now := *p
		now.Calls = slices.Clone(p.Calls)
		for _, s := range batch {
			if s.ID == p.ID && len(now.Calls) < probe.MaxCalls {
				now.Calls = append(now.Calls, s.Call)
			}
		}
		all[i] = &now
	}
	return all
}

// A Request starts a probe.
type Request struct {
	Key     string `json:"key" doc:"a random text of at least 16 characters, and no customer's key"`
	Seconds int    `json:"seconds" doc:"from 1 to 60"`
	By      string `json:"-"` // who asks
}

// Start starts a probe, and writes a line to the audit log. Other instances have it within a second. The
// error is an [insight.InvalidError], or that of the store.
func (l *List) Start(ctx context.Context, r Request) (*probe.Probe, error) {
	switch most := int(probe.MaxTime / time.Second); {
	case len(r.Key) < probe.MinKey || !apikey.ValidKey(r.Key) || l.opts.Secrets.Key(r.Key) != r.Key:
		return nil, invalid("key: write %d to %d characters of visible ASCII", probe.MinKey, apikey.MaxKey)
	case r.Seconds < 1 || r.Seconds > most:
		return nil, invalid("seconds: write a whole number from 1 to %d", most)
	}
	now := l.opts.Now()
	p := probe.New(l.opts.Secrets.Digest(r.Key), now.Add(time.Duration(r.Seconds)*time.Second))
	err := l.shared.Change(ctx, func(all []*probe.Probe) ([]*probe.Probe, error) {
		if slices.ContainsFunc(all, func(o *probe.Probe) bool { return o.Digest == p.Digest && now.Before(o.Until) }) {
			return nil, invalid("a probe with this key runs already: use another key")
		}
		if len(all) >= probe.MaxProbes {
			ended := slices.IndexFunc(all, func(o *probe.Probe) bool { return !now.Before(o.Until) })
			if ended < 0 {
				return nil, invalid("%d probes run, which is the most: try again in a minute", probe.MaxProbes)
			}
			all = slices.Delete(all, ended, ended+1)
		}
		return append(all, p), nil
	})
	if err != nil {
		return nil, err
	}
	l.opts.Audit.Info("an operator has started a probe", zap.String("id", p.ID), zap.String("by", r.By), zap.Int("seconds", r.Seconds))
	return p, nil
}

// ErrNone is the error of [List.Get] for an id that no probe has.
var ErrNone = errors.New("no probe has this id: it ended more than five minutes ago, a later probe replaced it, or this instance has it in a second")

// Get returns a probe with the calls that all instances have denied.
func (l *List) Get(id string) (*probe.Probe, error) {
	all := l.shared.All()
	if i := slices.IndexFunc(all, func(p *probe.Probe) bool { return p.ID == id }); i >= 0 {
		return all[i], nil
	}
	return nil, ErrNone
}

func invalid(format string, args ...any) error {
	return &insight.InvalidError{Text: fmt.Sprintf(format, args...)}
}
