package rules

import (
	"mime"
	"slices"
	"strings"
	"unicode"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// rule reads the limits of a descriptor and adds the rule. pathOK: the path has no problem.
func (r *rulesReader) rule(at trail, f *strict.Field[descriptorEntry], pathOK bool) {
	before := r.Report.Count()
	e, rl := &f.Value, &f.Value.RateLimit
	limits := rl.Value
	if limits == nil {
		limits = new(rateLimit)
	}
	rule := rules.Rule{
		Domain: r.domain.name,
		Path:   at.path,
		OneLog: at.oneLog,
		Metric: rules.Metric{Values: at.value, Detailed: bool(e.DetailedMetric.Value)},
		Quota:  bool(e.QuotaMode.Value),
		Answer: rules.Answer{Metadata: e.Metadata.Value},
	}
	if rl.Set && !rl.Null {
		r.fill(&rule, rl)
		r.takeTiers(&rule, limits, rule.Quota || r.QuotaMode, f.Position)
		r.modes(&rule, e)
		r.sharedTiers(&rule, limits.ByTier.OrElse(f.Position))
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
	r.locations = append(r.locations, Location{r.decoder.File, f.Line})
	r.checkName(&limits.Name, rl.OrElse(f.Position))
}

func (r *rulesReader) sharedTiers(rule *rules.Rule, at strict.Position) {
	if len(rule.ByTier) == 0 {
		return
	}
	subject := rule.SubjectLevel(r.Identity.Secrets)
	if subject >= 0 && rule.HasOneLog(subject) {
		r.decoder.Warning(at, "the tiers share one log, because share_threshold gives all values of %s one log", strict.Label(rule.Path[subject].Key))
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
		case subject >= 0 && rule.HasOneLog(subject):
			r.decoder.Warning(f.Position, "the subjects share one log, because share_threshold gives all values of %s one log: the periods start on the day of the subject that asks", strict.Label(rule.Path[subject].Key))
		}
	})
}

// bad reports whether the descriptor itself has a problem, regardless of those below it.
func (e *descriptorEntry) bad() bool {
	return e.RateLimit.Bad || e.ShareThreshold.Bad || e.ShadowMode.Bad || e.QuotaMode.Bad ||
		e.DetailedMetric.Bad || e.ValueToMetric.Bad || e.Metadata.Bad
}

func (r *rulesReader) fill(rule *rules.Rule, rl *strict.Field[*rateLimit]) {
	v := rl.Value
	rule.Name = string(v.Name.Value)
	rule.Subject = v.Subject.Value
	rule.Storage.Scope = r.scopeOf(&v.Scope)
	rule.Storage.Priority = r.priorityOf(&v.Priority)
	rule.Terms, rule.ByTier = r.terms(rl)
	if v.ByTier.Set && len(rule.ByTier) == 0 && !v.Subject.Set {
		// The same as with a tier next to default.
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
		rule.Charge.Always, rule.Charge.AllowedOnly = charge == "always", charge == "allowed"
	}
	if strict.Given(&v.OnStoreError) {
		rule.Storage.OnError, _ = rules.ParseOnStoreError(r.oneOf(&v.OnStoreError, settings.StoreErrors...))
	}
	if v.RetryJitter.Set {
		rule.Answer.RetryJitter = read(r.decoder, &v.RetryJitter, parseJitter)
	}
	if strict.Given(&v.ClientRetry) {
		rule.Answer.NeverRetry = r.oneOf(&v.ClientRetry, "auto", "never") == "never"
	}
	if strict.Given(&v.Cost) {
		rule.Charge.Factor = v.Cost.Value
		switch {
		case rule.Charge.Factor == 0:
			r.decoder.Problem(v.Cost.Position, "a cost of 0 would charge nothing: if you want that, write unlimited: true")
		case rule.Charge.Factor > window.MaxHits:
			r.decoder.Problem(v.Cost.Position, "%d is above %d, the largest limit there is", rule.Charge.Factor, uint64(window.MaxHits))
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

// scopeOf reads scope, and notes which store the limits of the rule are for.
func (r *rulesReader) scopeOf(f *strict.Field[string]) string {
	r.scope = r.Scopes[window.Region]
	if !strict.Given(f) {
		return ""
	}
	in, err := r.rules.ScopeNumber(f.Value)
	if err != nil {
		r.decoder.Problem(f.Position, "%s%s", err, strict.DidYouMean(f.Value, r.rules.Scopes()))
	}
	r.scope = r.Scopes[in]
	return f.Value
}

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
	maxBody        = 16 << 10
	maxContentType = 256
	plainText      = "text/plain; charset=utf-8"
)

func (r *rulesReader) denial(rule *rules.Rule, v *rateLimit) {
	b := v.Body.Value
	rule.Answer.Denial = rules.Denial{Form: b.form, Body: b.text, ContentType: v.ContentType.Value}
	switch {
	case strict.Given(&v.Body) && b.form == rules.FormUnset && b.text == "":
		r.decoder.Problem(v.Body.Position, "an empty body: remove the key for the service's own body")
	case b.plain && rules.ParseForm(strings.ToLower(strings.TrimSpace(b.text))) != rules.FormUnset:
		r.decoder.Warning(v.Body.Position, "denied clients get the text %s itself: write the name of a form in small letters", strict.Quote(b.text))
	case len(b.text) > maxBody:
		r.decoder.Problem(v.Body.Position, "longer than %d KiB: shorten it", maxBody>>10)
	}
	if strict.Given(&v.ContentType) {
		text := v.ContentType.Value
		_, _, err := mime.ParseMediaType(text)
		switch {
		case !v.Body.Set:
			r.decoder.Problem(v.ContentType.Position, "content_type without body")
		case b.form != rules.FormUnset:
			r.decoder.Problem(v.ContentType.Position, "the body %s has its own content type: remove content_type, or write body: {text: %s}", b.form, b.form)
		case err != nil || len(text) > maxContentType || strings.ContainsFunc(text, unicode.IsControl) || !strings.Contains(text, "/"):
			r.decoder.Problem(v.ContentType.Position, "%s is not a content type such as %q", strict.Quote(text), plainText)
		}
	} else if b.text != "" {
		rule.Answer.Denial.ContentType = plainText
	}
}
