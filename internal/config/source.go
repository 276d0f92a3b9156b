package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds on the size of files, so that a wrong path (a log, a disk image) is a
// problem and not a process out of memory.
const (
	// A settings file has some forty lines.
	maxSettingsFile = 1 << 20
	maxSecretFile   = 64 << 10
	// A rule takes about 100 bytes, so this is some 40,000 rules a file.
	maxRulesFile = 4 << 20
	// A subject with one key takes about 130 bytes, so this is two million.
	maxTiersFile = 256 << 20
)

// source is a file that was read.
type source struct {
	name string
	data []byte
}

// readFile reads a regular file of at most most bytes. Its errors do not name
// the file.
func readFile(name string, most int64) ([]byte, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, plainError(err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than %d MiB", max(1, most>>20))
	}
	return data, nil
}

// openRegular opens a file. It looks before it opens, since opening a FIFO
// would wait for a writer.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, plainError(err)
	}
	switch {
	case info.IsDir():
		return nil, errors.New("is a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(name)
	return f, plainError(err)
}

// plainError takes the operation and the path off an error of the os package:
// a problem names the file anyway.
func plainError(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// rulesFiles returns the files that a rules path stands for, sorted: the path
// itself, or the YAML files of the directory.
func rulesFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plainError(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, plainError(err)
	}
	var files []string
	for _, e := range entries {
		if !isRulesFile(e.Name()) {
			continue
		}
		file := filepath.Join(path, e.Name())
		// A symbolic link counts as what it leads to; one that leads nowhere is
		// kept, and reading it is a problem.
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			continue
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return files, nil
}

func isRulesFile(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}
