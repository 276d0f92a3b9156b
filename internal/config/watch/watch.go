package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/slidegate/slidegate/internal/config/files"
)

// Options say what a [Watcher] watches.
type Options struct {
	// Paths are files and directories. A directory stands for the files in it and below that
	// Which says.
	Paths []string
	Which files.Which
	// Interval is how often the watcher looks at the paths, in addition to events: some
	// file systems send none. Zero: events only.
	Interval time.Duration
	// Debounce is how long the files must stay unchanged before a change counts, so that
	// a file is not read while it is written. Zero: 100 ms.
	Debounce time.Duration
	// OnWarning is called by Run, at most once, if the file system gives no
	// events. Nil: no call.
	OnWarning func(error)
}

const (
	defaultDebounce = 100 * time.Millisecond
	// maxDebounces bounds the wait for a file that is written continuously.
	maxDebounces = 10
	// fallbackInterval is used if the file system gives no events and no interval is set.
	fallbackInterval = 5 * time.Second
)

// A Watcher calls back when files may have changed: written in place, renamed over, reached
// through another symbolic link (as Kubernetes swaps ConfigMaps), removed, or restored. It
// compares names, sizes, times of modification and identities with those before the last
// callback. It does not compare the content.
//
// [New] makes a watcher; the zero value is not usable. All methods are safe for concurrent
// use, but Run runs once.
type Watcher struct {
	o       Options
	trigger chan struct{}
	report  func() // that a file may have changed; set by Run
	last    sight  // what the watcher saw before the last callback

	openNotify func() (*fsnotify.Watcher, error)
	notify     *fsnotify.Watcher      // nil: no events
	watched    map[string]os.FileInfo // directories by path, as they were when added
	warned     bool

	timer      *time.Timer // the next look
	ticker     *time.Ticker
	firstEvent time.Time // the first event that the next look is for; zero: no look is due
}

// New returns a watcher that knows the files as they are now. Call it before the first load,
// so that it notices a change in between.
func New(o Options) *Watcher {
	if o.Debounce <= 0 {
		o.Debounce = defaultDebounce
	}
	return &Watcher{
		o:          o,
		trigger:    make(chan struct{}, 1),
		last:       look(o),
		openNotify: fsnotify.NewWatcher,
		watched:    make(map[string]os.FileInfo),
	}
}

// Trigger makes Run call back although nothing changed, for SIGHUP. It does not wait. While a
// trigger is pending, more triggers have no effect.
func (w *Watcher) Trigger() {
	select {
	case w.trigger <- struct{}{}:
	default:
	}
}

// Run watches until ctx is done, and returns nil. Without events it looks on the interval.
// It calls changed, never twice at a time, when a file may have changed.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	w.report = changed
	w.timer = time.NewTimer(time.Hour)
	w.timer.Stop()
	defer w.timer.Stop()
	w.ticker = time.NewTicker(max(w.o.Interval, time.Millisecond))
	defer w.ticker.Stop()
	if w.o.Interval <= 0 || len(w.o.Paths) == 0 {
		w.ticker.Stop()
	}
	if len(w.o.Paths) > 0 {
		w.open()
		if w.notify != nil {
			defer func() { _ = w.notify.Close() }()
		}
		w.look()
	}
	var events chan fsnotify.Event
	var failures chan error
	if w.notify != nil {
		events, failures = w.notify.Events, w.notify.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.trigger:
			w.last = look(w.o)
			w.report()
		case e, ok := <-events:
			if !ok {
				events = nil
				w.eventsFailed(errors.New("closed"))
			} else if e.Op != fsnotify.Chmod {
				w.postpone()
			}
		case err, ok := <-failures:
			if !ok {
				failures = nil
			} else if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.eventsFailed(err)
			}
			// The watcher lost events.
			w.postpone()
		case <-w.ticker.C:
			if w.firstEvent.IsZero() {
				w.look()
			}
		case <-w.timer.C:
			w.look()
		}
	}
}

// postpone sets the next look to one debounce from now.
func (w *Watcher) postpone() {
	now := time.Now()
	if w.firstEvent.IsZero() {
		w.firstEvent = now
	}
	at := now.Add(w.o.Debounce)
	if latest := w.firstEvent.Add(maxDebounces * w.o.Debounce); at.After(latest) {
		at = latest
	}
	w.timer.Reset(at.Sub(now))
}

