package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// verdict is the word for a decision in the table.
func verdict(allowed bool) string {
	if allowed {
		return "admitted"
	}
	return "denied"
}

// writeTable writes a line for each request.
func writeTable(w io.Writer, b *burst) {
	fmt.Fprintf(w, "%3s  %9s   %-12s  %-9s  %9s  %s\n", "", "when", "fixed window", "slidegate", "remaining", "retry-after")
	for i, r := range b.requests {
		if i > 0 && b.requests[i-1].offset < 0 && r.offset >= 0 {
			fmt.Fprintf(w, "%3s  %9s   %s\n", "", "0 ms", strings.Repeat("─", 16)+" a full second "+strings.Repeat("─", 17))
		}
		fmt.Fprintf(w, "%3d  %9s   %-12s  %-9s  %9d", i+1, milliseconds(r.offset), verdict(r.fixed), verdict(r.Allowed), r.remaining)
		if !r.Allowed {
			fmt.Fprintf(w, "  %9.0f s", r.RetryAfter.Seconds())
		}
		fmt.Fprintln(w)
	}
}

// milliseconds writes an offset with its sign.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%+.0f ms", float64(d)/float64(time.Millisecond))
}

const (
	// lineWidth is the number of columns of the time line, lineMiddle the one of
	// the full second.
	lineWidth  = 61
	lineMiddle = lineWidth / 2

	markAllowed = '●'
	markDenied  = '×'
)

// writeTimeLine writes a line of marks for each counter.
func writeTimeLine(w io.Writer, b *burst) {
	for _, l := range []struct {
		name string
		by   lane
	}{{"fixed window", fixed}, {"slidegate", slidegate}} {
		fmt.Fprintf(w, "%-12s  %s  %d admitted\n", l.name, timeLine(b, l.by), b.admitted(l.by))
	}
	span := reach(b)
	left, right := milliseconds(-span), milliseconds(span)
	fmt.Fprintf(w, "%-12s  %-*s0%*s  %c admitted  %c denied\n", "", lineMiddle, left, lineWidth-lineMiddle-1, right, markAllowed, markDenied)
}

// timeLine draws one lane, to scale.
func timeLine(b *burst, by lane) string {
	line := []rune(strings.Repeat("─", lineWidth))
	line[lineMiddle] = '│'
	span := reach(b)
	for _, r := range b.requests {
		mark := markDenied
		if by(r) {
			mark = markAllowed
		}
		at := lineMiddle + int(float64(lineMiddle)*float64(r.offset)/float64(span))
		line[min(max(at, 0), lineWidth-1)] = mark
	}
	return string(line)
}

// reach is how far the axis reaches to the left and to the right: whole steps of 20 ms.
func reach(b *burst) time.Duration {
	const tick = 20 * time.Millisecond
	span := max(-b.requests[0].offset, b.requests[len(b.requests)-1].offset)
	return max(1, (span+tick-1)/tick) * tick
}
