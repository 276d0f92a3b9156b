package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/slidegate/slidegate/internal/text/safetext"
)

// Unbounded is the width of an output that is not a terminal: no text is cut.
const Unbounded = 0

// JSON escapes the characters of JSON that a terminal would obey. They can only be in
// strings.
func JSON(data []byte) string {
	var b strings.Builder
	for _, r := range string(data) {
		switch {
		case r == '\n' || !safetext.Unsafe(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Columns returns how many columns of a terminal a plain text takes.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0 // drawn over the character before
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// Fit cuts a plain text to a number of columns; an ellipsis shows the cut. It also cuts
// characters that take no column, of which a hostile text may have many.
func Fit(s string, most int) string {
	if Columns(s) <= most && len(s) <= 8*(most+1) {
		return s
	}
	var b strings.Builder
	used := 0
	for i, r := range s {
		n := runeColumns(r)
		if used+n > most-1 || i > 8*most {
			break
		}
		used += n
		b.WriteRune(r)
	}
	if most > 0 {
		b.WriteString("…")
	}
	return b.String()
}

// A Cell is a text, or a picture that is drawn as wide as its column.
type Cell struct {
	Text  string
	Draw  func(columns int) string
	Paint func(string) string // nil: no colour
}

// Text returns the cell of a text from anywhere.
func Text(s string) Cell { return Cell{Text: safetext.Text(s)} }

// A Column is one column of a table.
type Column struct {
	Title string
	Right bool // aligned
	// Least is the width to which the column shrinks where the terminal is narrow. Zero: it
	// does not shrink.
	Least int
	// Want is the width of pictures where there is room.
	Want int
	// Drop is above zero for a column that a narrow terminal does without, the largest first.
	Drop int
	// First drops the column before any text is cut.
	First bool
	// Sparse leaves the column out if no row has a text in it.
	Sparse bool
}

// A Table fits its columns into the width of a terminal.
type Table struct {
	Width   int // Unbounded: no limit
	Paint   Colours
	Columns []Column
	Rows    [][]Cell
	notes   map[int]string // below a row, by its number
}

// Add adds a row.
func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Note adds a line below the last row.
func (t *Table) Note(s string) {
	if s == "" {
		return
	}
	if t.notes == nil {
		t.notes = make(map[int]string)
	}
	t.notes[len(t.Rows)-1] = s
}

// Gap is between columns.
const Gap = "  "

// Widths returns the width of each column; -1 is one that there is no room for.
func (t *Table) Widths() []int {
	all := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		all[i] = max(Columns(c.Title), c.Want)
		empty := c.Sparse && len(t.Rows) > 0
		for _, row := range t.Rows {
			all[i] = max(all[i], Columns(row[i].Text))
			empty = empty && row[i].Text == ""
		}
		if empty && t.Width != Unbounded {
			all[i] = -1 // a pipe gets every column, so that a column keeps its position
		}
	}
	if t.Width == Unbounded {
		return all
	}
	for {
		over := -len(Gap) - t.Width
		for _, w := range all {
			if w >= 0 {
				over += w + len(Gap)
			}
		}
		if over <= 0 {
			return all
		}
		// Pictures make room first, then texts are cut.
		if !t.shrink(all, over, true) && !t.drop(all, true) && !t.shrink(all, over, false) && !t.drop(all, false) {
			return all
		}
	}
}

// shrink makes the widest column that can shrink narrower: one of pictures, or any one.
func (t *Table) shrink(all []int, by int, pictures bool) bool {
	widest := -1
	for i, c := range t.Columns {
		if pictures && c.Want == 0 {
			continue
		}
		if c.Least > 0 && all[i] > c.Least && (widest < 0 || all[i] > all[widest]) {
			widest = i
		}
	}
	if widest < 0 {
		return false
	}
	all[widest] = max(t.Columns[widest].Least, all[widest]-max(1, by/2))
	return true
}

// drop leaves out the column that is needed least: of those that go first, or of all.
func (t *Table) drop(all []int, first bool) bool {
	worst := -1
	for i, c := range t.Columns {
		if first && !c.First {
			continue
		}
		if c.Drop > 0 && all[i] >= 0 && (worst < 0 || c.Drop > t.Columns[worst].Drop) {
			worst = i
		}
	}
	if worst < 0 {
		return false
	}
	all[worst] = -1
	return true
}

// Write writes the titles and the rows.
func (t *Table) Write(w io.Writer) {
	all := t.Widths()
	var titles []Cell
	for _, c := range t.Columns {
		titles = append(titles, Cell{Text: c.Title, Paint: t.Paint.Bold})
	}
	t.WriteRow(w, all, titles)
	for i, row := range t.Rows {
		t.WriteRow(w, all, row)
		if note := t.notes[i]; note != "" {
			if t.Width != Unbounded {
				note = Fit(note, t.Width-len(Gap))
			}
			fmt.Fprintf(w, "%s%s\n", Gap, note)
		}
	}
}

// WriteRow writes a row in columns of these widths.
func (t *Table) WriteRow(w io.Writer, all []int, row []Cell) {
	var line strings.Builder
	last := len(all) - 1
	for last > 0 && (all[last] < 0 || row[last].Text == "" && row[last].Draw == nil) {
		last-- // no white space at the end of a line
	}
	for i, c := range row[:last+1] {
		if all[i] < 0 {
			continue
		}
		s := c.Text
		if c.Draw != nil {
			s = c.Draw(all[i])
		}
		s = Fit(s, all[i])
		space := strings.Repeat(" ", max(0, all[i]-Columns(s)))
		if c.Paint != nil && s != "" {
			s = c.Paint(s)
		}
		switch {
		case t.Columns[i].Right:
			s = space + s
		case i < last:
			s += space
		}
		line.WriteString(s)
		if i < last {
			line.WriteString(Gap)
		}
	}
	fmt.Fprintln(w, line.String())
}

var eighths = []rune(" ▏▎▍▌▋▊▉█")

// Bar returns a picture of a fraction from 0 to 1.
func Bar(fraction float64) func(int) string {
	return func(columns int) string {
		n := int(min(max(fraction, 0), 1)*float64(columns*8) + 0.5)
		if fraction > 0 && n == 0 {
			n = 1
		}
		full := strings.Repeat("█", n/8)
		if n%8 > 0 {
			full += string(eighths[n%8])
		}
		return full + strings.Repeat("░", columns-utf8.RuneCountInString(full))
	}
}

// Spark returns a picture of counts, each the sum of as many as the columns ask for.
func Spark(counts []uint64) func(int) string {
	heights := []rune("▁▂▃▄▅▆▇█")
	return func(columns int) string {
		n := min(columns, len(counts))
		sums := make([]float64, n)
		for i, c := range counts {
			sums[i*n/len(counts)] += float64(c)
		}
		var b strings.Builder
		for _, s := range sums {
			if s == 0 {
				b.WriteRune('·')
				continue
			}
			b.WriteRune(heights[int(s/slices.Max(sums)*float64(len(heights)-1))])
		}
		return b.String()
	}
}
