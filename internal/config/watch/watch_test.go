package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
)

// deadline is how long a test waits for what must happen. It is long, so that
// only what never happens reaches it.
const deadline = 20 * time.Second

// watching is a watcher that runs, and the calls that it made.
type watching struct {
	*Watcher
	changes  chan struct{}
	warnings chan error
}

// start runs a watcher until the end of the test. Callbacks wait for the test to
// take them, so none is missed and none is made up.
func start(t *testing.T, o Options, open func() (*fsnotify.Watcher, error)) *watching {
	t.Helper()
	w := &watching{changes: make(chan struct{}), warnings: make(chan error, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	o.Debounce = 20 * time.Millisecond
	report := func() {
		select {
		case w.changes <- struct{}{}:
		case <-ctx.Done():
		}
	}
	o.OnWarning = func(err error) { w.warnings <- err }
	w.Watcher = New(o)
	if open != nil {
		w.openNotify = open
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, report) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
	})
	return w
}

// changed waits for the next callback.
func (w *watching) changed(t *testing.T, what string) {
	t.Helper()
	select {
	case <-w.changes:
	case err := <-w.warnings:
		t.Fatalf("after %s: warning %v", what, err)
	case <-time.After(deadline):
		t.Fatalf("after %s: no callback", what)
	}
}

// noEvents is a system that has no watches left.
func noEvents() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }

// ways are the two ways to notice a change, each alone.
func ways(t *testing.T, test func(t *testing.T, start func(t *testing.T, paths ...string) *watching)) {
	t.Run("by events", func(t *testing.T) {
		test(t, func(t *testing.T, paths ...string) *watching {
			w := start(t, Options{Paths: paths}, nil)
			w.ready(t)
			return w
		})
	})
	t.Run("by interval", func(t *testing.T) {
		test(t, func(t *testing.T, paths ...string) *watching {
			w := start(t, Options{Paths: paths, Interval: 5 * time.Millisecond}, noEvents)
			if err := <-w.warnings; !errors.Is(err, syscall.EMFILE) {
				t.Errorf("warning: got %v, want %v", err, syscall.EMFILE)
			}
			return w
		})
	})
}

// ready waits until the watcher runs, by a trigger: the first look comes before
// it.
func (w *watching) ready(t *testing.T) {
	t.Helper()
	w.Trigger()
	w.changed(t, "a trigger")
}

func TestWatcherSeesAFileWrittenInPlace(t *testing.T) {
	ways(t, func(t *testing.T, start func(*testing.T, ...string) *watching) {
		file := configtest.Write(t, "rules.yaml", "a")
		w := start(t, file)
		configtest.Put(t, filepath.Dir(file), "rules.yaml", "ab")
		w.changed(t, "a write")
		configtest.Put(t, filepath.Dir(file), "rules.yaml", "abc")
		w.changed(t, "a second write")
	})
}

func TestWatcherSeesAFileRenamedOver(t *testing.T) {
	ways(t, func(t *testing.T, start func(*testing.T, ...string) *watching) {
		file := configtest.Write(t, "rules.yaml", "a")
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		w := start(t, file)
		for range 2 {
			// The same size and time: another file all the same.
			next := configtest.Write(t, "next", "b")
			if err := os.Chtimes(next, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(next, file); err != nil {
				t.Fatal(err)
			}
			w.changed(t, "a rename")
		}
	})
}

// TestWatcherSeesAConfigMapSwap changes files as Kubernetes does: the files are
// links through ..data, which is a link to the directory of one version, and is
// itself replaced.
func TestWatcherSeesAConfigMapSwap(t *testing.T) {
	for _, c := range []struct {
		name string
		path func(dir string) string
	}{
		{"watched as a directory", func(dir string) string { return dir }},
		{"watched as a file", func(dir string) string { return filepath.Join(dir, "rules.yaml") }},
		{"watched through a link", func(dir string) string {
			link := dir + "-link"
			if err := os.Symlink(dir, link); err != nil {
				panic(err)
			}
			return filepath.Join(link, "rules.yaml")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ways(t, func(t *testing.T, start func(*testing.T, ...string) *watching) {
				dir := filepath.Join(t.TempDir(), "config")
				version := func(name, text string) {
					if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
						t.Fatal(err)
					}
					configtest.Put(t, filepath.Join(dir, name), "rules.yaml", text)
				}
				swap := func(name string) {
					if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
						t.Fatal(err)
					}
					if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
						t.Fatal(err)
					}
				}
				version("..v1", "a")
				swap("..v1")
				if err := os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")); err != nil {
					t.Fatal(err)
				}
				w := start(t, c.path(dir))
				for _, v := range []string{"..v2", "..v3"} {
					version(v, "a")
					swap(v)
					w.changed(t, "the swap to "+v)
				}
			})
		})
	}
}

