package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Bounds on the size of files in bytes. They report a wrong path, such as that of a disk
// image, before the process runs out of memory.
const (
	// A settings file has some forty lines.
	maxSettingsFile = 1 << 20
	maxSecretFile   = 64 << 10
	// The YAML library builds a tree of a whole file. A usual file takes about 30 times
	// its size, and a file of empty lists 200 times. 16 MiB hold about 100,000 rules.
	maxRulesFile = 16 << 20
	// maxRules bounds the sum of all rules files of a directory.
	maxRules = 256 << 20
	// 16 MiB hold about 100,000 subjects with one key each.
	maxTiersFile = 16 << 20
)

// source is a file that was read.
type source struct {
	name string
	data []byte
	info os.FileInfo // which file it was; nil: built in, or standard input
}

// settled reports whether the file that was read is still the one of that name,
// and as it was.
func (s *source) settled() bool {
	if s.info == nil {
		return true
	}
	now, err := os.Stat(s.name)
	return err == nil && os.SameFile(now, s.info) && now.Size() == s.info.Size() && now.ModTime().Equal(s.info.ModTime())
}

// readFile reads a regular file of at most most bytes. Its errors do not name
// the file.
func readFile(name string, most int64) ([]byte, error) {
	src, err := readSource(name, most)
	return src.data, err
}

// readSource is readFile that also tells which file it was.
func readSource(name string, most int64) (source, error) {
	f, size, err := openRegular(name)
	if err != nil {
		return source{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if size > most {
		return source{}, tooLarge(most)
	}
	info, err := f.Stat()
	if err != nil {
		return source{}, plainError(err)
	}
	// It may have grown, or be of a file system that knows no sizes.
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(f, most+1)); err != nil {
		return source{}, plainError(err)
	}
	if int64(data.Len()) > most {
		return source{}, tooLarge(most)
	}
	return source{name, data.Bytes(), info}, nil
}

// tooLarge is the error for a file above a bound in bytes.
type tooLarge int64

func (most tooLarge) Error() string { return fmt.Sprintf("larger than %d MiB", max(1, most>>20)) }

// openRegular opens a file and returns its size. It looks before it opens, since opening a FIFO
// would wait for a writer.
func openRegular(name string) (*os.File, int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, 0, plainError(err)
	}
	switch {
	case info.IsDir():
		return nil, 0, errors.New("is a directory")
	case !info.Mode().IsRegular():
		return nil, 0, errors.New("is not a regular file")
	}
	f, err := os.Open(name)
	return f, info.Size(), plainError(err)
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
