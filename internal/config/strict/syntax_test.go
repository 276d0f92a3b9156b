package strict

import (
	"bytes"
	"testing"
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
