// Package outfile writes the files that a command is asked for, so that a command that fails does not
// cost the file of the last one.
package outfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A File is one that a command writes. A regular file gets its content when it is complete. The methods
// of a nil File do nothing.
type File struct {
	*os.File
	path string // to which a complete file is renamed; empty: it is no regular file
}

// Create creates a file, unless the command reads it: inputs are the files and directories that it
// reads.
func Create(path string, inputs []string) (*File, error) {
	if path == "-" {
		return nil, errors.New("name a file; standard output has the report")
	}
	for _, in := range inputs {
		if in != "" && IsRegular(path) && (Same(path, in) || isBelow(path, in)) {
			return nil, fmt.Errorf("%s is one of the files that are read, and would be overwritten", path)
		}
	}
	out := &File{path: path}
	name := path + ".part"
	if !IsRegular(path) {
		out.path, name = "", path
	}
	var err error
	if out.File, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666); err != nil { //nolint:gosec // the umask decides, as for every program's output
		return nil, err
	}
	return out, nil
}

// IsRegular reports whether a path is that of a regular file, or of none.
func IsRegular(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// isBelow reports whether a file exists in a directory or below it.
func isBelow(path, dir string) bool {
	file, err := os.Stat(path)
	root, err2 := os.Stat(dir)
	below, err3 := filepath.Rel(dir, path)
	return err == nil && err2 == nil && err3 == nil && !file.IsDir() && root.IsDir() && filepath.IsLocal(below)
}

// Same reports whether two paths lead to one file. A path can be - for standard input.
func Same(a, b string) bool {
	stat := func(path string) (os.FileInfo, error) {
		if path == "-" {
			return os.Stdin.Stat()
		}
		return os.Stat(path)
	}
	one, err := stat(a)
	other, err2 := stat(b)
	return err == nil && err2 == nil && os.SameFile(one, other)
}

// Finish says that the file is complete.
func (o *File) Finish() error {
	if err := o.Close(); err != nil || o.path == "" {
		return err
	}
	return os.Rename(o.Name(), o.path)
}

// Drop removes a file that is not complete. After Finish it does nothing.
func (o *File) Drop() {
	if o != nil && o.Close() == nil && o.path != "" {
		_ = os.Remove(o.Name()) // another error is reported
	}
}
