package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// rulesDoc is one domain.
type rulesDoc struct {
	Domain      field[string]            `yaml:"domain,required"`
	Descriptors []field[descriptorEntry] `yaml:"descriptors"`
}

// descriptorEntry is one node of the rule tree.
type descriptorEntry struct {
	Key         field[string]            `yaml:"key,required"`
	Value       field[blankable]         `yaml:"value"`
	RateLimit   field[rateLimit]         `yaml:"rate_limit"`
	Descriptors []field[descriptorEntry] `yaml:"descriptors"`
}

// limit is one limit in either notation.
type limit struct {
	Unit            field[string] `yaml:"unit"`
	RequestsPerUnit field[uint64] `yaml:"requests_per_unit"`
	Window          field[string] `yaml:"window"`
	Requests        field[uint64] `yaml:"requests"`
}

// tierLimits is one limit or several.
type tierLimits struct {
	limit
	Limits field[[]field[limit]] `yaml:"limits"`
}

type rateLimit struct {
	tierLimits
	Name    field[blankable]                  `yaml:"name"`
	Subject field[string]                     `yaml:"subject"`
	ByTier  field[ordered[field[tierLimits]]] `yaml:"by_tier"`
}

// notYet are the keys of the language that the service does not support yet:
// those of envoyproxy/ratelimit, which takes any key at any level, and our own.
// Ignoring one would change what a file means.
var notYet = []string{
	"unlimited", "shadow_mode", "quota_mode", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
	"precision", "charge", "on_store_error", "cost", "observe", "body", "headers",
}

func judgeRuleKey(key string) string {
	switch {
	case slices.Contains(notYet, key):
		return fmt.Sprintf("%q is not supported yet", key)
	case key == "unit_multiplier":
		return fmt.Sprintf("%q is not supported yet: write window and requests", key)
	}
	return ""
}

func (*rulesDoc) judgeKey(key string) string        { return judgeRuleKey(key) }
func (*descriptorEntry) judgeKey(key string) string { return judgeRuleKey(key) }
func (*limit) judgeKey(key string) string           { return judgeRuleKey(key) }

// units are the units of envoyproxy/ratelimit with their lengths, which are the
// same there.
var units = []struct {
	name   string
	length time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"week", week},
	{"month", 30 * day},
	{"year", 365 * day},
}

func unitNames() []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return names
}

// rulesReader turns rules files into rules.
type rulesReader struct {
	report  *report
	warn    *report
	secrets *tier.Secrets
	rules   *policy.Rules
	// tiers are the names that by_tier may use. Nil with tiersKnown: there are
	// no tiers. Without tiersKnown the tiers file is broken, and what depends on
	// it is not judged.
	tiers      []string
	tiersKnown bool

	domains map[string]string // where each domain was seen
	decoder *decoder          // of the document being read
	domain  string
	paths   map[descriptors.RuleID]spot // nodes of the document's domain
	names   map[string]spot             // names of its rules
}

// read reads one file.
func (r *rulesReader) read(src source) {
	r.report.file(src.name)
	r.warn.file(src.name)
	docs, problem := parse(src.name, src.data)
	if problem != nil {
		r.report.add(*problem)
		return
	}
	empty := true
	for _, doc := range docs {
		n := root(doc)
		if n == nil {
			// A "---" before the first or after the last domain.
			continue
		}
		empty = false
		r.document(src.name, n)
	}
	if empty {
		r.report.addf(src.name, 0, "", "the file is empty: it needs a domain and its descriptors")
	}
}

func (r *rulesReader) document(file string, n *yaml.Node) {
	r.decoder = &decoder{file: file, report: r.report, hides: r.secrets.Is}
	r.paths = make(map[descriptors.RuleID]spot)
	r.names = make(map[string]spot)
	var doc field[rulesDoc]
	doc.readLocated(r.decoder, n, nil)

	r.domain = doc.value.Domain.value
	at := doc.value.Domain.spot
	switch other, again := r.domains[r.domain]; {
	case !doc.value.Domain.set, doc.value.Domain.bad:
	case r.domain == "":
		r.decoder.problem(at, "a domain needs a name")
	case strings.ContainsFunc(r.domain, unicode.IsControl):
		r.decoder.problem(at, "a domain cannot hold control characters")
	case again:
		r.decoder.problem(at, "a second domain %s, the first is in %s: a domain stands in one place", quote(r.domain), other)
	default:
		r.domains[r.domain] = fmt.Sprintf("%s:%d", file, at.line)
		if err := r.rules.AddDomain(r.domain); err != nil {
			r.decoder.problem(at, "%s", err)
		}
	}
	r.entries(nil, doc.value.Descriptors)
}

