package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	blockBytes = 256 << 10 // read at once from a pipe
	maxWindow  = 128 << 20 // of zstd, as zstd --long has it
)

// An input is a log as a stream of lines, unpacked.
type input struct {
	path  string          // - is stdin
	stdin io.Reader       // of Options
	done  <-chan struct{} // of Options

	closer io.Closer
	unpack io.Closer
	stream io.Reader // nil: it is not open
}

// open opens the input and finds out how it is packed. It reports whether it can be opened again.
func (i *input) open() (regular bool, err error) {
	in, regular, err := i.openRaw()
	if err != nil {
		return false, err
	}
	i.closer = in
	head := make([]byte, 4)
	n, err := io.ReadFull(in, head)
	head = head[:n]
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		i.close()
		return false, pathError(i.path, "cannot be read: %w", err)
	}
	if err := i.unpacked(head, io.MultiReader(bytes.NewReader(head), in)); err != nil {
		i.close()
		return false, pathError(i.path, "cannot be unpacked: %w", err)
	}
	return regular, nil
}

// openRaw opens the input as it is on disk. To open a named pipe, and to read one, can wait.
func (i *input) openRaw() (in io.ReadCloser, regular bool, err error) {
	info, err := os.Stat(i.path)
	switch {
	case i.path == "-":
		return interruptible(i.done, func() (io.ReadCloser, error) { return io.NopCloser(i.stdin), nil }), false, nil
	case err == nil && info.IsDir():
		return nil, false, pathError(i.path, "is a directory; name the files in it")
	case err == nil && !info.Mode().IsRegular():
		return interruptible(i.done, func() (io.ReadCloser, error) { return os.Open(i.path) }), false, nil
	}
	if in, err = os.Open(i.path); err != nil {
		return nil, false, fmt.Errorf("%s: cannot be opened: %w", i.path, errors.Unwrap(err))
	}
	return in, true, nil
}

// errDone ends reads when Options.Done is closed.
var errDone = errors.New("the replay was interrupted")

// interruptible returns a reader whose reads fail when done is closed or it is closed, although
// open, or a read of what it opens, still waits.
func interruptible(done <-chan struct{}, open func() (io.ReadCloser, error)) *io.PipeReader {
	out, in := io.Pipe()
	ended := make(chan struct{})
	go func() {
		select {
		case <-done:
			in.CloseWithError(errDone)
		case <-ended:
		}
	}()
	go func() {
		defer close(ended)
		from, err := open()
		if err == nil {
			_, err = io.CopyBuffer(in, struct{ io.Reader }{from}, make([]byte, blockBytes))
			_ = from.Close() // it was only read
		}
		in.CloseWithError(err) // nil is io.EOF
	}()
	return out
}

// unpacked sets the stream of lines, by the first bytes of the input.
func (i *input) unpacked(head []byte, all io.Reader) error {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(all)
		if err != nil {
			return err
		}
		i.stream, i.unpack = z, z
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(all, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		closer := z.IOReadCloser()
		i.stream, i.unpack = closer, closer
	default:
		i.stream = all
	}
	return nil
}

// close closes the input. Errors of closing say nothing of a file that was only read.
func (i *input) close() {
	if i.unpack != nil {
		_ = i.unpack.Close()
		i.unpack = nil
	}
	if i.closer != nil {
		_ = i.closer.Close()
		i.closer = nil
	}
	i.stream = nil
}

// broken returns the error of an input that cannot be read further.
func (i *input) broken(err error, lines int64) error {
	what := "cannot be read further"
	if i.unpack != nil {
		what = "cannot be unpacked further"
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("its end is missing")
		}
	}
	return pathError(i.path, "%s after line %d: %w", what, lines, err)
}
