package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestDirectoriesOutOfReach: what may hold rules is a problem if it cannot be read,
// and so is a path to everything there is.
func TestDirectoriesOutOfReach(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "a.yaml", "domain: a\n")
	long := configtest.MakeDir(t, dir, "long")
	configtest.Put(t, long, "b.yaml", "domain: b\n")
	w := walk{seen: make(map[string]bool), most: 2}
	if err := w.dir(dir, resolved(dir), true); !errors.Is(err, errTooMany) {
		t.Errorf("three entries of two: got %v, want %v", err, errTooMany)
	}
	w = walk{seen: make(map[string]bool), most: 3}
	if err := w.dir(dir, resolved(dir), true); err != nil {
		t.Errorf("three entries of three: got %v", err)
	}
	// A directory that is gone cannot be listed, not even by the superuser.
	w = walk{seen: make(map[string]bool), most: 3}
	if err := w.entry(dir, dir, goneDir{}); err != nil {
		t.Error(err)
	}
	want := []strict.Problem{{File: filepath.Join(dir, "gone"), Message: "no such file or directory"}}
	configtest.Diff(t, want, w.Failed, "failed")
}

// goneDir is a directory that was removed since it was listed.
type goneDir struct{ os.DirEntry }

func (goneDir) Name() string { return "gone" }

func (goneDir) Type() os.FileMode { return os.ModeDir }
