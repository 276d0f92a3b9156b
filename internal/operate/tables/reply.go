package tables

import (
	"strings"

	"github.com/slidegate/slidegate/internal/edge/ratelimit"
)

// Reply returns an answer of the service as a line. A denial says how long to wait, as far as that is
// known.
func Reply(r *ratelimit.Reply) string {
	code, parts := "OK", r.Limits
	if r.Denied {
		code = "OVER_LIMIT"
	}
	switch {
	case r.Never && r.Rule != "" && len(r.Limits) > 1:
		parts = append(parts, "the cost is above the limit of "+r.Rule)
	case r.Never:
		parts = append(parts, "the cost is above the limit")
	case r.Wait > 0:
		parts = append(parts, "retry after "+wait(r.Wait.Seconds()))
	}
	line := code + "  " + strings.Join(parts, "; ")
	if r.Degraded {
		line += " (degraded)"
	}
	return line
}
