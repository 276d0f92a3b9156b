package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/tree"
)

func oneHit(key string) []window.Check {
	return []window.Check{{Key: key, Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1}}
}

func openSnapshot(t *testing.T, path string) (*Store, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	m, err := Open(t.Context(), path, memstore.Options{}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	return m, logs
}

func spend(t *testing.T, s window.Store, key string) bool {
	t.Helper()
	d := make([]window.Decision, 1)
	if _, err := s.Take(t.Context(), window.MayWait, oneHit(key), d); err != nil {
		t.Fatal(err)
	}
	return d[0].Allowed
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "logs")
	for i := range 3 {
		m, logs := openSnapshot(t, path)
		if got := spend(t, m, "k"); got != (i == 0) {
			t.Errorf("start %d: allowed %t", i+1, got)
		}
		want := "snapshot loaded"
		if i == 0 {
			want = "there is no snapshot yet, so the store is empty"
		}
		if got := logs.All(); len(got) != 1 || got[0].Message != want || got[0].Level != zapcore.InfoLevel || got[0].ContextMap()["file"] != path {
			t.Errorf("start %d: got %v, want the line %q", i+1, got, want)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("got mode %v, error %v, want 0600", info.Mode(), err)
		}
		if got := namesIn(t, dir); !slices.Equal(got, []string{"logs"}) {
			t.Errorf("files: got %v, want the snapshot alone", got)
		}
	}
}

func TestBadSnapshotIsPutAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "logs")
	const text = "not a snapshot"
	tree.Write(t, path, text)
	m, logs := openSnapshot(t, path)
	got := logs.All()
	if len(got) != 1 || got[0].Level != zapcore.ErrorLevel || !strings.Contains(got[0].Message, "rls renamed the file") ||
		got[0].ContextMap()["file"] != path || got[0].ContextMap()["aside"] != path+".bad" {
		t.Errorf("got %v, want one line that names both files", got)
	}
	if !spend(t, m, "k") {
		t.Error("a store without a snapshot: got denied")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path + ".bad"); err != nil || string(b) != text {
		t.Errorf("what was put aside: got %q, error %v", b, err)
	}
	m, _ = openSnapshot(t, path)
	defer m.Close()
	if spend(t, m, "k") {
		t.Error("after a restart: got allowed")
	}
}

// TestBadSnapshotThatStays proves that a file which cannot be put aside is not
// replaced at shutdown either.
func TestBadSnapshotThatStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "logs")
	tree.Write(t, path, "bad")
	// Where it would go is a directory with something in it.
	if err := os.MkdirAll(filepath.Join(path+".bad", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, logs := openSnapshot(t, path)
	if got := logs.All(); len(got) != 1 || !strings.Contains(got[0].Message, "it will write no snapshot") {
		t.Errorf("got %v, want one line that says that none will be written", got)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "bad" {
		t.Errorf("the file: got %q, error %v, want it as it was", b, err)
	}
}

func TestSnapshotThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                             dir + " is not a file",
		filepath.Join(dir, "no", "dir"): "the directory " + filepath.Join(dir, "no") + " does not exist; create it",
		filepath.Join(dir, strings.Repeat("n", 250)): "cannot create a file in the directory " + dir + ": file name too long",
	} {
		if _, err := Open(t.Context(), path, memstore.Options{}, zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Open = %v, want one line with %q", err, want)
		}
	}
	path := filepath.Join(dir, "sub", "logs")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	m, _ := openSnapshot(t, path)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Close = %v, want that the directory is gone", err)
	}
}

func TestSnapshotThatDoesNotFit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs")
	m, _ := openSnapshot(t, path)
	for i := range 10 {
		spend(t, m, fmt.Sprint(i))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	small, err := Open(t.Context(), path, memstore.Options{MaxBytes: 450}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if got := logs.FilterLevelExact(zapcore.WarnLevel).All(); len(got) != 1 || got[0].ContextMap()["dropped"] != int64(6) || got[0].ContextMap()["logs"] != int64(4) {
		t.Errorf("got %v, want one line that says 4 were loaded and 6 dropped", logs.All())
	}
}

// TestStaleTemporary proves that what a process which was killed while it saved
// has left is neither read nor in the way.
func TestStaleTemporary(t *testing.T) {
	dir := t.TempDir()
	path, stale := filepath.Join(dir, "logs"), filepath.Join(dir, ".logs.new")
	other := filepath.Join(dir, "other")
	for i, leave := range []func() error{
		func() error { return os.WriteFile(stale, []byte(strings.Repeat("half a snapshot", 1000)), 0o644) },
		func() error { return os.WriteFile(stale, nil, 0o400) },
		func() error {
			return errors.Join(os.WriteFile(other, []byte("dear"), 0o600), os.Symlink("other", stale))
		},
	} {
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		m, _ := openSnapshot(t, path)
		if got := spend(t, m, "k"); got != (i == 0) {
			t.Errorf("start %d: allowed %t", i+1, got)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(stale); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("start %d: the temporary file: got error %v, want that it is gone", i+1, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("start %d: got %v, error %v, want a file of mode 0600", i+1, info, err)
		}
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "dear" {
		t.Errorf("a file that the temporary name was a link to: got %q, error %v", b, err)
	}
}

// TestSnapshotSaysWhatWasWritten holds the log line to the file: logs that have
// expired and were not swept yet are not in it.
func TestSnapshotSaysWhatWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs")
	m, logs := openSnapshot(t, path)
	if err := m.Store.Close(); err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	m.Store = memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
	spend(t, m, "first")
	now = 30 * time.Minute
	spend(t, m, "second")
	now = time.Hour
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if got := logs.FilterMessage("snapshot written").All(); len(got) != 1 || got[0].ContextMap()["logs"] != int64(1) {
		t.Errorf("got %v, want one line that says that one log was written", logs.All())
	}
}

// TestStoppedWhileLoading ends the context while the file is read. The file stays as it is,
// and the log has shown the progress until then.
func TestStoppedWhileLoading(t *testing.T) {
	before := progress
	progress = 0
	t.Cleanup(func() { progress = before })
	dir := t.TempDir()
	path := filepath.Join(dir, "logs")
	m, _ := openSnapshot(t, path)
	for i := range 5000 {
		spend(t, m, fmt.Sprint("key ", i))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	core, logs := observer.New(zapcore.DebugLevel)
	var percent []int64
	log := zap.New(core, zap.Hooks(func(_ zapcore.Entry) error {
		percent = append(percent, logs.All()[logs.Len()-1].ContextMap()["percent"].(int64))
		if len(percent) == 2 {
			stop()
		}
		return nil
	}))
	if m, err := Open(ctx, path, memstore.Options{}, log); !errors.Is(err, context.Canceled) || m != nil {
		t.Errorf("Open = %v, %v, want the error of its context", m, err)
	}
	if len(percent) != 2 || percent[0] <= 0 || percent[0] >= percent[1] || percent[1] >= 100 {
		t.Errorf("the log says %v percent, want two parts of it", percent)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, file) {
		t.Errorf("the file has changed: %v", err)
	}
	if names := namesIn(t, dir); len(names) != 1 {
		t.Errorf("files %q, want the snapshot alone", names)
	}
	m, _ = openSnapshot(t, path)
	if spend(t, m, "key 4999") {
		t.Error("a log is lost")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
