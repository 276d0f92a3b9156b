// Package sharedlist has lists of records that all instances share, such as grants: a [List] keeps its
// records in a [Document], which is in Redis, or in the memory of the process ([Memory]). Each instance
// looks for another version of the document twice a second. If Redis is unavailable, the last known
// records stay until their end. Each record ends by itself.
package sharedlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// every is the time between two looks at the document.
	every = 500 * time.Millisecond
	// tries is how often a change begins again because another instance has changed the list.
	tries = 16
	// pause is the longest time between the first two of them. The next ones are longer by as much.
	pause = 5 * time.Millisecond
)

// A Document is a text that instances replace as a whole: a redisstore.Document.
type Document interface {
	// Load returns the text and its version, or no text if it has the version known.
	Load(ctx context.Context, known string) (version string, data []byte, err error)
	// Swap replaces the text if it has a version.
	Swap(ctx context.Context, before string, data []byte, expires time.Duration) (version string, swapped bool, err error)
}

// Options of a [List]. All are required.
type Options[T any] struct {
	// Name says in messages what the records are, in the plural.
	Name     string
	Document Document
	// Max is the largest number of records.
	Max int
	// Parse reads a record of the document, which any program may have written.
	Parse func([]byte) (*T, error)
	// Until returns when a record ends.
	Until func(*T) time.Time
	// Changed gets the records at each change. They are immutable.
	Changed func([]*T)
	Now     func() time.Time
	Log     *zap.Logger
}

// A List is a list of records. Its methods are safe for concurrent use.
type List[T any] struct {
	opts    Options[T]
	calling sync.Mutex // locked while the document is read and replaced; guards the fields up to mu
	version string
	bad     error  // what is wrong with that version
	problem string // that the log has
	mu      sync.Mutex
	all     []*T
}

// New returns a list, which is empty until [List.Run] or another method looks at the document.
func New[T any](o Options[T]) *List[T] { return &List[T]{opts: o} }

// Run follows the document until ctx ends, and then returns nil.
func (l *List[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		l.calling.Lock()
		_, _ = l.refresh(ctx) // the log has the error
		l.calling.Unlock()
		l.All() // those that have ended go
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// refresh looks at the document, and returns its version. If it cannot read the document, the last
// records stay.
func (l *List[T]) refresh(ctx context.Context) (version string, err error) {
	version, data, err := l.opts.Document.Load(ctx, l.version)
	switch {
	case err != nil && version == "":
		l.report(ctx, err)
		return "", err
	case version == l.version:
		l.report(ctx, l.bad)
		return version, nil
	}
	var raw []json.RawMessage
	if err == nil && version != "" {
		if err = json.Unmarshal(data, &raw); err != nil || len(raw) > l.opts.Max {
			err = fmt.Errorf("it is not a list of at most %d records", l.opts.Max)
		}
	}
	l.version, l.bad = version, err
	if err == nil {
		all := make([]*T, 0, len(raw))
		for i, one := range raw {
			record, err := l.opts.Parse(one)
			if err != nil {
				l.bad = fmt.Errorf("record %d: %w", i+1, err)
				continue
			}
			all = append(all, record)
		}
		l.use(all)
	}
	l.report(ctx, l.bad)
	return version, nil
}

// report logs a problem once.
func (l *List[T]) report(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.problem && ctx.Err() == nil {
		l.opts.Log.Warn("the "+l.opts.Name+" that instances share cannot be read, or not all of them; those that are known stay until they end; check that Redis works, and that no other program writes there",
			zap.Error(err))
	}
	l.problem = text
}

// use makes records those of the list.
func (l *List[T]) use(all []*T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = all
	l.opts.Changed(all)
}

// All returns the records that have not ended. They are immutable.
func (l *List[T]) All() []*T {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Now()
	ended := func(r *T) bool { return !now.Before(l.opts.Until(r)) }
	if slices.ContainsFunc(l.all, ended) {
		l.all = slices.DeleteFunc(slices.Clone(l.all), ended)
		l.opts.Changed(l.all)
	}
	return slices.Clone(l.all)
}

var errBusy = errors.New("other instances change the list all the time: try again")

// Change replaces the records by those that change returns, in all instances. It may call change several
// times, with the present records. An error of change changes nothing.
func (l *List[T]) Change(ctx context.Context, change func([]*T) ([]*T, error)) error {
	l.calling.Lock()
	defer l.calling.Unlock()
	for n := range tries {
		before, err := l.refresh(ctx)
		if err != nil {
			return err
		}
		all, err := change(l.All())
		if err != nil {
			return err
		}
		data, err := json.Marshal(all)
		if err != nil {
			return err
		}
		now, last := l.opts.Now(), time.Duration(0)
		for _, r := range all {
			last = max(last, l.opts.Until(r).Sub(now))
		}
		version, swapped, err := l.opts.Document.Swap(ctx, before, data, last)
		if err != nil {
			return err
		}
		if swapped {
			l.version, l.bad = version, nil
			l.use(all)
			return nil
		}
		select { // so that instances that change it at once do not meet again
		case <-time.After(rand.N(time.Duration(n+1) * pause)): //nolint:gosec // spreads instances, hides nothing
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errBusy
}

// Memory is the document of a single process. The zero value is empty.
type Memory struct {
	mu      sync.Mutex
	version int
	data    []byte
}

// Load implements [Document].
func (m *Memory) Load(_ context.Context, known string) (version string, data []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.version == 0 || strconv.Itoa(m.version) == known {
		return known, nil, nil
	}
	return strconv.Itoa(m.version), m.data, nil
}

// Swap implements [Document].
func (m *Memory) Swap(_ context.Context, before string, data []byte, _ time.Duration) (version string, swapped bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.version > 0 && strconv.Itoa(m.version) != before {
		return "", false, nil
	}
	m.version++
	m.data = data
	return strconv.Itoa(m.version), true, nil
}
