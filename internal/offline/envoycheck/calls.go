package envoycheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// defaultWait is how long a ratelimit filter without a timeout waits.
const defaultWait = 20 * time.Millisecond

// limitCalls checks how ratelimit filters call rls, and what they make of its answers.
func (in *input) limitCalls() {
	for _, f := range in.limits {
		if f.ends {
			continue
		}
		in.waits(f)
		if s := f.Status; s != nil && s.Code != "" && s.Code != "TooManyRequests" {
			in.report(deniedStatus, f.where(), "A denied request gets the status %s, or 429 if that is below 400.", s.Code)
		}
		if !f.Exhausted && slices.ContainsFunc(in.sends, func(s *sent) bool {
			return s.filter == f && slices.ContainsFunc(s.entries, func(e entry) bool { return e.Key == rules.FormEntry && e.Value == "grpc" })
		}) {
			in.report(grpcForm, f.where(), "A route has the form grpc, and gRPC clients get the code UNAVAILABLE, which is not that of the details.")
		}
		if f.RequestType == "internal" || f.RequestType == "external" {
			in.report(requestType, f.where(), "Envoy asks rls only about %s requests.", f.RequestType)
		}
		in.repeats(&f.filter, f.Service.Call)
	}
}

func (in *input) repeats(f *filter, call envoydump.Call) {
	if call.Retry != nil {
		in.report(callsRetried, f.where(), "Envoy repeats calls to rls, and rls charges a repeated call twice.")
	}
}

// waits compares how long a filter waits with how long rls waits for its store.
func (in *input) waits(f *limitFilter) {
	wait, store := defaultWait, in.service.StoreTimeout
	if f.Timeout != nil {
		var err error
		if wait, err = time.ParseDuration(*f.Timeout); err != nil {
			in.notRead("timeout of %s", f.where())
			return
		}
	}
	switch {
	case wait == 0:
		in.report(timeoutZero, f.where(), "The filter has timeout: 0s. Up to Envoy 1.37 every call fails. Later ones wait without a bound.")
	case store > 0 && wait <= store:
		in.report(timeoutShort, f.where(), "The filter waits %v, and rls waits up to %v for its store: Envoy gives up first.", wait, store)
	case f.Timeout == nil:
		rest := ""
		if store > 0 {
			rest = fmt.Sprintf(" rls may wait %v for its store, so little is left for the network.", store)
		}
		in.report(timeoutDefault, f.where(), "The filter has no timeout and waits %v, Envoy's default.%s", wait, rest)
	}
}

// authorizationCalls checks how ext_authz filters call rls.
func (in *input) authorizationCalls() {
	for _, m := range in.managers {
		for _, f := range m.authorizations {
			if f.Open {
				in.report(authorizationOpen, f.where(), "The filter has failure_mode_allow: true. Without an answer of rls, requests pass and have no subject.")
			}
			if m.namesContext() {
				in.repeats(&f.filter, f.Call)
			}
			if !slices.ContainsFunc(in.service.credentials(), f.sends) {
				found := in.report(credentialNotSent, f.where(), "Envoy sends rls no header that can have a credential of authz.credentials, so rls refuses every request.")
				if in.service.Settings == nil {
					found.Severity = Warning
				}
			}
		}
	}
}

// credentials returns those of the settings. Without settings they may be others.
func (s *Service) credentials() []settings.Credential {
	if s.Settings == nil {
		return settings.Default().Authz.Credentials
	}
	return s.Settings.Authz.Credentials
}

// headerOf returns the header of a credential in lower case. Empty: it is a query parameter.
func headerOf(c settings.Credential) string {
	switch c.Kind {
	case settings.CredentialQuery:
		return ""
	case settings.CredentialCookie:
		return "cookie"
	case settings.CredentialHeader:
		return strings.ToLower(c.Name)
	}
	return "authorization"
}

// sends reports whether the filter sends a credential to rls. It always sends the path.
func (f *authorizationFilter) sends(c settings.Credential) bool {
	name := headerOf(c)
	accepts := func(p envoydump.StringMatcher) bool { return matches(p, name) }
	return name == "" || !slices.ContainsFunc(f.DisallowedHeaders.Patterns, accepts) && (f.AllowedHeaders == nil || slices.ContainsFunc(f.AllowedHeaders.Patterns, accepts))
}

// matches reports whether a matcher accepts the name of a header in lower case.
func matches(p envoydump.StringMatcher, name string) bool {
	text := p.Exact + p.Prefix + p.Suffix + p.Contains // one is set
	if p.Fold {
		text = strings.ToLower(text)
	}
	switch {
	case p.Regex != nil:
		re, err := envoyfile.WholeText(p.Regex.Regex)
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
