package compat

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// Configured is what the settings file and the SLIDEGATE_ variables say.
type Configured struct {
	Settings settings.Settings
	Origins  settings.Origins
}

// A State says what a variable became.
type State string

// The states of a row.
const (
	// StateDefault: the variable is not set.
	StateDefault State = "default"
	// StateUsed: the variable has its effect.
	StateUsed State = "used"
	// StateNoEffect: the value has no effect, here or there.
	StateNoEffect State = "no effect"
	// StateIgnored: the value has an effect in envoyproxy/ratelimit, and none here.
	StateIgnored State = "ignored"
	// StateRefused: rls does not start with the value.
	StateRefused State = "refused"
)

// A Row is one variable of envoyproxy/ratelimit and what it became. It holds no secret.
type Row struct {
	Name string `json:"name"`
	// Set says whether the environment has the variable.
	Set bool `json:"set"`
	// Value is hidden if it is or may hold a secret.
	Value string `json:"value"`
	State State  `json:"state"`
	// Settings are what it became. A default of envoyproxy/ratelimit is here too.
	Settings []Value `json:"settings,omitempty"`
	// Why explains the state. Empty: there is nothing to explain.
	Why string `json:"why,omitempty"`
}

// A Value is a setting and its text. It holds no secret.
type Value struct {
	Setting string `json:"setting"`
	Text    string `json:"value"`
	// By names the variable, or the file and the line, that says something else. Empty: this
	// value counts.
	By string `json:"overridden_by,omitempty"`
}

// A Reading is the environment of envoyproxy/ratelimit, as settings.
type Reading struct {
	// Rows has every variable of envoyproxy/ratelimit.
	Rows []Row
	// Always are the settings of a drop-in that no variable says.
	Always []Value
	// DropIn is what [settings.Load] takes.
	DropIn settings.DropIn
	// Problems has one problem for each variable that is refused. [settings.Load] can find
	// more: see [Reading.Complete].
	Problems strict.Problems

	hidden hidden
}

// hidden has the values that are not shown, as messages quote them.
type hidden []string

func (h hidden) hide(message string) string {
	for _, text := range h {
		message = strings.ReplaceAll(message, text, strict.Hidden)
	}
	return message
}

// Read reads the environment, as [os.Environ] returns it. configured has the settings that win over
// the variables.
func Read(environ []string, configured Configured) *Reading {
	r := &reader{configured: configured, by: make(map[string]*value), dropIn: settings.Default().DropIn}
	for i := range table {
		if v := &table[i]; v.prefix() == "" {
			r.parse(v, environ)
		}
	}
	r.always()
	r.listeners()
	r.logs()
	r.rules()
	r.redis()
	r.headers()
	r.metrics()
	r.traces()
	out := &Reading{Always: r.all, DropIn: r.dropIn, Problems: r.problems, hidden: r.hidden}
	for _, v := range r.values {
		switch {
		case v.row.State != "":
		case !v.row.Set:
			v.row.State = StateDefault
		case len(v.row.Settings) == 0 && strings.TrimSpace(v.text) == "":
			v.row.State, v.row.Why = StateNoEffect, "it is empty"
		case len(v.row.Settings) == 0 && len(r.problems) > 0:
			v.row.State, v.row.Why = StateNoEffect, "another variable is refused"
		default:
			v.row.State = StateUsed
		}
		out.Rows = append(out.Rows, v.row)
	}
	out.Rows = append(out.Rows, r.families(environ)...)
	return out
}

// Complete adds the problems of [settings.Load] to r. If the position of a problem is a
// variable of envoyproxy/ratelimit, its row becomes refused. A problem that only follows from a
// refused variable is left out: the setting has no value because of it.
func (r *Reading) Complete(problems strict.Problems) {
	follows := make(map[string]bool)
	for i := range table {
		if row := r.row(table[i].name); row != nil && row.State == StateRefused {
			for _, path := range table[i].sets {
				follows[path] = true
			}
		}
	}
	for _, p := range problems {
		if p.File == "" && follows[p.Path] {
			continue
		}
		p.Message = r.hidden.hide(p.Message)
		if row := r.row(p.Path); p.File == environment && row != nil && row.State != StateRefused {
			row.State, row.Why = StateRefused, p.Message
		}
		r.Problems = append(r.Problems, p)
	}
}

func (r *Reading) row(name string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// Understood returns what the variables that are set became, one text for each. Ignored and
// refused ones are not in it.
func (r *Reading) Understood() (all []string) {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Set && row.State == StateUsed {
			all = append(all, row.Name+": "+row.Became())
		}
	}
	return all
}

