package strict

import (
	"bytes"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestLargeFileThatIsNoText has the fault at the end of many lines. To count the lines
// at each character would take an hour.
func TestLargeFileThatIsNoText(t *testing.T) {
	const lines = 1 << 20
	data := append(bytes.Repeat([]byte("# comment\n"), lines-1), "\xff: x"...)
	_, p := Parse("f.yaml", data)
	want := Problem{File: "f.yaml", Line: lines, Message: "not YAML: not UTF-8; save the file as UTF-8"}
	if p == nil || *p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}

// TestParts counts keys and items in each form of YAML.
func TestParts(t *testing.T) {
	for text, want := range map[string]int{
		"":                      0,
		"a: b\n":                1,
		"a:\n  - b\n  - c: d\n": 4,
		`{"a":1,"b":[2,3]}`:     6,
		"- a-b.c\n- -1\n":       2,
	} {
		if got := Parts([]byte(text)); got != want {
			t.Errorf("Parts(%q): got %d, want %d", text, got, want)
		}
	}
}

// FuzzParts holds Parts against the values that the YAML library makes of a text.
func FuzzParts(f *testing.F) {
	for _, s := range []string{
		"a", "a: b\n", "- - - a\n- ? b\n", "{a, b, [c: d]}", "--- a\n--- b\n", "a\n...\nb\n...\n", "a\r...\rb\r", "{\"a\" :1,\"b\"\n:2}", "? - a\n: - b\n",
		"\xff\xfe-\x00 \x00a\x00\n\x00-\x00\n\x00", "\xfe\xff\x00-\x00 \x00a", "-\u0085-\u0085", "-\u2028-\u2028", "&a [*a, *a]", "!a {!b ? c : d}", "[{a},{a}]", "|\n - a\n", "[?]", "[? a]", "{? }", "[:]", "{-}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := parseNodes(data)
		if err != nil {
			return
		}
		var count func(nodes []*yaml.Node) int
		count = func(nodes []*yaml.Node) (n int) {
			for _, node := range nodes {
				n += 1 + count(node.Content)
			}
			return n
		}
		if got, parts := count(docs), Parts(data); got > 3*parts+3 {
			t.Errorf("%q: %d values of %d parts", data, got, parts)
		}
	})
}
