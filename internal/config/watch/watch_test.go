package watch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// deadline is how long a test waits for what must happen. It is long, so that
// only what never happens reaches it.
const deadline = 20 * time.Second

// watching is a watcher that runs, and the calls that it made.
type watching struct {
	*Watcher
	changes chan struct{}
}

// start runs a watcher until the end of the test. Callbacks wait for the test to
// take them, so none is missed and none is made up.
func start(t *testing.T, o Options) *watching {
	t.Helper()
	w := &watching{changes: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	o.Interval, o.Settle = 5*time.Millisecond, 5*time.Millisecond
	report := func() {
		select {
		case w.changes <- struct{}{}:
		case <-ctx.Done():
		}
	}
	w.Watcher = New(o)
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
	case <-time.After(deadline):
		t.Fatalf("after %s: no callback", what)
	}
}

func TestWatcherSeesAFileWrittenInPlace(t *testing.T) {
	file := configtest.Write(t, "rules.yaml", "a")
	w := start(t, Options{Paths: []string{file}})
	configtest.Put(t, filepath.Dir(file), "rules.yaml", "ab")
	w.changed(t, "a write")
	configtest.Put(t, filepath.Dir(file), "rules.yaml", "abc")
	w.changed(t, "a second write")
}

func TestWatcherSeesAFileRenamedOver(t *testing.T) {
	file := configtest.Write(t, "rules.yaml", "a")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, Options{Paths: []string{file}})
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
			w := start(t, Options{Paths: []string{c.path(dir)}})
			for _, v := range []string{"..v2", "..v3"} {
				version(v, "a")
				swap(v)
				w.changed(t, "the swap to "+v)
			}
		})
	}
}

// TestWatcherSeesFilesOfAnyName has a root that is a link, as envoyproxy/ratelimit wants it, and
// files of any name with a prefix.
func TestWatcherSeesFilesOfAnyName(t *testing.T) {
	versions := t.TempDir()
	root := filepath.Join(versions, "current")
	for _, v := range []string{"1", "2"} {
		configtest.Put(t, configtest.MakeDir(t, versions, v, "sub"), "config.a", "a")
		configtest.Put(t, configtest.MakeDir(t, versions, v, "sub", "config"), "plain", "a")
	}
	configtest.Link(t, "1", versions, "current")
	w := start(t, Options{
		Paths: []string{filepath.Join(root, "sub")},
		Which: files.Which{All: true, Prefix: "config", IgnoreDotFiles: true},
	})
	sub := filepath.Join(versions, "1", "sub")
	// It has not the prefix, so the next callback is for the file below.
	configtest.Put(t, sub, "config2", "x")
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
}

func TestWatcherSeesSubdirectories(t *testing.T) {
	dir := t.TempDir()
	outside, nowhere := t.TempDir(), filepath.Join(t.TempDir(), "later")
	sub := configtest.MakeDir(t, dir, "sub")
	configtest.Put(t, sub, "a.yaml", "a")
	configtest.Link(t, outside, dir, "link")
	configtest.Link(t, nowhere, dir, "later")
	w := start(t, Options{Paths: []string{dir}})
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
}

func TestWatcherSeesAFileThatIsMissingForAMoment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiers")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	configtest.Put(t, dir, "tiers.yaml", "a")
	w := start(t, Options{Paths: []string{filepath.Join(dir, "tiers.yaml")}})
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
}

// TestWatcherSeesAChangeBeforeRun: what happens between the first load and Run is
// not lost.
func TestWatcherSeesAChangeBeforeRun(t *testing.T) {
	file := configtest.Write(t, "rules.yaml", "a")
	changes := make(chan struct{}, 1)
	w := New(Options{Paths: []string{file}, Settle: time.Millisecond})
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
// else: the only callback is that of a trigger.
func TestWatcherIsQuietWithoutAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := configtest.Write(t, "rules.yaml", "a")
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		w := New(Options{Paths: []string{file}})
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx, func() { calls++ }) }()
		for range 50 {
			configtest.Put(t, filepath.Dir(file), "other", "x")
			time.Sleep(time.Second)
		}
		w.Trigger()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || calls != 1 {
			t.Errorf("Run: %v after %d callbacks, want 1, that of the trigger", err, calls)
		}
	})
}

func TestWatcherWithoutPathsObeysTriggers(t *testing.T) {
	w := start(t, Options{})
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
