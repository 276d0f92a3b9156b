package packed

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// oneKey has the bytes of one log after each of several checks. layout.go explains them.
const oneKey = "testdata/one-key.txt"

// TestOneKey works one key step by step and compares it with the file. With -update it writes
// the file.
func TestOneKey(t *testing.T) {
	got := workedKey()
	if *update {
		if err := os.WriteFile(oneKey, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(oneKey)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the code does; look at it and run this test with -update:\n%s", oneKey, got)
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
		mode window.Mode
		cost uint64
	}{
		{1, window.Enforce, 1},
		{4, window.Enforce, 1},
		{4, window.Enforce, 1},
		{9, window.Enforce, 1},
		{9, window.Enforce, 2},
		{9, window.Enforce, 4},
		{11, window.Enforce, 1},
		{12, window.Always, 4},
		{12, window.Enforce, 1},
		{13, window.Refund, 5},
		{14, window.Enforce, 2},
	} {
		c := &window.Check{Limit: window.Limit{Hits: 3, Window: 10 * time.Second}, Cost: s.cost, Mode: s.mode}
		var d window.Decision
		before := string(log)
		log = take(log, s.at*second, c, &d)
		answer := "allowed"
		switch {
		case s.mode == window.Refund:
			answer = "given back"
		case s.mode == window.Always:
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
