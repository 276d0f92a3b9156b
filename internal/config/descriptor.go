package config

import (
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// trail is the way from the top of a domain down to a descriptor.
type trail struct {
	path  []descriptors.Node
	share []bool // levels with share_threshold; nil: none
	value []bool // levels with value_to_metric; nil: none
}

func (t trail) then(n descriptors.Node, e *descriptorEntry) trail {
	return trail{
		path:  append(slices.Clip(t.path), n),
		share: mark(t.share, len(t.path), bool(e.ShareThreshold.value)),
		value: mark(t.value, len(t.path), bool(e.ValueToMetric.value)),
	}
}

// mark returns the marks of levels with that of one more.
func mark(levels []bool, level int, set bool) []bool {
	if !set && levels == nil {
		return nil
	}
	marked := make([]bool, level+1)
	copy(marked, levels)
	marked[level] = set
	return marked
}

// entries reads the descriptors below one parent.
func (r *rulesReader) entries(above trail, entries []field[descriptorEntry]) {
	for i := range entries {
		r.entry(above, &entries[i])
	}
}

func (r *rulesReader) entry(above trail, f *field[descriptorEntry]) {
	r.domain.filled = true
	e := &f.value
	node, ok := r.node(e)
	at := above.then(node, e)
	if ok {
		id := descriptors.NewRuleID(r.domain.name, r.kept(at.path))
		if first, again := r.domain.paths[id]; again {
			r.decoder.problem(f.spot, "a second descriptor like the one %s: put both into one", r.place(first).from(r.decoder.file))
			ok = false
		} else {
			r.domain.paths[id] = r.mark(f.spot)
		}
	}
	// A leaf without a limit is a rule too: it keeps its value from the rule for
	// the key alone.
	if e.RateLimit.set && !e.RateLimit.null || len(e.Descriptors) == 0 {
		r.rule(at, f, ok)
	}
	r.idle(e)
	r.entries(at, e.Descriptors)
}

// idle warns of what has no effect without a limit.
func (r *rulesReader) idle(e *descriptorEntry) {
	if e.RateLimit.set && !e.RateLimit.null {
		return
	}
	if e.RateLimit.null {
		r.decoder.warning(e.RateLimit.spot, "without a value, so nothing is limited here: leave the key out if that is meant")
	}
	for _, f := range []struct {
		name string
		*field[truth]
	}{{"shadow_mode", &e.ShadowMode}, {"quota_mode", &e.QuotaMode}} {
		if f.value {
			r.decoder.warning(f.spot, "%s is for the rate_limit of this descriptor alone, and there is none", f.name)
		}
	}
}

// kept is path as the rule tree has it: no API key is kept, and values have one
// form.
func (r *rulesReader) kept(path []descriptors.Node) []descriptors.Node {
	cloned := false
	for i, n := range path {
		value := policy.Canonical(descriptors.Entry{Key: n.Key, Value: n.Value})
		if !n.Open() {
			value = r.secrets.Value(n.Key, value)
		}
		if value == n.Value {
			continue
		}
		if !cloned {
			path, cloned = slices.Clone(path), true
		}
		path[i].Value = value
	}
	return path
}

// node reads key and value.
func (r *rulesReader) node(e *descriptorEntry) (descriptors.Node, bool) {
	key, value := e.Key.value, string(e.Value.value)
	n := descriptors.Node{Key: key, Value: value, AnyValue: value == "", Pattern: strings.Contains(value, descriptors.Wildcard)}
	ok := e.Key.set && !e.Key.bad && !e.Value.bad
	if e.Key.set && !e.Key.bad && key == "" {
		r.decoder.problem(e.Key.spot, "a descriptor key cannot be empty")
		ok = false
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		r.decoder.problem(e.Key.spot, "a descriptor key cannot hold control characters")
		ok = false
	}
	if r.suspect(key) {
		r.decoder.warning(e.Key.spot, "if this holds API keys, add %s to secrets.entries: as it is, its values are kept as they come, and are no keys of any subject", quote(key))
	}
	if strings.Contains(key, descriptors.Wildcard) {
		r.decoder.warning(e.Key.spot, "* is a wildcard in values only: this is a key with that character")
	}
	secret := r.secrets.Is(key)
	switch {
	case e.Value.set && !e.Value.bad && value == "":
		r.decoder.warning(e.Value.spot, "an empty value means any value: leave the key out if that is meant")
	case secret && n.Pattern:
		if strings.Trim(value, descriptors.Wildcard) != "" {
			r.decoder.problem(e.Value.spot, "%s holds API keys, of which only digests are kept: a wildcard cannot match a part of one", quoteless(key))
			ok = false
		}
	case secret && value != "":
		r.decoder.warning(e.Value.spot, "an API key in plain text: give it a subject in the tiers file, and a rule for its tier")
	}
	if bool(e.ShareThreshold.value) && !n.Pattern && !e.Value.bad {
		r.decoder.problem(e.ShareThreshold.spot, "share_threshold is for a value with a wildcard (*), and there is none")
		ok = false
	}
	return n, ok
}

// suspect reports whether entries with a key seem to hold API keys that are not
// known to be secret.
func (r *rulesReader) suspect(key string) bool {
	is, known := r.keys[key]
	if !known {
		is = tier.LooksSecret(key) && !r.secrets.Is(key)
		if len(r.keys) < maxProblems {
			r.keys[key] = is
		}
	}
	return is
}

// hides reports whether values of entries with a key must not be repeated.
func (r *rulesReader) hides(key string) bool { return r.secrets.Hides(key) }

// rule reads what a descriptor limits and adds it. pathOK says that nothing is
// wrong with the path.
func (r *rulesReader) rule(at trail, f *field[descriptorEntry], pathOK bool) {
	before := r.report.count()
	e, rl := &f.value, &f.value.RateLimit
	limits := rl.value
	if limits == nil {
		limits = new(rateLimit)
	}
	rule := policy.Rule{
		Domain:        r.domain.name,
		Path:          at.path,
		Share:         at.share,
		ValueInMetric: at.value,
		Quota:         bool(e.QuotaMode.value),
		Detailed:      bool(e.DetailedMetric.value),
		Metadata:      e.Metadata.value,
	}
	if rl.set && !rl.null {
		r.fill(&rule, rl)
		r.modes(&rule, e)
		r.sharedTiers(&rule, limits)
	}
	r.replaces(limits) // also of a rule with a problem, which may be part of a cycle
	if !pathOK || e.bad() || r.domain.name == "" || r.report.count() > before {
		return
	}
	if !r.o.TiersKnown {
		rule.ByTier = nil
	}
	if r.domain.void {
		return
	}
	if err := r.rules.Add(rule); err != nil {
		r.decoder.problem(rl.orElse(f.spot), "%s", err)
		return
	}
	r.places = append(r.places, Place{r.decoder.file, f.line})
	r.checkName(&limits.Name, rl.orElse(f.spot))
}

// sharedTiers warns where the value that says which tier counts is one of those
// that share a log.
func (r *rulesReader) sharedTiers(rule *policy.Rule, v *rateLimit) {
	if len(rule.ByTier) == 0 {
		return
	}
	subject := len(rule.Path) - 1
	if rule.Subject != "" {
		subject = slices.IndexFunc(rule.Path, func(n descriptors.Node) bool { return n.Key == rule.Subject })
	}
	if subject >= 0 && subject < len(rule.Share) && rule.Share[subject] {
		r.decoder.warning(v.ByTier.spot, "the tiers share one log: share_threshold gives one to all values of %s", label(rule.Path[subject].Key))
	}
}

// bad reports whether something is wrong with the descriptor itself, not with
// those below it.
func (e *descriptorEntry) bad() bool {
	return e.RateLimit.bad || e.ShareThreshold.bad || e.ShadowMode.bad || e.QuotaMode.bad ||
		e.DetailedMetric.bad || e.ValueToMetric.bad || e.Metadata.bad
}

// fill reads rate_limit.
func (r *rulesReader) fill(rule *policy.Rule, rl *field[*rateLimit]) {
	v := rl.value
	rule.Name = string(v.Name.value)
	rule.Subject = v.Subject.value
	rule.Terms, rule.ByTier = r.terms(rl)
	if v.ByTier.set && len(rule.ByTier) == 0 && !v.Subject.set {
		// As where a tier is named beside default.
		rule.Subject = rule.Path[len(rule.Path)-1].Key
	}
	if given(&v.Subject) && rule.Subject == "" {
		r.decoder.problem(v.Subject.spot, "a subject is the key of a descriptor entry, it cannot be empty")
	}
	if rule.Name == reservedName {
		r.decoder.problem(v.Name.spot, "%q is what limits that come with a request are called", reservedName)
	}
	if given(&v.Charge) {
		rule.Always = r.oneOf(&v.Charge, "allowed", "always") == "always"
	}
	r.storeError(rule, &v.OnStoreError.value)
	if given(&v.Cost) {
		rule.Factor = v.Cost.value
		switch {
		case rule.Factor == 0:
			r.decoder.problem(v.Cost.spot, "a cost of 0 would charge nothing: write unlimited: true if that is meant")
		case rule.Factor > window.MaxHits:
			r.decoder.problem(v.Cost.spot, "%d is above %d, the largest limit there is", rule.Factor, uint64(window.MaxHits))
		}
	}
	r.denial(rule, v)
	for i := range v.Replaces.value {
		rule.Replaces = append(rule.Replaces, r.replacement(rule.Name, &v.Replaces.value[i]))
	}
}

// Bounds on the wait that a rule tells while the store cannot decide.
const (
	minStoreErrorRetry = time.Second // what Retry-After can say
	maxStoreErrorRetry = time.Hour
)

// storeError reads on_store_error.
func (r *rulesReader) storeError(rule *policy.Rule, s *storeError) {
	if given(&s.Choice) {
		rule.OnStoreError, _ = policy.ParseOnStoreError(r.oneOf(&s.Choice, storeErrors...))
	}
	if !given(&s.RetryAfter) {
		return
	}
	wait, err := ParseDuration(s.RetryAfter.value)
	switch at := s.RetryAfter.spot; {
	case err != nil:
		r.decoder.problem(at, "%s", err)
	case wait < minStoreErrorRetry || wait > maxStoreErrorRetry:
		r.decoder.problem(at, "%s is not between %v and %s", quote(s.RetryAfter.value), minStoreErrorRetry, policy.FormatWindow(maxStoreErrorRetry))
	case rule.OnStoreError == policy.StoreErrorDeny:
		rule.StoreErrorRetry = wait
	case rule.OnStoreError != policy.StoreErrorUnset:
		r.decoder.problem(at, "a wait is told by deny alone, the choice is %s", rule.OnStoreError)
	}
}

// reservedName is the name of limits that come with a request.
const reservedName = "override"

func (r *rulesReader) oneOf(f *field[string], names ...string) string {
	if !slices.Contains(names, f.value) {
		r.decoder.problem(f.spot, "%s", notOneOf(f.value, names))
	}
	return f.value
}

// Bounds on what a denial says. It is in memory once, but goes out with every
// denial, of which an attacker can cause many.
const (
	maxBody     = 16 << 10
	maxOneLiner = 256
	plainText   = "text/plain; charset=utf-8"
)

func (r *rulesReader) denial(rule *policy.Rule, v *rateLimit) {
	rule.Denial = policy.Denial{Body: v.Body.value, ContentType: v.ContentType.value, StatusText: v.StatusText.value}
	switch {
	case given(&v.Body) && v.Body.value == "":
		r.decoder.problem(v.Body.spot, "an empty body: leave the key out for the service's own")
	case len(v.Body.value) > maxBody:
		r.decoder.problem(v.Body.spot, "longer than %d KiB", maxBody>>10)
	}
	if given(&v.ContentType) {
		_, _, err := mime.ParseMediaType(v.ContentType.value)
		switch {
		case !v.Body.set:
			r.decoder.problem(v.ContentType.spot, "content_type without body")
		case err != nil || !isOneLiner(v.ContentType.value) || !strings.Contains(v.ContentType.value, "/"):
			r.decoder.problem(v.ContentType.spot, "%s is not a content type such as %q", quote(v.ContentType.value), plainText)
		}
	} else if v.Body.set {
		rule.Denial.ContentType = plainText
	}
	if given(&v.StatusText) {
		switch {
		case v.StatusText.value == "" || !isOneLiner(v.StatusText.value):
			r.decoder.problem(v.StatusText.spot, "a status text is one line of at most %d bytes", maxOneLiner)
		case v.Body.set:
			r.decoder.warning(v.StatusText.spot, "not used: it is the title of the problem document, which body replaces")
		}
	}
}

func isOneLiner(text string) bool {
	return len(text) <= maxOneLiner && !strings.ContainsFunc(text, unicode.IsControl)
}

// modes sets what shadow_mode means and refuses modes that contradict each
// other, at the line that says so.
func (r *rulesReader) modes(rule *policy.Rule, e *descriptorEntry) {
	v := e.RateLimit.value
	if e.ShadowMode.value {
		for _, t := range v.all() {
			if t.Observe.set {
				r.decoder.problem(t.Observe.spot, "shadow_mode on line %d already observes everybody: give one of the two", e.ShadowMode.line)
			}
		}
		rule.Terms.Observe = 1
		for name, arm := range rule.ByTier {
			arm.Observe = 1
			rule.ByTier[name] = arm
		}
	}
	if rule.Always {
		if e.ShadowMode.value {
			r.decoder.problem(v.Charge.spot, "what is always charged is debt, and cannot be observed only, as shadow_mode on line %d says", e.ShadowMode.line)
		}
		for _, t := range v.all() {
			if share, err := parseShare(t.Observe.value); given(&t.Observe) && err == nil && share > 0 {
				r.decoder.problem(t.Observe.spot, "what is always charged is debt, and cannot be observed only: see charge on line %d", v.Charge.line)
			}
		}
	}
	for _, f := range v.leases() {
		switch {
		case rule.Always:
			r.decoder.problem(f.spot, "what is always charged has happened already, and nothing is reserved for it: see charge on line %d", v.Charge.line)
		case bool(e.QuotaMode.value):
			r.decoder.problem(f.spot, "the store decides which of several alternatives is charged, so nothing is reserved: see quota_mode on line %d", e.QuotaMode.line)
		}
	}
	quota, where := bool(e.QuotaMode.value), fmt.Sprintf("quota_mode on line %d", e.QuotaMode.line)
	if !quota && r.o.Settings.QuotaMode {
		quota, where = true, "the setting rules.quota_mode"
	}
	if !quota {
		return
	}
	if rule.Always {
		r.decoder.problem(v.Charge.spot, "what is always charged cannot be an alternative, as %s says", where)
	}
	for _, t := range v.all() {
		if len(t.Limits.value) > 1 {
			r.decoder.problem(t.Limits.spot, "a quota rule has one limit, since of several one could have room and another not: see %s", where)
		}
	}
}

// leases returns what says that something is reserved.
func (v *rateLimit) leases() []*field[string] {
	var leases []*field[string]
	add := func(l *limit) {
		if given(&l.Lease) && l.Lease.value != noLease {
			leases = append(leases, &l.Lease)
		}
	}
	for _, t := range v.all() {
		add(&t.limit)
		for i := range t.Limits.value {
			add(&t.Limits.value[i].value)
		}
	}
	return leases
}

// all returns the rule's own terms and those of its tiers.
func (v *rateLimit) all() []*terms {
	all := []*terms{&v.terms}
	for i := range v.ByTier.value {
		all = append(all, &v.ByTier.value[i].value.value)
	}
	return all
}