// Became says in words what the variable became.
func (r *Row) Became() string {
	var parts []string
	for _, v := range r.Settings {
		parts = append(parts, v.String())
	}
	text := strings.Join(parts, ", ")
	switch {
	case r.State == StateDefault && text == "" && r.Why == "":
		return "same default"
	case r.State == StateDefault || r.State == StateUsed:
		if text == "" || r.Why == "" {
			return text + r.Why
		}
		return text + "; " + r.Why
	case text != "" && r.State == StateIgnored:
		return string(r.State) + ": " + r.Why + "; " + text
	default:
		return string(r.State) + ": " + r.Why
	}
}

// String returns the setting with its value, and what overrides it.
func (v Value) String() string {
	if v.By != "" {
		return v.Setting + ": set by " + v.By
	}
	text := v.Text
	if text == "" {
		text = `""`
	}
	return v.Setting + " = " + text
}

type reader struct {
	configured Configured
	by         map[string]*value
	values     []*value // in the order of the table
	all        []Value
	dropIn     settings.DropIn
	problems   strict.Problems
	hidden     hidden
}

type value struct {
	*variable
	row Row
	// bad says that the variable is refused, so that its value cannot be used.
	bad    bool
	text   string
	truth  bool
	number int64
	ratio  float64
	period time.Duration
	pairs  [][2]string
}

// service matches values of variables that Kubernetes sets for services.
var service = regexp.MustCompile(`^(tcp|udp|sctp)://`)

func (r *reader) parse(v *variable, environ []string) {
	out := &value{variable: v, row: Row{Name: v.name}}
	r.values, r.by[v.name] = append(r.values, out), out
	if err := out.read(v.def); err != nil {
		panic(v.name + ": " + err.Error()) // the table is wrong
	}
	given, ok := lookup(environ, v.name)
	if !ok {
		return
	}
	out.row.Set, out.row.Value = true, show(v, given)
	if out.row.Value != given {
		r.hidden = append(r.hidden, strict.Quote(given))
	}
	switch {
	case v.why != "":
		r.noEffect(v.why, v.name)
		return
	case strings.HasSuffix(v.name, "PORT") && service.MatchString(given):
		r.ignore(v.name, "Kubernetes sets it for a service; it counts as not set")
		return
	case given == "" && (v.needed || v.kind != text && v.kind != pairs):
		r.ignore(v.name, "it is empty and counts as not set")
		return
	}
	if err := out.read(given); err != nil && !r.overridden(v) {
		r.refuse(v.name, "%s", err)
	}
}

// overridden reports whether no setting needs the variable, because others say all of them.
func (r *reader) overridden(v *variable) bool {
	if r.inMemory() && strings.HasPrefix(v.name, "REDIS_") {
		return true
	}
	return len(v.sets) > 0 && !slices.ContainsFunc(v.sets, func(path string) bool { return r.origin(path) == "" })
}

