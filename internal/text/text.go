package text

import (
	"bytes"
	"errors"
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
