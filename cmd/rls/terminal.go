package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// coloursOf returns true for a terminal that has colours, unless NO_COLOR is set.
func coloursOf(f *os.File) terminal.Colours {
	info, err := f.Stat()
	isTerminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return terminal.Colours(isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// widthOf returns the columns of a terminal. COLUMNS overrides it. Otherwise, a file that is
// not a terminal is unbounded.
func widthOf(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return terminal.Unbounded
}

// stdout is standard output for all commands. It keeps the first error, which run reports: a full
// disk must not look like success, and many functions that print return no error.
var stdout screen

type screen struct{ err error }

// Write writes to os.Stdout. After an error it writes nothing more.
func (o *screen) Write(p []byte) (n int, err error) {
	if o.err != nil {
		return 0, o.err
	}
	n, o.err = os.Stdout.Write(p)
	return n, o.err
}

// invalid returns an error with each problem on a separate line, so that editors find the
// positions. A problem that several errors have is in it once.
func invalid(errs ...error) error {
	paint := coloursOf(os.Stderr)
	var lines []string
	reported := make(map[strict.Problem]bool)
	for _, p := range strict.ProblemsOf(errs...) {
		if !reported[p] {
			reported[p] = true
			lines = append(lines, problemLine(paint, p))
		}
	}
	return fmt.Errorf("the configuration is not valid:\n%s", strings.Join(lines, "\n"))
}

// problemLine returns a problem as text, with its position in bold.
func problemLine(paint terminal.Colours, p strict.Problem) string {
	message := safetext.Text(p.Message)
	p.Message = ""
	return paint.Bold(p.String()) + message
}
