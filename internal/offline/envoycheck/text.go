package envoycheck

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/terminal"
)

// maxOfCode bounds the findings of one code that people read.
const maxOfCode = 20

// WriteText writes the report for people: each finding, what was not read, and what is proven if there
// is no error. width is that of the terminal.
func (r *Report) WriteText(w io.Writer, width int, paint terminal.Colours) {
	colours := map[Severity]func(string) string{Error: paint.Red, Warning: paint.Yellow, Note: paint.Bold}
	const indent = "  "
	if width != terminal.Unbounded {
		width -= len(indent)
	}
	printed := make(map[Code]int)
	for _, f := range r.Findings {
		if printed[f.Code]++; printed[f.Code] > maxOfCode {
			continue
		}
		fmt.Fprintf(w, "%s %s: %s\n", colours[f.Severity](string(f.Severity)), f.Code, paint.Bold(f.Where))
		text := f.Message
		if f.Passes != "" {
			text += "\npasses: " + f.Passes
		}
		text = terminal.Wrap(text+"\ndo: "+f.Fix, width)
		fmt.Fprintln(w, indent+strings.ReplaceAll(text, "\n", "\n"+indent))
	}
	for _, code := range slices.Sorted(maps.Keys(printed)) {
		if more := printed[code] - maxOfCode; more > 0 {
			fmt.Fprintf(w, "%d more of %s: --json has all\n", more, code)
		}
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w)
	}
	for _, one := range r.Probed {
		fmt.Fprintln(w, one.text())
	}
	for _, text := range r.NotRead {
		fmt.Fprintf(w, "not read: %s\n", text)
	}
	if !r.Has(Error) {
		fmt.Fprintln(w, r.Proven)
	}
}
