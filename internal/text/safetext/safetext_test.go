package safetext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for given, want := range map[string]string{
		"":                           "",
		`a "b" \n 'ü' 日本`:            `a "b" \n 'ü' 日本`,
		"\x1b[31mred\x1b]0;t\a":      `\x1b[31mred\x1b]0;t\a`,
		"a\r\nb\x7f\u009b":           `a\r\nb\x7f\u009b`,
		"\u202eevil\u2066":           `\u202eevil\u2066`,
		"z\u200bw\ufeff\u00ad\u2028": `z\u200bw\ufeff\u00ad\u2028`,
		"\u3164\u2800\u115f":         `\u3164\u2800\u115f`,
		"\xff\xfe \ufffd":            `\xff\xfe ` + "\ufffd",
		"\U000e0041":                 `\U000e0041`,
	} {
		if got := Text(given); got != want {
			t.Errorf("%q: got %s, want %s", given, got, want)
		}
	}
	if got := Runes("a\x1bcd", 3); got != `a\x1bc…` {
		t.Errorf("three characters: got %s", got)
	}
	if got, cut := Bytes("a\x1bcd", 4); got != "a" || !cut {
		t.Errorf("four bytes: got %s, %v", got, cut)
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff\u3164", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		got := Text(s)
		if strings.ContainsFunc(got, Unsafe) || !utf8.ValidString(got) || Text(got) != got {
			t.Fatalf("%q: got %q", s, got)
		}
		if most < 0 {
			return
		}
		short, cut := Bytes(s, most)
		if len(short) > most || !strings.HasPrefix(got, short) || cut == (short == got) {
			t.Errorf("%q in %d bytes: got %q, %v", s, most, short, cut)
		}
		if some := Runes(s, most); some != got && !strings.HasPrefix(got, strings.TrimSuffix(some, "…")) {
			t.Errorf("%q in %d characters: got %q", s, most, some)
		}
	})
}
