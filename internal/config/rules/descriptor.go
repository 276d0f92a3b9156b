package rules

import (
	"cmp"
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
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
		share: mark(t.share, len(t.path), bool(e.ShareThreshold.Value)),
		value: mark(t.value, len(t.path), bool(e.ValueToMetric.Value)),
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
func (r *rulesReader) entries(above trail, entries []strict.Field[descriptorEntry]) {
	for i := range entries {
		r.entry(above, &entries[i])
	}
}

func (r *rulesReader) entry(above trail, f *strict.Field[descriptorEntry]) {
	r.domain.filled = true
	e := &f.Value
	node, ok := r.node(e)
	at := above.then(node, e)
	if ok {
		id := descriptors.NewRuleID(r.domain.name, r.kept(at.path))
		if first, again := r.domain.paths[id]; again {
			r.decoder.Problem(f.Position, "a second descriptor like the one %s: put both into one", first.from(r.decoder.File))
			ok = false
		} else {
			r.domain.paths[id] = Location{r.decoder.File, f.Line}
		}
	}
	// A leaf without a limit is a rule too: it keeps its value from the rule for
	// the key alone.
	if e.RateLimit.Set && !e.RateLimit.Null || len(e.Descriptors) == 0 {
		r.rule(at, f, ok)
	}
	r.idle(e)
	r.entries(at, e.Descriptors)
}

// idle warns of keys that have no effect without a limit.
func (r *rulesReader) idle(e *descriptorEntry) {
	if e.RateLimit.Set && !e.RateLimit.Null {
		return
	}
	if r.noFile {
		return // a server sets shadow_mode on every level
	}
	if e.RateLimit.Null {
		r.decoder.Warning(e.RateLimit.Position, "no value, so nothing is limited here: if you want that, remove the key")
	}
	for _, f := range []struct {
		name string
		*strict.Field[strict.Truth]
	}{{"shadow_mode", &e.ShadowMode}, {"quota_mode", &e.QuotaMode}} {
		if f.Value {
			r.decoder.Warning(f.Position, "no effect: %s is for a rate_limit of this descriptor, which has none", f.name)
		}
	}
}

// kept returns path as the rule tree has it: digests instead of API keys, and values in their
// canonical form.
func (r *rulesReader) kept(path []descriptors.Node) []descriptors.Node {
	cloned := false
	for i, n := range path {
		value := rules.CanonicalNode(n)
		if !n.Open() {
			value = r.Identity.Secrets.Value(n.Key, value)
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
	key, value := e.Key.Value, string(e.Value.Value)
	n := descriptors.Node{Key: key, Value: value, AnyValue: value == "", Pattern: strings.Contains(value, descriptors.Wildcard)}
	ok := e.Key.Set && !e.Key.Bad && !e.Value.Bad
	if e.Key.Set && !e.Key.Bad && key == "" {
		r.decoder.Problem(e.Key.Position, "a descriptor key cannot be empty")
		ok = false
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		r.decoder.Problem(e.Key.Position, "a descriptor key cannot hold control characters")
		ok = false
	}
	if tier.LooksSecret(key) && !r.Identity.Secrets.Is(key) {
		r.decoder.Warning(e.Key.Position, "if its values are API keys, add %s to secrets.entries: without that, rls keeps them in plain text and finds no subject for them", strict.Quote(key))
	}
	// Envoy Gateway ends the key of a route for every host with *.
	if strings.Contains(key, descriptors.Wildcard) && !r.noFile {
		r.decoder.Warning(e.Key.Position, "* is a wildcard in values only: this is a key with that character")
	}
	secret := r.Identity.Secrets.Is(key)
	switch {
	case e.Value.Set && !e.Value.Bad && value == "":
		r.decoder.Warning(e.Value.Position, "an empty value means any value: if you want that, remove the key")
	case secret && n.Pattern:
		if strings.Trim(value, descriptors.Wildcard) != "" {
			r.decoder.Problem(e.Value.Position, "the values of %s are API keys, kept as digests: a wildcard cannot match a part of one", strict.Quoteless(key))
			ok = false
		}
	case secret && value != "":
		r.decoder.Warning(e.Value.Position, "an API key in plain text: add it to a subject of the tiers file, and give its tier a limit")
	}
	if problem := rules.AddressProblem(n); problem != "" && !secret {
		r.decoder.Warning(e.Value.Position, "%s", problem)
	}
	if bool(e.ShareThreshold.Value) && !n.Pattern && !e.Value.Bad {
		r.decoder.Problem(e.ShareThreshold.Position, "share_threshold needs a value with a wildcard (*)")
		ok = false
	}
	return n, ok
}

// hides reports whether problems must not repeat values of entries with a key.
func (r *rulesReader) hides(key string) bool { return r.Identity.Secrets.Hides(key) }

// rule reads the limits of a descriptor and adds the rule. pathOK: the path has no problem.
func (r *rulesReader) rule(at trail, f *strict.Field[descriptorEntry], pathOK bool) {
	before := r.Report.Count()
	e, rl := &f.Value, &f.Value.RateLimit
	limits := rl.Value
	if limits == nil {
		limits = new(rateLimit)
	}
	rule := rules.Rule{
		Domain:        r.domain.name,
		Path:          at.path,
		Share:         at.share,
		ValueInMetric: at.value,
		Quota:         bool(e.QuotaMode.Value),
		Detailed:      bool(e.DetailedMetric.Value),
		Metadata:      e.Metadata.Value,
	}
	if rl.Set && !rl.Null {
		r.fill(&rule, rl)
		r.modes(&rule, e)
		r.sharedTiers(&rule, limits)
		r.labels(&rule, limits)
	}
	r.replaces(limits) // a rule with a problem may be part of a cycle, too
	if !pathOK || e.bad() || r.domain.name == "" || r.Report.Count() > before {
		return
	}
	if !r.TiersKnown {
		rule.ByTier = nil
	}
	if r.domain.void {
		return
	}
	if err := r.rules.Add(rule); err != nil {
		r.decoder.Problem(rl.OrElse(f.Position), "%s", err)
		return
	}
	r.places = append(r.places, Location{r.decoder.File, f.Line})
	r.checkName(&limits.Name, rl.OrElse(f.Position))
}

// sharedTiers warns if all values of the entry with the subject share one log.
func (r *rulesReader) sharedTiers(rule *rules.Rule, v *rateLimit) {
	if len(rule.ByTier) == 0 {
		return
	}
	subject := rule.SubjectLevel(r.Identity.Secrets)
	if subject >= 0 && rule.Shares(subject) {
		r.decoder.Warning(v.ByTier.Position, "the tiers share one log, because share_threshold gives all values of %s one log", strict.Label(rule.Path[subject].Key))
	}
}

// labels refuses starts_label where no request has a subject, and warns if subjects share one
// log.
func (r *rulesReader) labels(rule *rules.Rule, v *rateLimit) {
	v.each(func(l *limit) {
		f, subject := &l.StartsLabel, rule.SubjectLevel(r.Identity.Secrets)
		switch {
		case !strict.Given(f):
		case r.TiersKnown && r.Tiers == nil:
			r.decoder.Problem(f.Position, "there are no subjects and no labels, because tiers.source is \"none\"")
		case subject < 0 && rule.Subject == "":
			r.decoder.Problem(f.Position, "the rule has no subject, so there are no labels: add subject, the key of the entry that says who is limited")
		case subject >= 0 && rule.Shares(subject):
			r.decoder.Warning(f.Position, "the subjects share one log, because share_threshold gives all values of %s one log: the periods start on the day of the subject that asks", strict.Label(rule.Path[subject].Key))
		}
	})
}

// bad reports whether the descriptor itself has a problem, regardless of those below it.
func (e *descriptorEntry) bad() bool {
	return e.RateLimit.Bad || e.ShareThreshold.Bad || e.ShadowMode.Bad || e.QuotaMode.Bad ||
		e.DetailedMetric.Bad || e.ValueToMetric.Bad || e.Metadata.Bad
}

// fill reads rate_limit.
func (r *rulesReader) fill(rule *rules.Rule, rl *strict.Field[*rateLimit]) {
	v := rl.Value
	rule.Name = string(v.Name.Value)
	rule.Subject = v.Subject.Value
	rule.Scope = r.scopeOf(&v.Scope)
	rule.Priority = r.priorityOf(&v.Priority)
	rule.Terms, rule.ByTier = r.terms(rl)
	if v.ByTier.Set && len(rule.ByTier) == 0 && !v.Subject.Set {
		// The same as with a tier beside default.
		rule.Subject = rule.Path[len(rule.Path)-1].Key
	}
	if strict.Given(&v.Subject) && rule.Subject == "" {
		r.decoder.Problem(v.Subject.Position, "a subject is the key of a descriptor entry, it cannot be empty")
	}
	if rule.Name == reservedName {
		r.decoder.Problem(v.Name.Position, "%q is the name of limits that come with a request: choose another", reservedName)
	}
	if strict.Given(&v.Charge) {
		charge := r.oneOf(&v.Charge, "allowed", "always")
		rule.Always, rule.AllowedOnly = charge == "always", charge == "allowed"
	}
	if strict.Given(&v.OnStoreError) {
		rule.OnStoreError, _ = rules.ParseOnStoreError(r.oneOf(&v.OnStoreError, settings.StoreErrors...))
	}
	if v.RetryJitter.Set {
		rule.RetryJitter = read(r.decoder, &v.RetryJitter, parseJitter)
	}
	if strict.Given(&v.Cost) {
		rule.Factor = v.Cost.Value
		switch {
		case rule.Factor == 0:
			r.decoder.Problem(v.Cost.Position, "a cost of 0 would charge nothing: if you want that, write unlimited: true")
		case rule.Factor > window.MaxHits:
			r.decoder.Problem(v.Cost.Position, "%d is above %d, the largest limit there is", rule.Factor, uint64(window.MaxHits))
		}
	}
	if strict.Given(&v.ChargeOnce) && v.ChargeOnce.Value != nil {
		r.chargeOnce(rule, &v.ChargeOnce)
	}
	r.denial(rule, v)
	for i := range v.Replaces.Value {
		rule.Replaces = append(rule.Replaces, r.replacement(rule.Name, &v.Replaces.Value[i]))
	}
}

// chargeOnce reads charge_once.
func (r *rulesReader) chargeOnce(rule *rules.Rule, f *strict.Field[*chargeOnce]) {
	v := f.Value
	once := rules.ChargeOnce{Entry: v.Entry.Value, For: rules.DefaultOnceFor, Retries: rules.DefaultOnceRetries}
	if strict.Given(&v.Entry) && once.Entry == "" {
		r.decoder.Problem(v.Entry.Position, "the key of an entry cannot be empty")
	}
	if strict.Given(&v.For) {
		once.For, _ = r.duration(&v.For, window.MinOnce, window.MaxOnce, time.Microsecond)
	}
	if strict.Given(&v.Retries) {
		if n := v.Retries.Value; n < 1 || n > window.MaxRepeats {
			r.decoder.Problem(v.Retries.Position, "%d is not between 1 and %d; without retries that are free, remove charge_once", n, window.MaxRepeats)
		} else {
			once.Retries = uint8(n)
		}
	}
	switch d := r.domain; {
	case r.Identity.Secrets.Is(once.Entry):
		r.decoder.Problem(v.Entry.Position, "%s holds API keys, and an attempt needs a key of its own: send the idempotency key in another entry", strict.Quoteless(once.Entry))
	case once.Entry == "":
	case d.attempt == "":
		d.attempt, d.once = once.Entry, Location{r.decoder.File, f.Line}
	case d.attempt != once.Entry:
		r.decoder.Problem(v.Entry.Position, "charge_once %s has the entry %s: use one entry in all rules of a domain, and send the idempotency key in it", d.once.from(r.decoder.File), strict.Quoteless(d.attempt))
	}
	switch {
	case rule.Always:
		r.decoder.Problem(f.Position, "charge_once cannot be combined with charge always: what is reported has happened each time")
	case holds(rule):
		r.decoder.Problem(f.Position, "charge_once cannot be combined with the policy in_flight: its stream already holds one place once")
	}
	rule.Once = once
}

// together refuses what needs the logs of a request on one server, in a domain whose rules have
// them on several: charge_once, because a retry that meets two of them has no receipt, and
// in_flight on a Redis Cluster beside another scope.
func (r *rulesReader) together(d *domainReader) {
	once := d.attempt != ""
	if d.void || !once && len(r.Scopes) < 2 {
		return
	}
	limiting, cluster := 0, ""
	scopes := make(map[string]bool)
	held, heldOn := Location{}, "" // of a rule with in_flight
	for i, rule := range r.rules.All() {
		if rule.Domain != d.name || len(rule.Terms.Limits) == 0 && len(rule.ByTier) == 0 {
			continue
		}
		limiting++
		scopes[rule.Scope] = true
		for _, s := range r.Scopes {
			if s.Cluster && s.Name == cmp.Or(rule.Scope, settings.ScopeRegion) {
				cluster = s.Section + ".url"
				if heldOn == "" && holds(rule) {
					held, heldOn = r.places[i], cluster
				}
			}
		}
	}
	const instead = "put the rule into a domain of its own, and give Envoy a rate limit filter for that domain"
	if heldOn != "" && len(scopes) > 1 {
		r.Report.Addf(held.File, held.Line, "in_flight", "the rules of the domain count in several scopes, and %s is a Redis Cluster: %s, or use one Redis", heldOn, instead)
	}
	switch {
	case !once || limiting < 2:
	case len(scopes) > 1:
		r.Report.Addf(d.once.File, d.once.Line, "charge_once", "the rules of the domain count in several scopes, and a retry could meet two of them: %s, or remove scope", instead)
	case cluster != "":
		r.Report.Addf(d.once.File, d.once.Line, "charge_once", "the domain has other rules, and %s is a Redis Cluster, on which a retry could meet two slots: %s, or use one Redis", cluster, instead)
	}
}

// scopeOf reads scope, and notes which store the limits of the rule are for.
func (r *rulesReader) scopeOf(f *strict.Field[string]) (name string) {
	r.scope = r.Scopes[0]
	if !strict.Given(f) {
		return ""
	}
	for _, s := range r.Scopes {
		if s.Name == f.Value {
			r.scope = s
			return s.Name
		}
	}
	names := make([]string, len(r.Scopes))
	for i := range r.Scopes {
		names[i] = r.Scopes[i].Name
	}
	r.decoder.Problem(f.Position, "the settings have no scope %s, but %s%s: set its redis.url in store.scopes of the settings file (rls: --config), or remove scope",
		strict.Quote(f.Value), strings.Join(names, ", "), strict.DidYouMean(f.Value, names))
	return ""
}

// priorityOf reads priority.
func (r *rulesReader) priorityOf(f *strict.Field[string]) window.Priority {
	if !strict.Given(f) {
		return window.PriorityNormal
	}
	names := priorityNames()
	r.oneOf(f, names...)
	return window.Priorities[max(slices.Index(names, f.Value), 0)]
}

func priorityNames() (names []string) {
	for _, p := range window.Priorities {
		names = append(names, p.String())
	}
	return names
}

// reservedName is the name of limits that come with a request.
const reservedName = "override"

func (r *rulesReader) oneOf(f *strict.Field[string], names ...string) string {
	if !slices.Contains(names, f.Value) {
		r.decoder.Problem(f.Position, "%s", strict.NotOneOf(f.Value, names))
	}
	return f.Value
}

// Bounds on the texts of a denial, in bytes. Every denial carries them, and an attacker can
// cause many denials.
const (
	maxBody     = 16 << 10
	maxOneLiner = 256
	plainText   = "text/plain; charset=utf-8"
)

func (r *rulesReader) denial(rule *rules.Rule, v *rateLimit) {
	rule.Denial = rules.Denial{Body: v.Body.Value, ContentType: v.ContentType.Value}
	switch {
	case strict.Given(&v.Body) && v.Body.Value == "":
		r.decoder.Problem(v.Body.Position, "an empty body: remove the key for the service's own body")
	case len(v.Body.Value) > maxBody:
		r.decoder.Problem(v.Body.Position, "longer than %d KiB: shorten it", maxBody>>10)
	}
	if strict.Given(&v.ContentType) {
		_, _, err := mime.ParseMediaType(v.ContentType.Value)
		switch {
		case !v.Body.Set:
			r.decoder.Problem(v.ContentType.Position, "content_type without body")
		case err != nil || !isOneLiner(v.ContentType.Value) || !strings.Contains(v.ContentType.Value, "/"):
			r.decoder.Problem(v.ContentType.Position, "%s is not a content type such as %q", strict.Quote(v.ContentType.Value), plainText)
		}
	} else if v.Body.Set {
		rule.Denial.ContentType = plainText
	}
}

func isOneLiner(text string) bool {
	return len(text) <= maxOneLiner && !strings.ContainsFunc(text, unicode.IsControl)
}

// modes applies shadow_mode, and refuses modes that contradict each other.
func (r *rulesReader) modes(rule *rules.Rule, e *descriptorEntry) {
	v := e.RateLimit.Value
	if e.ShadowMode.Value {
		for _, t := range v.all() {
			if t.Observe.Set {
				r.decoder.Problem(t.Observe.Position, "shadow_mode on line %d already observes all subjects: give one of the two", e.ShadowMode.Line)
			}
		}
		rule.Terms.Observe = 1
		for name, arm := range rule.ByTier {
			arm.Observe = 1
			rule.ByTier[name] = arm
		}
	}
	if rule.Always && bool(e.ShadowMode.Value) {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with shadow_mode on line %d", e.ShadowMode.Line)
	}
	for _, t := range v.all() {
		if rule.Always && read(nil, &t.Observe, parseShare) > 0 {
			r.decoder.Problem(t.Observe.Position, "charge always on line %d cannot be combined with observe", v.Charge.Line)
		}
	}
	v.each(func(l *limit) {
		switch f := &l.Lease; {
		case !strict.Given(f) || f.Value == noLease:
		case rule.Always:
			r.decoder.Problem(f.Position, "charge always on line %d cannot be combined with a lease", v.Charge.Line)
		case bool(e.QuotaMode.Value):
			r.decoder.Problem(f.Position, "quota_mode on line %d cannot be combined with a lease", e.QuotaMode.Line)
		}
	})
	if rule.Always && holds(rule) {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with the policy in_flight: a hold is of a request that runs, and ends with it")
	}
	quota, where := bool(e.QuotaMode.Value), fmt.Sprintf("quota_mode on line %d", e.QuotaMode.Line)
	if !quota && r.QuotaMode {
		quota, where = true, "QUOTA_MODE of envoyproxy/ratelimit"
	}
	if !quota {
		return
	}
	if rule.Always {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with %s", where)
	}
	for _, t := range v.all() {
		if len(t.Limits.Value) > 1 {
			r.decoder.Problem(t.Limits.Position, "a quota rule can have only one limit: see %s", where)
		}
	}
}

// holds reports whether a limit of the rule has the policy in_flight.
func holds(rule *rules.Rule) bool {
	is := func(l rules.Limit) bool { return l.Policy == window.InFlight }
	for _, arm := range rule.ByTier {
		if slices.ContainsFunc(arm.Limits, is) {
			return true
		}
	}
	return slices.ContainsFunc(rule.Terms.Limits, is)
}

// each calls back with every limit of the rule and of its tiers.
func (v *rateLimit) each(visit func(*limit)) {
	for _, t := range v.all() {
		visit(&t.limit)
		for i := range t.Limits.Value {
			visit(&t.Limits.Value[i].Value)
		}
	}
}

// all returns the rule's own terms and those of its tiers.
func (v *rateLimit) all() []*terms {
	all := []*terms{&v.terms}
	for i := range v.ByTier.Value {
		all = append(all, &v.ByTier.Value[i].Value.Value)
	}
	return all
}
