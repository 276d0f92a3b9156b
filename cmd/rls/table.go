package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// unbounded is the width of an output that is not a terminal: no text is cut.
const unbounded = 0

// widthOf returns the columns of a terminal. COLUMNS overrides it. Otherwise, a file that is
// not a terminal is unbounded.
func widthOf(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return unbounded
}

// plain returns s without any character that a terminal would obey: control characters, and
// those that are invisible or change the direction of text, are shown as Go escapes them.
func plain(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case obeyed(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func obeyed(r rune) bool { return !unicode.IsPrint(r) }

// columns returns how many columns of a terminal a plain text takes.
func columns(s string) int {
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

// fit cuts a plain text to a number of columns; an ellipsis shows the cut. It also cuts
// characters that take no column, of which a hostile text may have many.
func fit(s string, most int) string {
	if columns(s) <= most && len(s) <= 8*(most+1) {
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

// A cell is a text, or a picture that is drawn as wide as its column.
type cell struct {
	text  string
	draw  func(columns int) string
	paint func(string) string // nil: no colour
}

// text returns the cell of a text from anywhere.
func text(s string) cell { return cell{text: plain(s)} }

// A column is one column of a table.
type column struct {
	title string
	right bool // aligned
	// least is the width to which the column shrinks where the terminal is narrow. Zero: it
	// does not shrink.
	least int
	// want is the width of pictures where there is room.
	want int
	// drop is above zero for a column that a narrow terminal does without, the largest first.
	drop int
	// first drops the column before any text is cut.
	first bool
	// sparse leaves the column out if no row has a text in it.
	sparse bool
}

// A table fits its columns into the width of a terminal.
type table struct {
	width   int // unbounded: no limit
	paint   colours
	columns []column
	rows    [][]cell
	notes   map[int]string // below a row, by its number
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// note adds a line below the last row.
func (t *table) note(s string) {
	if s == "" {
		return
	}
	if t.notes == nil {
		t.notes = make(map[int]string)
	}
	t.notes[len(t.rows)-1] = s
}

const gap = "  " // between columns

// widths returns the width of each column; -1 is one that there is no room for.
func (t *table) widths() []int {
	all := make([]int, len(t.columns))
	for i, c := range t.columns {
		all[i] = max(columns(c.title), c.want)
		empty := c.sparse && len(t.rows) > 0
		for _, row := range t.rows {
			all[i] = max(all[i], columns(row[i].text))
			empty = empty && row[i].text == ""
		}
		if empty && t.width != unbounded {
			all[i] = -1 // a pipe gets every column, so that a column keeps its place
		}
	}
	if t.width == unbounded {
		return all
	}
	for {
		over := -len(gap) - t.width
		for _, w := range all {
			if w >= 0 {
				over += w + len(gap)
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
func (t *table) shrink(all []int, by int, pictures bool) bool {
	widest := -1
	for i, c := range t.columns {
		if pictures && c.want == 0 {
			continue
		}
		if c.least > 0 && all[i] > c.least && (widest < 0 || all[i] > all[widest]) {
			widest = i
		}
	}
	if widest < 0 {
		return false
	}
	all[widest] = max(t.columns[widest].least, all[widest]-max(1, by/2))
	return true
}

// drop leaves out the column that is needed least: of those that go first, or of all.
func (t *table) drop(all []int, first bool) bool {
	worst := -1
	for i, c := range t.columns {
		if first && !c.first {
			continue
		}
		if c.drop > 0 && all[i] >= 0 && (worst < 0 || c.drop > t.columns[worst].drop) {
			worst = i
		}
	}
	if worst < 0 {
		return false
	}
	all[worst] = -1
	return true
}

// write writes the titles and the rows.
func (t *table) write(w io.Writer) {
	all := t.widths()
	t.writeTitles(w, all)
	for i, row := range t.rows {
		t.writeRow(w, all, row)
		if note := t.notes[i]; note != "" {
			if t.width != unbounded {
				note = fit(note, t.width-len(gap))
			}
			fmt.Fprintf(w, "%s%s\n", gap, note)
		}
	}
}

func (t *table) writeTitles(w io.Writer, all []int) {
	var titles []cell
	for _, c := range t.columns {
		titles = append(titles, cell{text: c.title, paint: t.paint.bold})
	}
	t.writeRow(w, all, titles)
}

func (t *table) writeRow(w io.Writer, all []int, row []cell) {
	var line strings.Builder
	last := len(all) - 1
	for last > 0 && (all[last] < 0 || row[last].text == "" && row[last].draw == nil) {
		last-- // no white space at the end of a line
	}
	for i, c := range row[:last+1] {
		if all[i] < 0 {
			continue
		}
		s := c.text
		if c.draw != nil {
			s = c.draw(all[i])
		}
		s = fit(s, all[i])
		space := strings.Repeat(" ", max(0, all[i]-columns(s)))
		if c.paint != nil && s != "" {
			s = c.paint(s)
		}
		switch {
		case t.columns[i].right:
			s = space + s
		case i < last:
			s += space
		}
		line.WriteString(s)
		if i < last {
			line.WriteString(gap)
		}
	}
	fmt.Fprintln(w, line.String())
}

var eighths = []rune(" ▏▎▍▌▋▊▉█")

// bar returns a picture of a share from 0 to 1.
func bar(share float64) func(int) string {
	return func(columns int) string {
		n := int(min(max(share, 0), 1)*float64(columns*8) + 0.5)
		if share > 0 && n == 0 {
			n = 1
		}
		full := strings.Repeat("█", n/8)
		if n%8 > 0 {
			full += string(eighths[n%8])
		}
		return full + strings.Repeat("░", columns-utf8.RuneCountInString(full))
	}
}

// spark returns a picture of counts, each the sum of as many as the columns ask for.
func spark(counts []uint64) func(int) string {
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
