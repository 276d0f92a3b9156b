package main

import "os"

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