func TestWatcherSeesFilesOfADirectoryComeAndGo(t *testing.T) {
	ways(t, func(t *testing.T, start func(*testing.T, ...string) *watching) {
		dir := t.TempDir()
		configtest.Put(t, dir, "a.yaml", "a")
		w := start(t, dir)
		// None of these is a rules file, so the next callback is for b.yaml.
		configtest.Put(t, dir, ".b.yaml.swp", "x")
		configtest.Put(t, dir, "notes.txt", "x")
		configtest.Put(t, dir, "b.yaml", "b")
		w.changed(t, "a new file")
		if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		w.changed(t, "a removal")
	})
}

// TestWatcherSeesFilesOfAnyName has a root that is a link, as envoyproxy/ratelimit wants it, and
// files of any name with a prefix.
func TestWatcherSeesFilesOfAnyName(t *testing.T) {
	for name, o := range map[string]Options{
		"by events":   {},
		"by interval": {Interval: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			versions := t.TempDir()
			root := filepath.Join(versions, "current")
			for _, v := range []string{"1", "2"} {
				configtest.Put(t, configtest.MakeDir(t, versions, v, "sub"), "config.a", "a")
				configtest.Put(t, configtest.MakeDir(t, versions, v, "sub", "config"), "plain", "a")
			}
			configtest.Link(t, "1", versions, "current")
			o.Paths = []string{filepath.Join(root, "sub")}
			o.Which = files.Which{All: true, Prefix: "config", IgnoreDotFiles: true}
			open := fsnotify.NewWatcher
			if o.Interval > 0 {
				open = noEvents
			}
			w := start(t, o, open)
			if o.Interval > 0 {
				if err := <-w.warnings; !errors.Is(err, syscall.EMFILE) {
					t.Errorf("warning: got %v, want %v", err, syscall.EMFILE)
				}
			} else {
				w.ready(t)
			}
			sub := filepath.Join(versions, "1", "sub")
			// None of these has the prefix, so the next callback is for config.b.
			configtest.Put(t, sub, "other.yaml", "x")
			configtest.Put(t, sub, "config2", "x")
			configtest.Put(t, sub, "config.b", "b")
			w.changed(t, "a new file")
			configtest.Put(t, filepath.Join(sub, "config"), "plain", "ab")
			w.changed(t, "a write below")
			if err := os.Symlink("2", root+"_tmp"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(root+"_tmp", root); err != nil {
				t.Fatal(err)
			}
			w.changed(t, "a swap of the root")
			configtest.Put(t, filepath.Join(versions, "2", "sub"), "config.c", "c")
			w.changed(t, "a new file behind it")
		})
	}
}

func TestWatcherSeesSubdirectories(t *testing.T) {
	ways(t, func(t *testing.T, start func(*testing.T, ...string) *watching) {
		dir := t.TempDir()
		outside, nowhere := t.TempDir(), filepath.Join(t.TempDir(), "later")
		sub := configtest.MakeDir(t, dir, "sub")
		configtest.Put(t, sub, "a.yaml", "a")
		configtest.Link(t, outside, dir, "link")
		configtest.Link(t, nowhere, dir, "later")
		w := start(t, dir)
		configtest.Put(t, sub, "a.yaml", "ab")
		w.changed(t, "a write below")
		configtest.Put(t, configtest.MakeDir(t, sub, "new", "deep"), "b.yaml", "b")
		w.changed(t, "a new file in new directories")
		configtest.Put(t, filepath.Join(sub, "new", "deep"), "b.yaml", "bc")
		w.changed(t, "a write into them")
		configtest.Put(t, outside, "c.yaml", "c")
		w.changed(t, "a new file behind a link")
		configtest.Put(t, configtest.MakeDir(t, nowhere), "d.yaml", "d")
		w.changed(t, "a directory to which a link led before")
		if err := os.RemoveAll(filepath.Join(sub, "new")); err != nil {
			t.Fatal(err)
		}
		w.changed(t, "a removal of directories")
	})
}

