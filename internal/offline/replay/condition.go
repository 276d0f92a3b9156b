package replay

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Condition is a bound on one figure of a report: "denied>0.1%". Its grammar is
//
//	["rule:" NAME "."] FIGURE (">=" | ">" | "<=" | "<") NUMBER ["%"]
//
// A figure that says why a report may mislead can stand alone: "span" is "span>0". NAME is the name
// of a rule, which can have dots. With a percent sign the figure is a percentage: of
// the requests, of the callers or of the lines.
type Condition struct {
	text     string
	rule     string // empty: all rules
	figure   *figure
	operator string
	number   float64
	percent  bool
}

// A figure is what a [Condition] can be about. Its functions return it, and what it is a percentage of.
type figure struct {
	name, means string
	of          func(*Report) (value, of uint64)
	ofRule      func(*RuleTotal) (value, of uint64) // nil: it is of no rule
}

var figures = []*figure{
	{"requests", "requests that were decided", func(r *Report) (uint64, uint64) { return r.Requests, r.Requests }, nil},
	{"denied", "denied requests", func(r *Report) (uint64, uint64) { return r.Denied, r.Requests }, func(t *RuleTotal) (uint64, uint64) { return t.Denied, t.Requests }},
	{"near", "admitted requests after which at most a tenth of a limit remained", func(r *Report) (uint64, uint64) { return r.Near, r.Requests }, func(t *RuleTotal) (uint64, uint64) { return t.Near, t.Requests }},
	{"subjects.denied", "callers that were denied at least once", (*Report).callers, func(t *RuleTotal) (uint64, uint64) { return t.DeniedLogs, t.Logs }},
	{"newly_denied", "requests that --against allows and the rules deny", func(r *Report) (uint64, uint64) { return cmp.Or(r.Against, &Comparison{}).NewlyDenied, r.Requests }, nil},
	{"freed", "requests that --against denies and the rules allow", func(r *Report) (uint64, uint64) { return cmp.Or(r.Against, &Comparison{}).Freed, r.Requests }, nil},
	{"unlimited", "requests that no rule limits", func(r *Report) (uint64, uint64) { return r.Unlimited, r.Requests }, nil},
	{"unreadable", "lines that could not be read", func(r *Report) (uint64, uint64) { return r.Logs.Broken, r.Logs.Lines }, nil},
	{"no_address", "requests whose client is no IP address", func(r *Report) (uint64, uint64) { return r.Logs.NoAddress, r.Requests }, nil},
	{"span", "requests that began long before the log, by their durations", func(r *Report) (uint64, uint64) { return r.Logs.TooEarly, r.Requests }, nil},
	{"late", "requests that came too late in the log", func(r *Report) (uint64, uint64) { return r.Logs.Late, r.Logs.Lines }, nil},
}

// callers sums those of all rules. What is only observed denies no request.
func (r *Report) callers() (denied, of uint64) {
	for i := range r.Totals {
		if t := &r.Totals[i]; !t.Observed {
			denied, of = denied+t.DeniedLogs, of+t.Logs
		}
	}
	return denied, of
}

var conditions = regexp.MustCompile(`^\s*(?:rule:(.+?)\.)?(` + strings.ReplaceAll(figureNames("|", false), ".", `\.`) + `)\s*(>=|>|<=|<)\s*([0-9.]+)\s*(%?)\s*$`)

// ParseCondition parses a condition.
func ParseCondition(text string) (c Condition, err error) {
	full := text
	if slices.Contains([]string{"unreadable", "no_address", "span"}, text) {
		full += ">0"
	}
	m := conditions.FindStringSubmatch(full)
	if m == nil {
		m = make([]string, 6)
	}
	c = Condition{text: text, rule: m[1], operator: m[3], percent: m[5] != ""}
	if at := slices.IndexFunc(figures, func(f *figure) bool { return f.name == m[2] }); at >= 0 {
		c.figure = figures[at]
	}
	c.number, err = strconv.ParseFloat(m[4], 64)
	switch {
	case err != nil || c.figure == nil || c.rule != "" && c.figure.ofRule == nil:
		return c, fmt.Errorf("%q: expected a comparison such as denied>0.1%% or rule:NAME.denied>100; the figures are %s, and of a rule %s",
			text, figureNames(", ", false), figureNames(", ", true))
	case c.percent && c.number > 100:
		return c, fmt.Errorf("%q: a percentage is at most 100%%", text)
	}
	return c, nil
}

