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

// defaultWait is how long a ratelimit filter without a timeout waits.
const defaultWait = 20 * time.Millisecond

// noLimit is what passes if rls is not asked, or does not answer.
const noLimit = "every request, if failure_mode_deny is off"

// of names a filter.
func (f *LimitFilter) of(m *Manager) string { return "filter " + f.Name + " of " + m.Where }

func (f *AuthorizationFilter) of(m *Manager) string { return "filter " + f.Name + " of " + m.Where }

// limitCalls checks how ratelimit filters call rls.
func limitCalls(in *Input) (all []Finding) {
	for _, m := range in.Managers {
		for _, f := range m.Limits {
			if !f.Ends {
				all = append(append(all, in.waits(f, f.of(m))...), f.answers(f.of(m))...)
			}
		}
	}
	return all
}

// waits compares how long a filter waits with how long rls waits for its store.
func (in *Input) waits(f *LimitFilter, where string) []Finding {
	const fix = "Set timeout: 0.05s on the filter. With Envoy Gateway, set rateLimit.timeout: 50ms in its configuration."
	wait := defaultWait
	if f.Timeout != nil {
		var err error
		if wait, err = time.ParseDuration(*f.Timeout); err != nil {
			in.NotRead("timeout of %s", where)
			return nil
		}
	}
	store := in.Service.StoreTimeout
	switch {
	case wait == 0:
		return []Finding{{
			Code: TimeoutZero, Where: where, Passes: "every request, up to Envoy 1.37", Fix: fix,
			Message: "The filter has timeout: 0s. Up to Envoy 1.37 every call fails. Later ones wait without a bound.",
		}}
	case store > 0 && wait <= store:
		return []Finding{{
			Code: TimeoutShort, Where: where, Passes: "every request while the store is slow, whatever on_store_error says", Fix: fix,
			Message: fmt.Sprintf("The filter waits %v, and rls waits up to %v for its store: Envoy gives up first.", wait, store),
		}}
	case f.Timeout == nil:
		return []Finding{{
			Code: TimeoutDefault, Where: where, Passes: "some requests while the store or the network is slow", Fix: fix,
			Message: fmt.Sprintf("The filter has no timeout and waits %v, Envoy's default. rls may wait %v for its store, so little is left for the network.", wait, store),
		}}
	}
	return nil
}

// answers checks what a filter makes of the answers, and which requests it asks about.
func (f *LimitFilter) answers(where string) (all []Finding) {
	if f.Status != nil && f.Status.Code != "" && f.Status.Code != "TooManyRequests" {
		all = append(all, Finding{
			Code: DeniedStatus, Where: where, Fix: "Remove rate_limited_status.",
			Message: "A denied request gets the status " + f.Status.Code + ", or 429 if that is below 400.",
		})
	}
	if f.RequestType == "internal" || f.RequestType == "external" {
		all = append(all, Finding{
			Code: RequestType, Where: where, Passes: "all other requests", Fix: "Remove request_type.",
			Message: "Envoy asks rls only about " + f.RequestType + " requests.",
		})
	}
	if f.Service.Call.Retry != nil {
		all = append(all, Finding{
			Code: CallsRetried, Where: where, Fix: "Remove retry_policy.",
			Message: "Envoy repeats calls to rls, and rls charges a repeated call twice.",
		})
	}
	return all
}

// authorizationCalls checks how ext_authz filters call rls.
func authorizationCalls(in *Input) (all []Finding) {
	for _, m := range in.Managers {
		for _, f := range m.Authorizations {
			where := f.of(m)
			if f.Open {
				all = append(all, Finding{
					Code: AuthorizationOpen, Where: where, Passes: "requests without a subject while rls does not answer",
					Message: "The filter has failure_mode_allow: true. Without an answer of rls, requests pass and have no subject.", Fix: "Set failure_mode_allow: false.",
				})
			}
			if f.Call.Retry != nil && m.namesContext() {
				all = append(all, Finding{
					Code: CallsRetried, Where: where, Fix: "Remove retry_policy.",
					Message: "Envoy repeats calls to rls, and rls charges a repeated call twice.",
				})
			}
			if s := in.Service.Settings; s != nil && f.AllowedHeaders != nil && !slices.ContainsFunc(s.Authz.Credentials, f.sends) {
				all = append(all, Finding{
					Code: CredentialNotSent, Where: where, Fix: "Add the header of the credential to allowed_headers.",
					Message: "None of allowed_headers can have a credential of authz.credentials, so rls refuses every request.",
				})
			}
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
	return slices.ContainsFunc(f.AllowedHeaders.Patterns, func(p envoydump.StringMatcher) bool { return matches(p, name) })
}

// matches reports whether a matcher accepts the name of a header in lower case.
func matches(p envoydump.StringMatcher, name string) bool {
	lower := func(s string) string {
		if p.Fold {
			return strings.ToLower(s)
		}
		return s
	}
	switch {
	case p.Exact != "":
		return name == lower(p.Exact)
	case p.Prefix != "":
		return strings.HasPrefix(name, lower(p.Prefix))
	case p.Suffix != "":
		return strings.HasSuffix(name, lower(p.Suffix))
	case p.Contains != "":
		return strings.Contains(name, lower(p.Contains))
	case p.Regex != nil:
		re, err := regexp.Compile("^(?:" + p.Regex.Regex + ")$")
		return err != nil || re.MatchString(name) // Envoy has compiled it
	}
	return false
}
