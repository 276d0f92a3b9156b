package terminal

import "strings"

// Wrap breaks the lines of a text between words, so that each fits into a width if its words do.
func Wrap(text string, width int) string {
	if width == Unbounded {
		return text
	}
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		at := 0
		for i, word := range strings.Fields(line) {
			n := Columns(word)
			if i == 0 || at+1+n > width {
				out, at = append(out, word), n
				continue
			}
			out[len(out)-1] += " " + word
			at += 1 + n
		}
		if strings.TrimSpace(line) == "" {
			out = append(out, "")
		}
	}
	return strings.Join(out, "\n")
}
