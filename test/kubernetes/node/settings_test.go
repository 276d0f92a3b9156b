//go:build linux

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestSettingsOfOthers gives files that another user has put into /tmp. Root must not lock them, and
// must write nothing but the kernel settings.
func TestSettingsOfOthers(t *testing.T) {
	create := func(name string, mode fs.FileMode) *os.File {
		t.Helper()
		file, err := os.OpenFile(filepath.Join(t.TempDir(), name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		if err := file.Chmod(mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if err := isOurs(create("own", 0o600)); err != nil {
		t.Errorf("the program's own file: %v", err)
	}
	if err := isOurs(create("writable", 0o666)); err == nil {
		t.Error("a file that every user can write: got no error")
	}
	linked := create("linked", 0o600)
	if err := os.Link(linked.Name(), linked.Name()+"2"); err != nil {
		t.Fatal(err)
	}
	if err := isOurs(linked); err == nil {
		t.Error("a file with two names: got no error")
	}
	if os.Geteuid() == 0 {
		other := create("other", 0o600)
		if err := other.Chown(65534, 65534); err != nil {
			t.Fatal(err)
		}
		if err := isOurs(other); err == nil {
			t.Error("a file of another user: got no error")
		}
	}

	target := filepath.Join(t.TempDir(), "target")
	saved := create("saved", 0o600)
	if _, err := saved.WriteString(`{"../..` + target + `": "x"}`); err != nil {
		t.Fatal(err)
	}
	if err := restoreSettings(saved); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that leads out of /proc/sys: it was written (%v)", err)
	}
}