// figuresHelp returns a line for each figure of a [Condition].
func figuresHelp() string {
	var b strings.Builder
	for _, f := range figures {
		fmt.Fprintf(&b, "  %-16s  %s", f.name, f.means)
		if f.ofRule != nil {
			b.WriteString("; also of one rule")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// figureNames lists the names of the figures, or of those that can be about one rule.
func figureNames(between string, ofRule bool) string {
	var names []string
	for _, f := range figures {
		if f.ofRule != nil || !ofRule {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, between)
}

// String returns the condition as it was given.
func (c Condition) String() string { return c.text }

// Rule returns the name of the rule that the condition is about, empty if it is about all.
func (c Condition) Rule() string { return c.rule }

// Compares reports whether the condition is about a comparison with other rules.
func (c Condition) Compares() bool {
	return c.figure.name == "newly_denied" || c.figure.name == "freed"
}

// Met reports whether the condition is true of a report. figure is the number that decided, as
// text.
func (c Condition) Met(r *Report) (figure string, met bool) {
	value, of := c.value(r)
	figure = strconv.FormatUint(value, 10)
	n := float64(value)
	if c.percent {
		if n = 0; of > 0 {
			n = 100 * float64(value) / float64(of)
		}
		figure = fmt.Sprintf("%.4g%% (%d of %d)", n, value, of)
	}
	switch c.operator {
	case ">":
		met = n > c.number
	case ">=":
		met = n >= c.number
	case "<":
		met = n < c.number
	default:
		met = n <= c.number
	}
	return figure, met
}

// value returns the figure, and what it is a percentage of.
func (c Condition) value(r *Report) (value, of uint64) {
	if c.rule == "" {
		return c.figure.of(r)
	}
	for i := range r.Totals {
		if t := &r.Totals[i]; t.Rule == c.rule {
			v, n := c.figure.ofRule(t)
			value, of = value+v, of+n
		}
	}
	return value, of
}

// Help returns what the help of rls replay says of its flags.
func Help() string {
	return `Descriptors: --envoy takes a bootstrap, files of routes, or the answer of /config_dump. For other proxies, --map takes a list of descriptors, as in docs/examples/replay-nginx.yaml. A route needs what its match reads: the path, the host, headers, or its name (%ROUTE_NAME%). The report ends with the log operators that are missing, and what rls assumed instead.

Formats: rls recognises these in each file, and the formats in the file of --envoy:
  json   the names that the files in envoy/ give what a request sends, and the default logs of Envoy Gateway and Istio
  envoy  the default text format of Envoy
  nginx  combined and common of nginx and Apache, also with $request_time or "$http_x_forwarded_for" at the end, and the default of ingress-nginx
  caddy  the JSON of Caddy
For any other text, --format takes the format as Envoy or nginx write it: '$remote_addr [$time_local] "$request" $status'. rls removes what kubectl logs, Docker, containerd, syslog, journald, Fluent Bit, Vector, Loki and Google Cloud put before or around a line. A line that one of them has split is unreadable.

Conditions of --fail-if: a figure, one of > >= < <=, and a number. With % the number is a percentage of the requests, of the callers or of the lines. rule:NAME. before a figure takes one rule. The figures unreadable, no_address and span alone mean more than zero.
` + figuresHelp() + `
Exit code 3: the report is of a part of the requests, because the command was interrupted, a log could not be read to its end, or the memory of store.memory.max_bytes was full.`
}