// look looks at the files and calls back if they have changed.
func (w *Watcher) look() {
	now := look(w.o)
	if w.follow(now.dirs) {
		// A change between the look and the new watch gave no event.
		now = look(w.o)
	}
	if now.equal(w.last) {
		w.firstEvent = time.Time{}
		return
	}
	// If the interval found the change, the file may be half written.
	fresh := now.age() < w.o.Debounce
	if fresh && (w.firstEvent.IsZero() || time.Since(w.firstEvent) < maxDebounces*w.o.Debounce) {
		w.postpone()
		return
	}
	w.firstEvent = time.Time{}
	w.last = now
	w.report()
}

func (w *Watcher) open() {
	notify, err := w.openNotify()
	if err != nil {
		w.eventsFailed(err)
		return
	}
	w.notify = notify
}

// eventsFailed makes the watcher look on an interval, and warns once.
func (w *Watcher) eventsFailed(err error) {
	if w.warned {
		return
	}
	w.warned = true
	interval := w.o.Interval
	if interval <= 0 {
		interval = fallbackInterval
		w.ticker.Reset(interval)
	}
	if w.o.OnWarning != nil {
		w.o.OnWarning(fmt.Errorf("no events from the file system, looking every %v instead: %w", interval, err))
	}
}

// follow watches exactly the given directories. added reports whether one of them is new.
func (w *Watcher) follow(dirs map[string]bool) (added bool) {
	if w.notify == nil {
		return false
	}
	for dir, was := range w.watched {
		is, err := os.Stat(dir)
		if err == nil && os.SameFile(was, is) && dirs[dir] {
			continue
		}
		// An error means that the watch has ended with its directory.
		_ = w.notify.Remove(dir)
		delete(w.watched, dir)
	}
	for dir := range dirs {
		if _, ok := w.watched[dir]; ok {
			continue
		}
		info, err := os.Stat(dir)
		if err == nil {
			err = w.notify.Add(dir)
		}
		switch {
		case err == nil:
			w.watched[dir] = info
			added = true
		case errors.Is(err, os.ErrNotExist):
			// The directory is gone since the look. Its parent is watched.
		default:
			w.eventsFailed(err)
		}
	}
	return added
}

// sight is the result of a look.
type sight struct {
	files []seen
	dirs  map[string]bool // the directories whose events report a change
}

// seen is one file, with symbolic links followed.
type seen struct {
	path string
	info os.FileInfo // nil: missing
}

// look looks at the paths. A file that cannot be read counts as missing.
func look(o Options) sight {
	s := sight{dirs: make(map[string]bool)}
	for _, p := range o.Paths {
		info, err := os.Stat(p)
		if err != nil || !info.IsDir() {
			s.file(p)
			continue
		}
		s.dir(s.resolve(p))
		listed := files.List([]string{p}, o.Which)
		for _, way := range listed.Ways {
			s.dir(s.resolve(way))
		}
		for _, problem := range listed.Failed {
			s.files = append(s.files, seen{path: problem.File})
		}
		for _, f := range listed.Files {
			s.file(f)
		}
	}
	return s
}

func (s *sight) file(path string) {
	s.resolve(path)
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	s.files = append(s.files, seen{path, info})
}

// maxLinks is how many symbolic links are followed for one path. Linux has the same bound.
const maxLinks = 40

// resolve returns a path without symbolic links. It adds the directory of every link and of
// the target to dirs: an event in any of them may change the target.
func (s *sight) resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	for range maxLinks {
		link, rest := firstLink(path)
		if link == "" {
			break
		}
		s.dir(filepath.Dir(link))
		target, err := os.Readlink(link)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, rest)
	}
	s.dir(filepath.Dir(path))
	return path
}

// firstLink returns the first part of an absolute path that is a symbolic link, and the rest
// of the path.
func firstLink(path string) (link, rest string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != filepath.Separator {
			continue
		}
		info, err := os.Lstat(path[:i])
		if err != nil {
			return "", ""
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return path[:i], path[i:]
		}
	}
	return "", ""
}

// dir adds a directory to dirs, or the nearest existing one above it.
func (s *sight) dir(dir string) {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return
		}
		dir = up
	}
	s.dirs[dir] = true
}

func (s sight) equal(other sight) bool {
	return slices.EqualFunc(s.files, other.files, func(a, b seen) bool {
		return a.path == b.path && files.Same(a.info, b.info)
	})
}

// age returns how long ago the youngest file was written. A time in the future comes from the
// clock of another machine, and is ignored.
func (s sight) age() time.Duration {
	youngest := time.Duration(1<<63 - 1)
	for _, f := range s.files {
		if f.info == nil {
			continue
		}
		if age := time.Since(f.info.ModTime()); age >= 0 {
			youngest = min(youngest, age)
		}
	}
	return youngest
}
