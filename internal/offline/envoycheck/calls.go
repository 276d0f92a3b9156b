package envoycheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// found collects the findings of one location.
type found struct {
	where string
	all   []Finding
}

func (f *found) add(code Code, passes, fix, format string, args ...any) *Finding {
	f.all = append(f.all, finding(code, f.where, passes, fix, format, args...))
	return &f.all[len(f.all)-1]
}

const (
	// defaultWait is how long a ratelimit filter without a timeout waits.
	defaultWait = 20 * time.Millisecond
	// notAsked is what passes if rls is not asked, or does not answer.
	notAsked = "every request, if failure_mode_deny is off"

	setTimeout = "Set timeout: 0.05s on the filter. With Envoy Gateway, set rateLimit.timeout: 50ms in its configuration."
)

// of names a filter.
func (f *LimitFilter) of(m *Manager) string { return "filter " + f.Name + " of " + m.Where }

func (f *AuthorizationFilter) of(m *Manager) string { return "filter " + f.Name + " of " + m.Where }

// limitCalls checks how ratelimit filters call rls, and what they make of its answers.
func limitCalls(in *Input) (all []Finding) {
	for _, m := range in.Managers {
		for _, f := range m.Limits {
			if f.Ends {
				continue
			}
			out := &found{where: f.of(m)}
			in.waits(f, out)
			if s := f.Status; s != nil && s.Code != "" && s.Code != "TooManyRequests" {
				out.add(DeniedStatus, "", "Remove rate_limited_status.", "A denied request gets the status %s, or 429 if that is below 400.", s.Code)
			}
			if f.RequestType == "internal" || f.RequestType == "external" {
				out.add(RequestType, "all other requests", "Remove request_type.", "Envoy asks rls only about %s requests.", f.RequestType)
			}
			out.repeats(f.Service.Call)
			all = append(all, out.all...)
		}
	}
	return all
}

func (f *found) repeats(call envoydump.Call) {
	if call.Retry != nil {
		f.add(CallsRetried, "", "Remove retry_policy.", "Envoy repeats calls to rls, and rls charges a repeated call twice.")
	}
}

// waits compares how long a filter waits with how long rls waits for its store.
func (in *Input) waits(f *LimitFilter, out *found) {
	wait, store := defaultWait, in.Service.StoreTimeout
	if f.Timeout != nil {
		var err error
		if wait, err = time.ParseDuration(*f.Timeout); err != nil {
			in.NotRead("timeout of %s", out.where)
			return
		}
	}
	switch {
	case wait == 0:
		out.add(TimeoutZero, "every request, up to Envoy 1.37", setTimeout, "The filter has timeout: 0s. Up to Envoy 1.37 every call fails. Later ones wait without a bound.")
	case store > 0 && wait <= store:
		out.add(TimeoutShort, "every request while the store is slow, whatever on_store_error says", setTimeout,
			"The filter waits %v, and rls waits up to %v for its store: Envoy gives up first.", wait, store)
	case f.Timeout == nil:
		rest := ""
		if store > 0 {
			rest = fmt.Sprintf(" rls may wait %v for its store, so little is left for the network.", store)
		}
		out.add(TimeoutDefault, "some requests while the store or the network is slow", setTimeout, "The filter has no timeout and waits %v, Envoy's default.%s", wait, rest)
	}
}

// authorizationCalls checks how ext_authz filters call rls.
func authorizationCalls(in *Input) (all []Finding) {
	// Without settings, the credentials may be others.
	credentials, severity := settings.Default().Authz.Credentials, Warning
	if s := in.Service.Settings; s != nil {
		credentials, severity = s.Authz.Credentials, Error
	}
	for _, m := range in.Managers {
		for _, f := range m.Authorizations {
			out := &found{where: f.of(m)}
			if f.Open {
				out.add(AuthorizationOpen, "requests without a subject while rls does not answer", "Set failure_mode_allow: false.",
					"The filter has failure_mode_allow: true. Without an answer of rls, requests pass and have no subject.")
			}
			if m.namesContext() {
				out.repeats(f.Call)
			}
			if !slices.ContainsFunc(credentials, f.sends) {
				out.add(CredentialNotSent, "", "Add the header of the credential to allowed_headers.",
					"Envoy sends rls no header that can have a credential of authz.credentials, so rls refuses every request.").Severity = severity
			}
			all = append(all, out.all...)
		}
	}
	return all
}

// sends reports whether the filter sends a credential to rls.
func (f *AuthorizationFilter) sends(c settings.Credential) bool {
	name := "authorization"
	switch c.Kind {
	case settings.CredentialQuery:
		return true // the path is always sent
	case settings.CredentialCookie:
		name = "cookie"
	case settings.CredentialHeader:
		name = strings.ToLower(c.Name)
	}
	accepts := func(p envoydump.StringMatcher) bool { return matches(p, name) }
	return !slices.ContainsFunc(f.DisallowedHeaders.Patterns, accepts) && (f.AllowedHeaders == nil || slices.ContainsFunc(f.AllowedHeaders.Patterns, accepts))
}

// matches reports whether a matcher accepts the name of a header in lower case.
func matches(p envoydump.StringMatcher, name string) bool {
	text := p.Exact + p.Prefix + p.Suffix + p.Contains // one is set
	if p.Fold {
		text = strings.ToLower(text)
	}
	switch {
	case p.Regex != nil:
		re, err := regexp.Compile("^(?:" + p.Regex.Regex + ")$")
		return err != nil || re.MatchString(name) // Envoy has compiled it
	case p.Prefix != "":
		return strings.HasPrefix(name, text)
	case p.Suffix != "":
		return strings.HasSuffix(name, text)
	case p.Contains != "":
		return strings.Contains(name, text)
	}
	return name == text
}