// entries reads the nodes below one parent.
func (r *rulesReader) entries(parent []descriptors.Node, entries []field[descriptorEntry]) {
	for i := range entries {
		r.entry(parent, &entries[i])
	}
}

func (r *rulesReader) entry(parent []descriptors.Node, f *field[descriptorEntry]) {
	e := &f.value
	node, ok := r.node(e)
	path := append(slices.Clip(parent), node)
	if ok && r.domain != "" {
		id := descriptors.NewRuleID(r.domain, r.digested(path))
		if first, again := r.paths[id]; again {
			r.decoder.problem(f.spot, "a second descriptor like the one on line %d: put both into one", first.line)
			ok = false
		} else {
			r.paths[id] = f.spot
		}
	}
	// A leaf without a limit is a rule too: it keeps its value from the rule for
	// the key alone.
	if e.RateLimit.set || len(e.Descriptors) == 0 {
		r.rule(path, f, ok)
	}
	r.entries(path, e.Descriptors)
}

// digested is path as the rule tree has it, so that no API key is kept.
func (r *rulesReader) digested(path []descriptors.Node) []descriptors.Node {
	path = slices.Clone(path)
	for i, n := range path {
		if !n.AnyValue {
			path[i].Value = r.secrets.Value(n.Key, n.Value)
		}
	}
	return path
}

// node reads key and value.
func (r *rulesReader) node(e *descriptorEntry) (descriptors.Node, bool) {
	key, value := e.Key.value, string(e.Value.value)
	n := descriptors.Node{Key: key, Value: value, AnyValue: value == ""}
	ok := e.Key.set && !e.Key.bad && !e.Value.bad
	if e.Key.set && !e.Key.bad && key == "" {
		r.decoder.problem(e.Key.spot, "a descriptor key cannot be empty")
		ok = false
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		r.decoder.problem(e.Key.spot, "a descriptor key cannot hold control characters")
		ok = false
	}
	if looksSecret(key) && !r.secrets.Is(key) {
		r.warning(e.Key.spot, "if this holds API keys, add %s to secrets.entries: as it is, its values are kept as they come, and are no keys of any subject", quote(key))
	}
	if strings.HasSuffix(key, "*") {
		r.decoder.problem(e.Key.spot, "wildcards (*) are not supported yet")
		ok = false
	}
	if strings.Contains(value, "*") {
		r.decoder.problem(e.Value.spot, "wildcards (*) are not supported yet")
		ok = false
	}
	switch {
	case e.Value.set && !e.Value.bad && value == "":
		r.warning(e.Value.spot, "an empty value means any value: leave the key out if that is meant")
	case value != "" && r.secrets.Is(key):
		r.warning(e.Value.spot, "an API key in plain text: give it a subject in the tiers file, and a rule for its tier")
	}
	return n, ok
}

