package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// invalid returns an error with each problem on a line of its own, so that editors find the
// places. A problem that several errors have is in it once.
func invalid(errs ...error) error {
	paint := coloursOf(os.Stderr)
	var lines []string
	told := make(map[strict.Problem]bool)
	for _, p := range problems(errs...) {
		if !told[p] {
			told[p] = true
			lines = append(lines, problemLine(paint, p))
		}
	}
	return fmt.Errorf("the configuration is not valid:\n%s", strings.Join(lines, "\n"))
}

// problems returns the problems in errs. An error without a place becomes a problem that has
// only a message.
func problems(errs ...error) (all []strict.Problem) {
	for _, err := range errs {
		if ps := strict.Problems(nil); errors.As(err, &ps) {
			all = append(all, ps...)
		} else if err != nil {
			all = append(all, strict.Problem{Message: err.Error()})
		}
	}
	return all
}

// problemLine returns a problem as text, with its place in bold.
func problemLine(paint terminal.Colours, p strict.Problem) string {
	message := safetext.Text(p.Message)
	p.Message = ""
	return paint.Bold(p.String()) + message
}
