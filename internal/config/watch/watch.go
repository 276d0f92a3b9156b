package watch

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
)

// Options say what a [Watcher] watches.
type Options struct {
	// Paths are files and directories. A directory stands for the files in it and below that
	// Which says.
	Paths []string
	Which files.Which
	// Interval is how often the watcher looks at the paths. Zero: a second. A look that takes
	// long is followed by a wait of a hundred times as long, at most a minute.
	Interval time.Duration
	// Settle is how long the files must stay unchanged before a change counts, so that a file is
	// not read while it is written. Zero: 100 ms.
	Settle time.Duration
}

const (
	defaultInterval = time.Second
	defaultSettle   = 100 * time.Millisecond
	// maxSettles bounds the wait for a file that is written continuously.
	maxSettles = 10
	// lookPause bounds the time that the watcher looks: a look is followed by a pause this many times as
	// long.
	lookPause = 100
	// maxWait bounds the wait after a look that took long, such as one at a file server that hung.
	maxWait = time.Minute
)

// A Watcher calls back when files may have changed: written in place, renamed over, reached
// through another symbolic link (as Kubernetes swaps ConfigMaps), removed, or restored. It
// compares names, sizes, times of modification and identities with those before the last
// callback. It does not compare the content. Events of a file system would be sooner, but some
// file systems have none.
//
// [New] makes a watcher; the zero value is not usable. All methods are safe for concurrent
// use, but Run runs once.
type Watcher struct {
	o       Options
	trigger chan struct{}
	last    sight // what the watcher saw before the last callback
}

// New returns a watcher that knows the files as they are now. Call it before the first load,
// so that it notices a change in between.
func New(o Options) *Watcher {
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	return &Watcher{o: o, trigger: make(chan struct{}, 1), last: look(o)}
}

// Trigger makes Run call back although nothing changed, for SIGHUP. It does not wait. While a
// trigger is pending, more triggers have no effect.
func (w *Watcher) Trigger() {
	select {
	case w.trigger <- struct{}{}:
	default:
	}
}

// Run watches until ctx is done, and returns nil. It calls changed, never twice at a time, when
// a file may have changed.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.trigger:
			w.last = look(w.o)
			changed()
		case <-timer.C:
			began := time.Now()
			now := look(w.o)
			took := time.Since(began)
			if !now.equal(w.last) {
				if w.last = w.settled(ctx, now); ctx.Err() != nil {
					return nil
				}
				changed()
			}
			timer.Reset(max(w.o.Interval, min(lookPause*took, maxWait)))
		}
	}
}

// settled returns what a watcher sees once the files no longer change, or at a trigger.
func (w *Watcher) settled(ctx context.Context, now sight) sight {
	for range maxSettles {
		select {
		case <-time.After(w.o.Settle):
		case <-w.trigger:
			return look(w.o)
		case <-ctx.Done():
			return now
		}
		before := now
		if now = look(w.o); now.equal(before) {
			break
		}
	}
	return now
}

// sight is the result of a look: the files, with symbolic links followed.
type sight []seen

type seen struct {
	path string
	info os.FileInfo // nil: missing
}

// look looks at the paths. A file that cannot be read counts as missing.
func look(o Options) (s sight) {
	see := func(path string) {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		s = append(s, seen{path, info})
	}
	for _, p := range o.Paths {
		if info, err := os.Stat(p); err != nil || !info.IsDir() {
			see(p)
			continue
		}
		listed := files.List([]string{p}, o.Which)
		for _, problem := range listed.Failed {
			s = append(s, seen{path: problem.File})
		}
		for _, f := range listed.Files {
			see(f)
		}
	}
	return s
}

func (s sight) equal(other sight) bool {
	return slices.EqualFunc(s, other, func(a, b seen) bool { return a.path == b.path && files.Same(a.info, b.info) })
}
