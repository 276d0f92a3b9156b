package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/slidegate/slidegate/internal/text"
)

// File is a file that was read.
type File struct {
	Name string
	Data []byte
	Made bool        // a program wrote the text: its lines mean nothing to people
	info os.FileInfo // identifies the file; nil: built in, or standard input
}

// Settled reports whether the file that was read is still the one of that name,
// and as it was.
func (s *File) Settled() bool {
	if s.info == nil {
		return true
	}
	now, err := os.Stat(s.Name)
	return err == nil && Same(now, s.info)
}

// Same reports whether two looks at a path found the same file, and it did not change. Nil: the
// file was missing.
func Same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Read reads a regular file of at most most bytes, without a byte-order mark. Its errors do not
// name the file.
func Read(name string, most int64) ([]byte, error) {
	src, err := ReadFile(name, most)
	return src.Data, err
}

// ReadFile is Read that also returns the identity of the file.
func ReadFile(name string, most int64) (File, error) {
	f, size, err := Open(name)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if size > most {
		return File{}, TooLarge(most)
	}
	info, err := f.Stat()
	if err != nil {
		return File{}, plainError(err)
	}
	// It may have grown, or be of a file system that knows no sizes.
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(f, most+1)); err != nil {
		return File{}, plainError(err)
	}
	if int64(data.Len()) > most {
		return File{}, TooLarge(most)
	}
	text, err := text.WithoutMark(data.Bytes())
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Data: text, info: info}, nil
}

// TooLarge is the error for a file above a bound in bytes.
type TooLarge int64

func (most TooLarge) Error() string { return fmt.Sprintf("larger than %d MiB", max(1, most>>20)) }

// Open opens a file and returns its size. It looks before it opens, since opening a FIFO
// would wait for a writer.
func Open(name string) (*os.File, int64, error) {
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
