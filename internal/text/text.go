package text

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

var errUTF16 = errors.New("is UTF-16; save it as UTF-8")

// WithoutMark returns the text of a file or a stream without the byte-order mark that some editors begin
// a file with. It returns an error for UTF-16 with a mark. A few bytes of the beginning are enough.
func WithoutMark(data []byte) ([]byte, error) {
	if rest, ok := bytes.CutPrefix(data, []byte("\xef\xbb\xbf")); ok {
		return rest, nil
	}
	// After the mark of UTF-16 comes an ASCII character. A key may begin with the bytes of a mark.
	if len(data) >= 4 && (bytes.HasPrefix(data, []byte("\xff\xfe")) && data[3] == 0 || bytes.HasPrefix(data, []byte("\xfe\xff")) && data[2] == 0) {
		return nil, errUTF16
	}
	return data, nil
}

// Lines iterates over the lines of a stream, with numbers from 1 and without a byte-order mark. A line
// has at most most bytes. Lines sets err if the stream cannot be read.
func Lines(r io.Reader, most int, err *error) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		in := bufio.NewScanner(r)
		in.Buffer(nil, most)
		for line := 1; in.Scan(); line++ {
			data := in.Bytes()
			if line == 1 {
				if data, *err = WithoutMark(data); *err != nil {
					return
				}
			}
			if !yield(line, string(data)) {
				return
			}
		}
		*err = in.Err()
	}
}
