package settings

import (
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/tree"
)

const tokenA, tokenB = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

func TestReadTokens(t *testing.T) {
	digest := func(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }
	for _, tt := range []struct {
		text, problem string
		want          []Token
	}{
		{
			"# who may what\n\nread " + tokenA + "\r\n  act\t" + tokenB + " alice@example.com\n", "",
			[]Token{{digest(tokenA), false, "line 3"}, {digest(tokenB), true, "alice@example.com"}},
		},
		{"", "has no token", nil},
		{"# read " + tokenA, "has no token", nil},
		{"read " + tokenA + "\nwrite " + tokenB, ":2: a line has two or three words", nil},
		{"read", ":1: a line has two or three words", nil},
		{"read " + tokenA + " alice " + tokenB, ":1: a line has two or three words", nil},
		{"read " + tokenA[1:], ":1: a token has 32 to 256 letters", nil},
		{"read " + strings.Repeat("x", 257), ":1: a token has 32 to 256 letters", nil},
		{"read " + tokenA + ";", ":1: a token has 32 to 256 letters", nil},
		{"act " + tokenA + " <b>", ":1: the name after the token has at most 64 letters", nil},
		{"read " + tokenA + "\nact " + tokenA, ":2: the token is also on a line above", nil},
		{strings.Repeat("x", 2<<20), "larger than 1 MiB", nil},
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		tree.Write(t, file, tt.text)
		got, err := ReadTokens(file)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", tt.text, diff)
		}
		switch {
		case tt.problem == "" && err != nil:
			t.Errorf("%.40q: %v", tt.text, err)
		case tt.problem != "" && (err == nil || !strings.HasPrefix(err.Error(), file) || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%.40q: %v, want %s with %q", tt.text, err, file, tt.problem)
		case err != nil && (strings.Contains(err.Error(), tokenA) || strings.Contains(err.Error(), tokenB)):
			t.Errorf("%.40q: the error has a token: %v", tt.text, err)
		}
	}
	if _, err := ReadTokens(filepath.Join(t.TempDir(), "gone")); err == nil {
		t.Error("a missing file was read")
	}
}

func TestOnLoopback(t *testing.T) {
	for address, want := range map[Address]bool{
		"127.0.0.1:6070": true, "127.9.9.9:0": true, "[::1]:6070": true, "[::ffff:127.0.0.1]:6070": true, "localhost:6070": true,
		":6070": false, "0.0.0.0:6070": false, "[::]:6070": false, "10.0.0.1:6070": false, "rls.example.com:6070": false, "localhost.example.com:1": false, "": false,
	} {
		if got := address.OnLoopback(); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
}

// FuzzReadTokens reads any file. An error repeats no word of it that can be a token.
func FuzzReadTokens(f *testing.F) {
	f.Add("# who may what\nread " + tokenA + "\nact " + tokenB + " alice\n")
	f.Add("act " + tokenA + "\r\nact " + tokenA)
	f.Add("read\x00" + tokenA + "\u2028" + tokenB)
	f.Fuzz(func(t *testing.T, text string) {
		const file = "tokens"
		all, err := parseTokens(file, []byte(text))
		if err == nil {
			if len(all) == 0 || len(all) > maxTokens {
				t.Errorf("%d tokens without an error", len(all))
			}
			return
		}
		message := strings.TrimPrefix(err.Error(), file)
		for _, word := range strings.Fields(text) {
			if len(word) >= 16 && strings.Contains(message, word) && !strings.Contains("read TOKEN, or act TOKEN NAME", word) {
				t.Errorf("the error repeats %q: %s", word, message)
			}
		}
	})
}
