package files

import (
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/text"
	"github.com/slidegate/slidegate/test/tree"
)

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