// looksSecret guesses from its key whether an entry holds API keys.
func looksSecret(key string) bool {
	key = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(key))
	for _, word := range []string{"apikey", "authorization", "secret", "password", "accesstoken", "bearer"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

func (r *rulesReader) warning(s spot, format string, args ...any) {
	r.warn.addf(r.decoder.file, s.line, r.decoder.render(s.path), format, args...)
}

// rule reads what a node limits and adds it. pathOK says that nothing is wrong
// with the path.
func (r *rulesReader) rule(path []descriptors.Node, f *field[descriptorEntry], pathOK bool) {
	before := r.report.count()
	rl := &f.value.RateLimit
	rule := policy.Rule{
		Domain:  r.domain,
		Path:    path,
		Name:    string(rl.value.Name.value),
		Subject: rl.value.Subject.value,
	}
	at := f.spot
	if rl.set {
		at = rl.spot
		rule.Terms.Limits, rule.ByTier = r.limits(rl)
		r.checkName(rl)
		if rl.value.Subject.set && !rl.value.Subject.bad && rule.Subject == "" {
			r.decoder.problem(rl.value.Subject.spot, "a subject is the key of a descriptor entry, it cannot be empty")
		}
	}
	if !pathOK || rl.bad || r.domain == "" || r.report.count() > before {
		return
	}
	if !r.tiersKnown {
		rule.ByTier = nil
	}
	if err := r.rules.Add(rule); err != nil {
		r.decoder.problem(at, "%s", err)
		return
	}
	r.checkSameName(rule.Name != "", at)
}

// checkSameName warns if the rule that was just added is called like another of
// its domain: a name made from a path can be another rule's, too. Names that the
// file gives are judged by checkName.
func (r *rulesReader) checkSameName(given bool, at spot) {
	all := r.rules.All()
	name := all[len(all)-1].Name
	if given {
		return
	}
	if first, again := r.names[name]; again {
		r.warning(at, "the rule on line %d has the same name, %s: give one of them another", first.line, name)
		return
	}
	r.names[name] = at
}

func (r *rulesReader) checkName(rl *field[rateLimit]) {
	name := string(rl.value.Name.value)
	at := rl.value.Name.spot
	switch first, again := r.names[name]; {
	case name == "":
	case !policy.ValidName(name):
		r.decoder.problem(at, "the name %s may hold only letters, digits and \"_.-\", and at most 64 of them", quote(name))
	case again:
		r.warning(at, "the rule on line %d has the same name: headers and metrics cannot tell them apart", first.line)
	default:
		r.names[name] = at
	}
}

// limits reads the limits of a rule. A problem is reported where the rule has
// none, or leaves a tier without any.
func (r *rulesReader) limits(rl *field[rateLimit]) (all []policy.Limit, byTier map[string]policy.Terms) {
	v := &rl.value
	all, given := r.someLimits(&v.tierLimits, rl.spot, rl.bad)
	if !given && !v.ByTier.set && !rl.bad {
		r.decoder.problem(rl.spot, "no limit: give unit and requests_per_unit, or window and requests, or limits, or by_tier")
	}
	if !v.ByTier.set {
		return all, nil
	}
	if v.ByTier.bad && len(v.ByTier.value) == 0 {
		return all, nil
	}
	if len(v.ByTier.value) == 0 {
		r.decoder.problem(v.ByTier.spot, "holds no tier: write one line for each")
		return all, nil
	}
	if r.tiersKnown && r.tiers == nil {
		r.decoder.problem(v.ByTier.spot, "there are no tiers: tiers.source is none")
		return all, nil
	}
	byTier = make(map[string]policy.Terms, len(v.ByTier.value))
	for i := range v.ByTier.value {
		e := &v.ByTier.value[i]
		if r.tiersKnown && !slices.Contains(r.tiers, e.key) {
			r.decoder.problem(e.spot, "unknown tier %s, expected one of %s%s", quote(e.key), some(r.tiers), didYouMean(e.key, r.tiers))
		}
		limits, some := r.someLimits(&e.value.value, e.value.spot, e.value.bad)
		if !some && !e.value.bad {
			r.decoder.problem(e.spot, "no limit: give unit and requests_per_unit, or window and requests, or limits")
		}
		byTier[e.key] = policy.Terms{Limits: limits}
	}
	if !given && !rl.bad {
		var without []string
		for _, t := range r.tiers {
			if _, ok := byTier[t]; !ok {
				without = append(without, t)
			}
		}
		if len(without) > 0 {
			r.decoder.problem(v.ByTier.spot, "no limit for %s, and the rule has none of its own for other tiers", some(without))
		}
	}
	return all, byTier
}

// someLimits reads one limit or a list of them. given says that there was one,
// right or wrong; bad, that something is wrong with t, so that what seems to be
// missing may have been mistyped.
func (r *rulesReader) someLimits(t *tierLimits, at spot, bad bool) (limits []policy.Limit, given bool) {
	one := t.Unit.set || t.RequestsPerUnit.set || t.Window.set || t.Requests.set
	if one && t.Limits.set {
		r.decoder.problem(t.Limits.spot, "limits stand alone: put the limit beside them into the list")
		return nil, true
	}
	if one {
		if l, ok := r.limit(&t.limit, at, bad); ok {
			limits = append(limits, policy.Limit{Limit: l})
		}
		return limits, true
	}
	if !t.Limits.set {
		return nil, false
	}
	if len(t.Limits.value) == 0 && !t.Limits.bad {
		r.decoder.problem(t.Limits.spot, "the list is empty")
	}
	lines := make(map[time.Duration]int)
	for i := range t.Limits.value {
		f := &t.Limits.value[i]
		l, ok := r.limit(&f.value, f.spot, f.bad)
		if !ok {
			continue
		}
		if first, again := lines[l.Window]; again {
			r.decoder.problem(f.spot, "a second limit for the same window, the first is on line %d", first)
			continue
		}
		lines[l.Window] = f.line
		limits = append(limits, policy.Limit{Limit: l})
	}
	return limits, true
}

// limit reads one limit. With bad, halves of pairs are not missed.
func (r *rulesReader) limit(l *limit, at spot, bad bool) (window.Limit, bool) {
	d := r.decoder
	unit, inUnit := l.Unit.set, l.RequestsPerUnit.set
	win, requests := l.Window.set, l.Requests.set
	if l.Unit.bad || l.Window.bad {
		return window.Limit{}, false
	}
	if l.RequestsPerUnit.bad || l.Requests.bad {
		// The length beside a bad number is judged all the same.
		switch {
		case unit && !win && !requests:
			r.perUnit(l)
		case win && !unit && !inUnit:
			r.perWindow(l)
		}
		return window.Limit{}, false
	}
	switch {
	case bad && (unit != inUnit || win != requests || !unit && !win):
	case !unit && !inUnit && !win && !requests:
		d.problem(at, "no limit: give unit and requests_per_unit, or window and requests")
	case (unit || inUnit) && (win || requests):
		d.problem(at, "unit and requests_per_unit belong together, and so do window and requests: give one of the two pairs")
	case unit && !inUnit:
		d.problem(l.Unit.spot, "unit without requests_per_unit")
	case !unit && inUnit:
		d.problem(l.RequestsPerUnit.spot, "requests_per_unit without unit")
	case win && !requests:
		d.problem(l.Window.spot, "window without requests")
	case !win && requests:
		d.problem(l.Requests.spot, "requests without window")
	case unit:
		return r.perUnit(l)
	default:
		return r.perWindow(l)
	}
	return window.Limit{}, false
}

func (r *rulesReader) perUnit(l *limit) (window.Limit, bool) {
	name := strings.ToLower(l.Unit.value)
	for _, u := range units {
		if u.name == name {
			return r.bounded(window.Limit{Hits: l.RequestsPerUnit.value, Window: u.length}, l.RequestsPerUnit.spot, l.Unit.spot)
		}
	}
	r.decoder.problem(l.Unit.spot, "unknown unit %s, expected one of %s%s", quote(l.Unit.value), strings.Join(unitNames(), ", "), didYouMean(name, unitNames()))
	return window.Limit{}, false
}

func (r *rulesReader) perWindow(l *limit) (window.Limit, bool) {
	length, err := ParseDuration(l.Window.value)
	if err != nil {
		r.decoder.problem(l.Window.spot, "%s", err)
		return window.Limit{}, false
	}
	return r.bounded(window.Limit{Hits: l.Requests.value, Window: length}, l.Requests.spot, l.Window.spot)
}

// bounded checks what the stores can hold.
func (r *rulesReader) bounded(l window.Limit, hits, length spot) (window.Limit, bool) {
	ok := true
	if l.Hits > window.MaxHits {
		r.decoder.problem(hits, "%d is above %d, the largest number that Envoy's protocol can carry", l.Hits, uint64(window.MaxHits))
		l.Hits = 0
		ok = false
	}
	if err := l.Valid(); err != nil {
		r.decoder.problem(length, "%s", err)
		ok = false
	}
	return l, ok
}
