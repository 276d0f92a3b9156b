package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/text"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
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

// TestText takes marks off, as a text and from a file. Other bytes stay, also those of a key.
func TestWithoutMark(t *testing.T) {
	const refused = "is UTF-16; save it as UTF-8"
	for _, tt := range []struct{ data, want, err string }{
		{"", "", ""},
		{"key", "key", ""},
		{"\xef\xbb\xbfkey\r\n", "key\r\n", ""},
		{"\xef\xbb\xbf", "", ""},
		{"\xef\xbb", "\xef\xbb", ""},
		{"k\xef\xbb\xbf", "k\xef\xbb\xbf", ""},
		{"\xff\xfek\x00e\x00", "", refused},
		{"\xfe\xff\x00k\x00e", "", refused},
		{"\xff\xfe\x00\x00k\x00\x00\x00", "", refused}, // UTF-32
		{"\xff\xfekey of many bytes", "\xff\xfekey of many bytes", ""},
	} {
		file := filepath.Join(t.TempDir(), "f")
		tree.Write(t, file, tt.data)
		without, err := text.WithoutMark([]byte(tt.data))
		read, readErr := Read(file, 100)
		for _, got := range []struct {
			text []byte
			err  error
		}{{without, err}, {read, readErr}} {
			if string(got.text) != tt.want || (got.err == nil) != (tt.err == "") || got.err != nil && got.err.Error() != tt.err {
				t.Errorf("%q: got %q, %v", tt.data, got.text, got.err)
			}
		}
	}
}
