package daemon

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/extauthz"
	"github.com/slidegate/slidegate/internal/metrics"
)

// credentialKinds has the kind for each value of authz.credentials.
var credentialKinds = map[string]extauthz.Kind{
	settings.CredentialHeader: extauthz.Header,
	settings.CredentialBearer: extauthz.Bearer,
	settings.CredentialBasic:  extauthz.Basic,
	settings.CredentialAPIKey: extauthz.APIKey,
	settings.CredentialQuery:  extauthz.Query,
	settings.CredentialCookie: extauthz.Cookie,
}

// addressSources has the source for each value of authz.address.
var addressSources = map[string]extauthz.AddressFrom{
	settings.AddressPeer:         extauthz.Peer,
	settings.AddressExternal:     extauthz.ExternalAddress,
	settings.AddressForwardedFor: extauthz.ForwardedFor,
}

// valueOf returns the value for a setting. It panics if there is none: then the settings have a
// choice that this package does not know.
func valueOf[V any](values map[string]V, setting string) V {
	v, ok := values[setting]
	if !ok {
		panic(fmt.Sprintf("no value for the setting %q", setting))
	}
	return v
}

// maxUnknownKeys is how many unknown API keys an address may send in a minute.
const maxUnknownKeys = 20

// authorizationOptions returns o with the settings of the section authz.
func authorizationOptions(a settings.Authz, o extauthz.Options) extauthz.Options {
	for _, c := range a.Credentials {
		o.Credentials = append(o.Credentials, extauthz.Credential{Kind: valueOf(credentialKinds, c.Kind), Name: c.Name})
	}
	for _, h := range a.LabelHeaders {
		o.LabelHeaders = append(o.LabelHeaders, extauthz.LabelHeader{Header: h.Header, Label: h.Label})
	}
	o.RemoveCredential = a.RemoveCredential
	o.Wait = a.Wait
	o.SubjectHeader, o.TierHeader = a.SubjectHeader, a.TierHeader
	o.Address = extauthz.AddressRule{From: valueOf(addressSources, a.Address), Hops: a.Hops}
	o.IPv6Prefix = a.IPv6Prefix
	o.MaxUnknown = maxUnknownKeys
	return o
}

// authorizationMeters counts the results of authorization.
type authorizationMeters struct {
	*metrics.Metrics
	results []prometheus.Counter // by number
}

func newAuthorizationMeters(registry prometheus.Registerer, m *metrics.Metrics) *authorizationMeters {
	vec := metrics.Authorization(registry)
	a := &authorizationMeters{Metrics: m}
	for _, r := range extauthz.Results() {
		a.results = append(a.results, vec.WithLabelValues(r.String()))
	}
	return a
}

// Authorized implements extauthz.Meters.
func (a *authorizationMeters) Authorized(r extauthz.Result) { a.results[r].Inc() }
