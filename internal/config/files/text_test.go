package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/text"
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
		if err := os.WriteFile(file, []byte(tt.data), 0o600); err != nil {
			t.Fatal(err)
		}
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
