// Package safetext shows text from anywhere: names of files, of xDS resources and of rules, values
// of requests. It escapes control characters, marks of direction, invisible characters and bytes
// that are not UTF-8 ([Text]), and cuts text to a length. No terminal, log or page obeys what it
// returns. HTML still has to be escaped.
package safetext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with every character that is invisible, or that a terminal or a reader obeys, as
// Go escapes it: control characters, marks of direction, line separators, characters without
// width, and bytes that are not UTF-8. Text of what it returned changes nothing.
func Text(s string) string {
	if strings.IndexFunc(s, Unsafe) < 0 && utf8.ValidString(s) {
		return s
	}
	return Runes(s, len(s))
}

// Runes is Text of at most most characters of s. An ellipsis shows that some are cut.
func Runes(s string, most int) string {
	var b []byte
	for n := 0; len(s) > 0; n++ {
		if n == most {
			return string(b) + "…"
		}
		r, size := utf8.DecodeRuneInString(s)
		b = appendShown(b, r, s[:size])
		s = s[size:]
	}
	return string(b)
}

// Bytes is Text, cut to at most most bytes. cut reports whether some are missing. It reads no more
// of s than it needs, and what it returns shares no memory with s.
func Bytes(s string, most int) (text string, cut bool) {
	b := make([]byte, 0, min(len(s), most))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		before := len(b)
		if b = appendShown(b, r, s[:n]); len(b) > most {
			return string(b[:before]), true
		}
		s = s[n:]
	}
	return string(b), false
}

// Unsafe reports whether [Text] escapes a character.
func Unsafe(r rune) bool {
	switch r {
	case 0x115f, 0x1160, 0x2800, 0x3164, 0xffa0: // letters and a pattern that are drawn as nothing
		return true
	}
	return !unicode.IsPrint(r)
}

// appendShown appends one character, which given encodes.
func appendShown(b []byte, r rune, given string) []byte {
	switch {
	case r == utf8.RuneError && len(given) == 1:
		const digits = "0123456789abcdef"
		return append(b, '\\', 'x', digits[given[0]>>4], digits[given[0]&15])
	case !Unsafe(r):
		return append(b, given...)
	case unicode.IsPrint(r):
		return append(b, `\u`+strconv.FormatInt(int64(r)|1<<16, 16)[1:]...)
	default:
		quoted := strconv.QuoteRune(r)
		return append(b, quoted[1:len(quoted)-1]...)
	}
}
