package window

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// manual is the page that explains the log. What is between its markers is made
// by TestManual, so that it cannot drift from the code.
const (
	manual      = "../../docs/window.md"
	manualBegin = "<!-- made by TestManual: begin -->\n"
	manualEnd   = "<!-- made by TestManual: end -->\n"
)

// TestManual works one key step by step and compares it with the page. With
// -update it writes the page.
func TestManual(t *testing.T) {
	page, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), manualBegin)
	_, after, ok2 := strings.Cut(rest, manualEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", manual, manualBegin, manualEnd)
	}
	want := before + manualBegin + "```\n" + workedKey() + "```\n" + manualEnd + after
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code does; look at it and run this test with -update:\n%s", manual, workedKey())
	}
	if err := os.WriteFile(manual, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// workedKey returns one key, limit 3 per 10 s, step by step.
func workedKey() string {
	const second = 1_000_000
	var (
		b   strings.Builder
		log []byte
	)
	b.WriteString("      kind clock          base     expiry     | time       sum      | ...\n")
	for _, s := range []struct {
		at   int64
		mode Mode
		cost uint64
	}{
		{1, Enforce, 1},
		{4, Enforce, 1},
		{4, Enforce, 1},
		{9, Enforce, 1},
		{9, Enforce, 2},
		{9, Enforce, 4},
		{11, Enforce, 1},
		{12, Always, 4},
		{12, Enforce, 1},
		{13, Refund, 5},
		{14, Enforce, 2},
	} {
		c := &Check{Limit: Limit{Hits: 3, Window: 10 * time.Second}, Cost: s.cost, Mode: s.mode}
		var d Decision
		before := string(log)
		log = take(log, s.at*second, c, &d)
		answer := "allowed"
		switch {
		case s.mode == Refund:
			answer = "given back"
		case s.mode == Always:
			answer = "recorded, over the limit"
		case d.Never:
			answer = "never"
		case !d.Allowed:
			answer = fmt.Sprintf("denied, again in %v", d.RetryAfter)
		}
		bytes := "unchanged"
		if before != string(log) {
			bytes = spell(log)
		}
		fmt.Fprintf(&b, "t=%-2d %-7v %d  %s; %d left\n      %s\n", s.at, s.mode, s.cost, answer, d.Remaining, bytes)
	}
	return b.String()
}

// spell writes the bytes of a small log, a space between fields and a bar
// between slots.
func spell(log []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%x   %x %x %x", log[:atClock], log[atClock:atBase], log[atBase:atExpiry], log[atExpiry:atSmall])
	for at := atSmall; at < len(log); at += slotBytes {
		fmt.Fprintf(&b, " | %x %x", log[at:at+atSum], log[at+atSum:at+slotBytes])
	}
	return b.String()
}
