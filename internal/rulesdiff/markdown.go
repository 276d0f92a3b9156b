package rulesdiff

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/safetext"
)

// WriteMarkdown writes the lines of the report for a comment on a pull request. It escapes every
// text.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### Rate limits: %s\n", r.Title())
	for _, l := range r.Lines() {
		line := text(l.Text)
		switch {
		case l.Title:
			line = "\n**" + line + "**"
		case l.Depth == 0:
			line = "\n" + line
		default:
			line = strings.Repeat("  ", l.Depth-1) + "- " + line
		}
		if l.Verdict != "" {
			line += ": " + l.Verdict.String()
		}
		if l.Title {
			line += "\n"
		}
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text returns a text that Markdown and HTML show as it is, on one line.
func text(s string) string {
	var b strings.Builder
	s = safetext.Text(s)
	for i, r := range s {
		switch {
		case r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(safe, r):
			fmt.Fprintf(&b, "&#%d;", r)
		case r == ':' && strings.HasPrefix(s[i:], "://"):
			b.WriteString("&#58;")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// safe are the characters besides letters and digits that mean nothing to Markdown within a line.
const safe = " .,:;/=%?'-"