// read takes a text as envoyproxy/ratelimit does. A text that cannot be read leaves the default.
func (v *value) read(given string) error {
	if given == "" && v.kind != text && v.kind != pairs {
		return nil // no default
	}
	var err error
	switch v.kind {
	case text:
	case truth:
		err = parse(&v.truth, given, "true or false", strconv.ParseBool)
	case number:
		err = parse(&v.number, given, "a whole number", func(text string) (int64, error) { return strconv.ParseInt(text, 0, 64) })
	case ratio:
		err = parse(&v.ratio, given, oneRatio, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	case period:
		err = parse(&v.period, given, "a time such as 10s", time.ParseDuration)
	case pairs:
		var all [][2]string
		if all, err = splitPairs(given); err == nil {
			v.pairs = all
		}
	}
	if err == nil {
		v.text = given
	}
	return err
}

const oneRatio = "a number from 0 to 1, such as 0.8"

// parse sets a value to what a text says. The error says what was expected.
func parse[T any](to *T, given, expected string, read func(string) (T, error)) error {
	value, err := read(given)
	if err != nil {
		return fmt.Errorf("expected %s, got %s", expected, strict.Quote(given))
	}
	*to = value
	return nil
}

// errPairs does not repeat the value, which may be a secret.
var errPairs = errors.New("expected name:value, several separated by commas, and no further colon")

func splitPairs(given string) (all [][2]string, err error) {
	if strings.TrimSpace(given) == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(given, ",") {
		parts := strings.Split(item, ":")
		if len(parts) != 2 {
			return nil, errPairs
		}
		all = append(all, [2]string{parts[0], parts[1]})
	}
	return all, nil
}

// show returns a value without secrets. A URL may hold a password before @ or after ?.
func show(v *variable, given string) string {
	if given != "" && (v.secret || strings.Contains(given, "@") || strings.HasSuffix(v.name, "_URL") && strings.Contains(given, "?")) {
		return strict.Hidden
	}
	return given
}

// families returns rows for set variables that a name with * stands for. Their values are hidden,
// because some of them are tokens.
func (r *reader) families(environ []string) (rows []Row) {
	for _, set := range environ {
		name, given, _ := strings.Cut(set, "=")
		for i := range table {
			v := &table[i]
			prefix := v.prefix()
			if prefix == "" || !strings.HasPrefix(name, prefix) || slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name }) {
				continue
			}
			row := Row{Name: name, Set: true, Value: show(&variable{secret: true}, given), State: StateNoEffect, Why: v.why}
			if v.name == otelFamily && r.truth("TRACING_ENABLED") {
				row.State, row.Why = StateUsed, "read as OpenTelemetry describes it"
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// origin says who sets a setting with a higher rank than envoyproxy/ratelimit. Empty: nothing does.
func (r *reader) origin(path string) string { return r.configured.Origins[path] }

// isSet reports whether a variable has a value that counts.
func (r *reader) isSet(name string) bool {
	v := r.by[name]
	return v.row.Set && v.row.State != StateIgnored && !v.bad
}

func (r *reader) text(name string) string { return r.by[name].text }
func (r *reader) truth(name string) bool  { return r.by[name].truth }

// give gives a setting the value that the variables say together.
func (r *reader) give(path, text string, from ...string) { r.giveShown(path, text, text, from) }

func (r *reader) giveSecret(path, text string, from ...string) {
	r.giveShown(path, text, strict.Hidden, from)
}

func (r *reader) giveTruth(path string, truth bool, from ...string) {
	r.give(path, strconv.FormatBool(truth), from...)
}

// giveText is give for a text that is passed on as it is. An empty one is not given.
func (r *reader) giveText(path, name string) {
	if v := r.by[name]; v.text != "" {
		r.giveShown(path, v.text, show(v.variable, v.text), []string{name})
	}
}

func (r *reader) giveShown(path, text, shown string, from []string) {
	given := settings.Given{Path: path, Text: text}
	for _, name := range slices.Backward(from) {
		if r.isSet(name) {
			given.From = name
		}
	}
	if r.say(path, shown, from) && r.origin(path) == "" {
		r.dropIn.Given = append(r.dropIn.Given, given)
	}
}

// say says in the rows of variables what they became. It returns false if one of them is refused.
func (r *reader) say(path, shown string, from []string) bool {
	for _, name := range from {
		v := r.by[name]
		if !slices.Contains(v.sets, path) {
			panic(name + " does not set " + path) // the table is wrong
		}
		if v.bad {
			return false
		}
	}
	for _, name := range from {
		row := &r.by[name].row
		row.Settings = append(row.Settings, Value{Setting: path, Text: shown, By: r.origin(path)})
	}
	return true
}

// drop sets a value of the drop-in that variables say together, and shows it under a name.
func drop[T any](r *reader, to *T, value T, path string, from ...string) {
	*to = value
	shown := fmt.Sprint(value)
	switch list := any(value).(type) {
	case []string:
		shown = strings.Join(list, ",")
	case []settings.Secret:
		shown = strict.Hidden
	}
	for _, name := range from {
		if show(r.by[name].variable, r.text(name)) == strict.Hidden {
			shown = strict.Hidden
		}
	}
	r.say(path, shown, from)
}

func (r *reader) mark(name string, s State, why string) {
	if row := &r.by[name].row; row.State == "" {
		row.State, row.Why = s, why
	}
}

// ignore says why a variable that is set has no effect here.
func (r *reader) ignore(name, why string) {
	if r.by[name].row.Set {
		r.mark(name, StateIgnored, why)
	}
}

// noEffect says why the values of variables change nothing, here and in envoyproxy/ratelimit.
func (r *reader) noEffect(why string, names ...string) {
	for _, name := range names {
		if r.by[name].row.Set {
			r.mark(name, StateNoEffect, why)
		}
	}
}

// note explains the effect of a variable that is set.
func (r *reader) note(name, why string) {
	if r.by[name].row.Set {
		r.mark(name, StateUsed, why)
	}
}

// refuse says why rls does not start with a variable. It need not be set.
func (r *reader) refuse(name, format string, args ...any) {
	v := r.by[name]
	if v.bad {
		return
	}
	message := r.hidden.hide(fmt.Sprintf(format, args...))
	v.bad, v.row.State, v.row.Why = true, StateRefused, message
	r.problems = append(r.problems, strict.Problem{File: environment, Path: name, Message: message})
}
