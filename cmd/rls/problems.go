package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// invalid returns an error with each problem on a line of its own, so that editors find the
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