// TestWatcherIgnoresDotFiles: a checkout has a .git, which may be large.
func TestWatcherIgnoresDotFiles(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, configtest.MakeDir(t, dir, ".git"), "a.yaml", "a")
	configtest.Put(t, dir, ".b.yaml", "b")
	configtest.Put(t, dir, "c.yaml", "c")
	for _, ignore := range []bool{true, false} {
		s := look(Options{Paths: []string{dir}, Which: files.Which{IgnoreDotFiles: ignore}})
		if got, want := len(s.files), 3; ignore && got != 1 || !ignore && got != want {
			t.Errorf("without dot files: %v: got %d files", ignore, got)
		}
		if got := s.dirs[filepath.Join(dir, ".git")]; got == ignore {
			t.Errorf("without dot files: %v: .git is watched: %v", ignore, got)
		}
	}
}

func TestWatcherSeesAFileThatIsMissingForAMoment(t *testing.T) {
	ways(t, func(t *testing.T, start func(*testing.T, ...string) *watching) {
		dir := filepath.Join(t.TempDir(), "tiers")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		configtest.Put(t, dir, "tiers.yaml", "a")
		w := start(t, filepath.Join(dir, "tiers.yaml"))
		if err := os.Rename(dir, dir+"-old"); err != nil {
			t.Fatal(err)
		}
		w.changed(t, "the directory went")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		configtest.Put(t, dir, "tiers.yaml", "b")
		w.changed(t, "the directory came back")
		configtest.Put(t, dir, "tiers.yaml", "bc")
		w.changed(t, "a write into the new directory")
	})
}

// TestWatcherSeesAChangeBeforeRun: what happens between the first load and Run is
// not lost.
func TestWatcherSeesAChangeBeforeRun(t *testing.T) {
	file := configtest.Write(t, "rules.yaml", "a")
	changes := make(chan struct{}, 1)
	w := New(Options{Paths: []string{file}, Debounce: time.Millisecond})
	configtest.Put(t, filepath.Dir(file), "rules.yaml", "ab")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, func() { changes <- struct{}{} }) }()
	select {
	case <-changes:
	case <-time.After(deadline):
		t.Error("no callback")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

// TestWatcherIsQuietWithoutAChange has many looks, of which none sees anything
// else: the only callbacks are those of triggers.
func TestWatcherIsQuietWithoutAChange(t *testing.T) {
	file := configtest.Write(t, "rules.yaml", "a")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	w := New(Options{Paths: []string{file}, Interval: time.Millisecond, Debounce: time.Millisecond})
	w.openNotify = func() (*fsnotify.Watcher, error) {
		close(opened)
		return fsnotify.NewWatcher()
	}
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func() {
			calls++
			cancel()
		})
	}()
	<-opened
	// Events of another file of the directory each make it look.
	for range 50 {
		configtest.Put(t, filepath.Dir(file), "other", "x")
	}
	w.Trigger()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	if calls != 1 {
		t.Errorf("callbacks: got %d, want 1, that of the trigger", calls)
	}
}

func TestWatcherWarnsOnceAndGoesOn(t *testing.T) {
	file := configtest.Write(t, "rules.yaml", "a")
	w := start(t, Options{Paths: []string{file}, Interval: 5 * time.Millisecond}, func() (*fsnotify.Watcher, error) {
		n, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, err
		}
		// Every Add now fails, as when the system has no watches left.
		return n, n.Close()
	})
	if err := <-w.warnings; err == nil {
		t.Error("got no warning")
	}
	configtest.Put(t, filepath.Dir(file), "rules.yaml", "ab")
	w.changed(t, "a write")
	configtest.Put(t, filepath.Dir(file), "rules.yaml", "abc")
	w.changed(t, "a second write")
}

func TestWatcherWithoutPathsObeysTriggers(t *testing.T) {
	w := start(t, Options{Interval: time.Millisecond}, noEvents)
	for range 3 {
		w.Trigger()
		w.changed(t, "a trigger")
	}
}

func TestWatchPaths(t *testing.T) {
	s := settings.Default()
	if got := s.WatchPaths(); len(got) != 0 {
		t.Errorf("built in: got %q, want none", got)
	}
	s.Rules.Path, s.Tiers.Path = "r", "t"
	if got := s.WatchPaths(); len(got) != 2 {
		t.Errorf("files: got %q, want both", got)
	}
	s.Tiers.Source = settings.TiersInPostgres
	if got := s.WatchPaths(); len(got) != 2 {
		t.Errorf("a file with the names alone: got %q, want both", got)
	}
	s.Tiers.Source = settings.TiersNone
	if got := s.WatchPaths(); len(got) != 1 || got[0] != "r" {
		t.Errorf("without tiers: got %q, want r", got)
	}
}
