package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Condition is a bound on one figure of a report: "denied>0.1%". Its grammar is
//
//	["rule:" NAME "."] FIGURE (">=" | ">" | "<=" | "<") NUMBER ["%"]
//
// A figure that says why a report may mislead can stand alone: "span" is "span>0". NAME is the name
// of a rule, which can have dots. With a percent sign the figure is a share: of
// the requests, of the callers or of the lines.
type Condition struct {
	text     string
	rule     string // empty: all rules
	figure   string
	operator string
	number   float64
	share    bool
}

// figures are what a [Condition] can be about. Those with true can be about one rule.
var figures = []struct {
	Name, Means string
	OfRule      bool
}{
	{"requests", "requests that were decided", false},
	{"denied", "denied requests", true},
	{"near", "admitted requests after which at most a tenth of a limit remained", true},
	{"subjects.denied", "callers that were denied at least once", true},
	{"newly_denied", "requests that --against allows and the rules deny", false},
	{"freed", "requests that --against denies and the rules allow", false},
	{"unlimited", "requests that no rule limits", false},
	{"unreadable", "lines that could not be read", false},
	{"no_address", "requests whose client is no IP address", false},
	{"span", "requests that began long before the log, by their durations", false},
	{"late", "requests that came too late in the log", false},
}

// ParseCondition parses a condition.
func ParseCondition(text string) (c Condition, err error) {
	c.text = text
	if slices.Contains([]string{"unreadable", "no_address", "span"}, text) {
		text += ">0"
	}
	at := strings.LastIndexAny(text, "<>")
	if at < 0 {
		return c, fmt.Errorf("%q: expected a comparison, such as denied>0.1%%", text)
	}
	left, right := strings.TrimSpace(text[:at]), text[at+1:]
	c.operator = text[at : at+1]
	if rest, ok := strings.CutPrefix(right, "="); ok {
		c.operator, right = c.operator+"=", rest
	}
	if rest, ok := strings.CutSuffix(strings.TrimSpace(right), "%"); ok {
		c.share, right = true, rest
	}
	right = strings.TrimSpace(right)
	c.number, err = strconv.ParseFloat(right, 64)
	if err != nil || !(c.number >= 0 && c.number <= 1e18) || strings.Trim(right, "0123456789.") != "" {
		return c, fmt.Errorf("%q: expected a number such as 100 or 0.1%% after %s, not %q", text, c.operator, right)
	}
	if c.share && c.number > 100 {
		return c, fmt.Errorf("%q: a share is at most 100%%", text)
	}
	if rest, ok := strings.CutPrefix(left, "rule:"); ok {
		for _, f := range figures {
			if name, ok := strings.CutSuffix(rest, "."+f.Name); ok && f.OfRule && len(f.Name) > len(c.figure) {
				c.rule, c.figure = name, f.Name
			}
		}
		if c.rule == "" {
			return c, fmt.Errorf("%q: expected rule:NAME.FIGURE with one of the figures %s", text, figureNames(true))
		}
		return c, nil
	}
	for _, f := range figures {
		if left == f.Name {
			c.figure = f.Name
			return c, nil
		}
	}
	return c, fmt.Errorf("%q: there is no figure %q: expected one of %s, or rule:NAME. and one of %s", text, left, figureNames(false), figureNames(true))
}

// FiguresHelp returns a line for each figure of a [Condition].
func FiguresHelp() string {
	var b strings.Builder
	for _, f := range figures {
		fmt.Fprintf(&b, "  %-16s  %s", f.Name, f.Means)
		if f.OfRule {
			b.WriteString("; also of one rule")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// figureNames lists the names of the figures, or of those that can be about one rule.
func figureNames(ofRule bool) string {
	var names []string
	for _, f := range figures {
		if f.OfRule || !ofRule {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ", ")
}

// String returns the condition as it was given.
func (c Condition) String() string { return c.text }

// Rule returns the name of the rule that the condition is about, empty if it is about all.
func (c Condition) Rule() string { return c.rule }

// Compares reports whether the condition is about a comparison with other rules.
func (c Condition) Compares() bool { return c.figure == "newly_denied" || c.figure == "freed" }

// Holds reports whether the condition is true of a report. figure is the number that decided, as
// text.
func (c Condition) Holds(r *Report) (figure string, holds bool) {
	value, of := c.value(r)
	figure = strconv.FormatUint(value, 10)
	n := float64(value)
	if c.share {
		if n = 0; of > 0 {
			n = 100 * float64(value) / float64(of)
		}
		figure = fmt.Sprintf("%.4g%% (%d of %d)", n, value, of)
	}
	switch c.operator {
	case ">":
		holds = n > c.number
	case ">=":
		holds = n >= c.number
	case "<":
		holds = n < c.number
	default:
		holds = n <= c.number
	}
	return figure, holds
}

// value returns the figure, and what it is a share of.
func (c Condition) value(r *Report) (value, of uint64) {
	switch c.figure {
	case "requests":
		return r.Requests, r.Requests
	case "denied":
		if c.rule == "" {
			return r.Denied, r.Requests
		}
	case "newly_denied", "freed":
		if r.Against == nil {
			return 0, r.Requests
		}
		if c.figure == "freed" {
			return r.Against.Freed, r.Requests
		}
		return r.Against.NewlyDenied, r.Requests
	case "near":
		if c.rule == "" {
			return r.Near, r.Requests
		}
	case "unlimited":
		return r.Unlimited, r.Requests
	case "unreadable":
		return r.Logs.Unreadable, r.Logs.Lines
	case "no_address":
		return r.Logs.NoAddress, r.Requests
	case "span":
		return r.Logs.Span, r.Requests
	case "late":
		return r.Logs.Late, r.Logs.Lines
	}
	for i := range r.Totals {
		p := &r.Totals[i]
		if c.rule != "" && p.Rule != c.rule || c.rule == "" && p.Observed {
			continue // what is only observed denies no request
		}
		switch c.figure {
		case "denied":
			value, of = value+p.Denied, of+p.Requests
		case "near":
			value, of = value+p.Near, of+p.Requests
		default:
			value, of = value+p.DeniedLogs, of+p.Logs
		}
	}
	return value, of
}
