package main

import (
	"os"
	"strconv"

	"golang.org/x/term"

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
