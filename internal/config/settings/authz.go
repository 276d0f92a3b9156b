package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/tier"
)

// Authz says how requests are authorized (Envoy's ext_authz).
type Authz struct {
	Credentials      []string      `yaml:"credentials" doc:"where the API key of a request is, the first that is there counts: header:NAME, bearer, basic, apikey (schemes of Authorization), query:NAME, cookie:NAME"`
	RemoveCredential bool          `yaml:"remove_credential" doc:"take the header or cookie with the API key off the request upstream; a query parameter always goes"`
	Realm            string        `yaml:"realm" doc:"the realm in WWW-Authenticate"`
	Wait             time.Duration `yaml:"wait" doc:"what an authorization waits at most for the source of tiers"`
	SubjectHeader    string        `yaml:"subject_header" doc:"header upstream with the id of the subject; empty: none"`
	TierHeader       string        `yaml:"tier_header" doc:"header upstream with the tier; empty: none"`
	LabelHeaders     []string      `yaml:"label_headers" doc:"headers upstream with labels of the subject, each header=label"`
	Address          string        `yaml:"address" doc:"where the client's address comes from: peer, x-envoy-external-address or x-forwarded-for"`
	Hops             int           `yaml:"hops" doc:"with x-forwarded-for: which entry counts, from the right"`
	IPv6Prefix       int           `yaml:"ipv6_prefix" doc:"bits of an IPv6 address in masked_remote_address and in the subject of who is anonymous; 128: all"`
	RateLimitRule    string        `yaml:"rate_limit_rule" doc:"the rule whose override is told as metadata rate_limit; empty: the only one that a subject has"`
}

// Where a client's address comes from.
const (
	AddressPeer         = "peer"
	AddressExternal     = "x-envoy-external-address"
	AddressForwardedFor = "x-forwarded-for"
)

func defaultAuthz() Authz {
	return Authz{
		Credentials:   []string{"header:x-api-key", CredentialBearer},
		Realm:         "api",
		Wait:          50 * time.Millisecond,
		SubjectHeader: "x-subject-id",
		TierHeader:    "x-tier",
		LabelHeaders:  []string{},
		Address:       AddressPeer,
		Hops:          1,
		IPv6Prefix:    64,
	}
}

// The kinds of a [Credential].
const (
	CredentialHeader = "header"
	CredentialBearer = "bearer"
	CredentialBasic  = "basic"
	CredentialAPIKey = "apikey"
	CredentialQuery  = "query"
	CredentialCookie = "cookie"
)

// A Credential is a place of an API key in a request.
type Credential struct {
	Kind string
	// Name is that of the header, in lower case, of the query parameter or of the
	// cookie. Schemes of Authorization have none.
	Name string
}

const maxCredentialName = 256

// ParseCredential reads an item of authz.credentials.
func ParseCredential(text string) (Credential, error) {
	kind, name, named := strings.Cut(text, ":")
	c := Credential{Kind: strings.ToLower(kind), Name: name}
	none := Credential{}
	switch c.Kind {
	case CredentialBearer, CredentialBasic, CredentialAPIKey:
		if named {
			return none, fmt.Errorf("%s: %s has no name, it is a scheme of Authorization", strict.Quote(text), c.Kind)
		}
		return c, nil
	case CredentialHeader:
		c.Name = strings.ToLower(name)
		if c.Name == "authorization" {
			return none, fmt.Errorf("%s: Authorization has a scheme: write bearer, basic or apikey", strict.Quote(text))
		}
		if problem := checkHeader(c.Name); problem != "" {
			return none, fmt.Errorf("%s: %s", strict.Quote(text), problem)
		}
		return c, nil
	case CredentialCookie:
		if !httpguts.ValidHeaderFieldName(name) || len(name) > maxCredentialName {
			return none, fmt.Errorf("%s: expected cookie: and the name of a cookie", strict.Quote(text))
		}
		return c, nil
	case CredentialQuery:
		if name == "" || len(name) > maxCredentialName || !isPrintable(name) {
			return none, fmt.Errorf("%s: expected query: and the name of a parameter", strict.Quote(text))
		}
		return c, nil
	}
	return none, fmt.Errorf("%s is not one of header:NAME, bearer, basic, apikey, query:NAME, cookie:NAME", strict.Quote(text))
}

// NewSecrets returns what digests API keys under a secret, as the settings say. The
// scheme Basic holds a key only if authz.credentials names it.
func (s *Settings) NewSecrets(secret Secret) *tier.Secrets {
	secrets := tier.NewSecrets(s.Secrets.Entries, secret.Reveal())
	for _, text := range s.Authz.Credentials {
		if c, err := ParseCredential(text); err == nil && c.Kind == CredentialBasic {
			secrets.BasicHoldsKey()
		}
	}
	return secrets
}

// A LabelHeader is a header with a label of the subject.
type LabelHeader struct {
	Header string // in lower case
	Label  string
}

// ParseLabelHeader reads an item of authz.label_headers, header=label.
func ParseLabelHeader(text string) (LabelHeader, error) {
	header, label, ok := strings.Cut(text, "=")
	header = strings.ToLower(header)
	if !ok {
		return LabelHeader{}, fmt.Errorf("%s: expected header=label", strict.Quote(text))
	}
	if problem := checkUpstreamHeader(header); problem != "" {
		return LabelHeader{}, fmt.Errorf("%s: %s", strict.Quote(text), problem)
	}
	if !isLabelName(label) {
		return LabelHeader{}, fmt.Errorf("%s: the name of a label is 1 to %d letters, digits and _.-", strict.Quote(text), maxLabelName)
	}
	return LabelHeader{Header: header, Label: label}, nil
}

// fixedHeaders belong to the connection or to the message, and nobody else sets
// them.
var fixedHeaders = []string{
	"connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
	"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// checkHeader says what is wrong with the name of a header in lower case.
func checkHeader(name string) string {
	switch {
	case len(name) > maxCredentialName || !httpguts.ValidHeaderFieldName(name):
		return strict.Quote(name) + " is not the name of a header"
	case slices.Contains(fixedHeaders, name):
		return name + " belongs to the connection or the message: choose another header"
	}
	return ""
}

// takenHeaders are what proxies say about a request, and what an answer over HTTP
// says besides the subject. A star stands for whatever comes behind.
var takenHeaders = []string{
	"cache-control", "content-*", "forwarded", "ratelimit*", "retry-after", "www-authenticate", "x-authz-status", "x-envoy-*", "x-forwarded-*",
	"x-original-*", "x-ratelimit*",
}

// checkUpstreamHeader says what is wrong with the name of a header that tells the
// upstream who calls.
func checkUpstreamHeader(name string) string {
	if problem := checkHeader(name); problem != "" {
		return problem
	}
	for _, taken := range takenHeaders {
		start, all := strings.CutSuffix(taken, "*")
		if name == start || all && strings.HasPrefix(name, start) {
			return name + " means something else to proxies: choose another header"
		}
	}
	return ""
}

const maxLabelName = 64

func isLabelName(name string) bool {
	return name != "" && len(name) <= maxLabelName && strings.Trim(name, labelCharacters) == ""
}

const labelCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

// isPrintable reports whether a text is UTF-8 without control characters.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// Bounds of settings of authorization; see those of the others.
const (
	maxAuthzWait = 10 * time.Second
	maxHops      = 100
	maxRealm     = 128
)

func (l *settingsLoader) authz() {
	a := &l.settings.Authz
	credentials := l.credentials(a)
	if a.Realm == "" || len(a.Realm) > maxRealm || strings.ContainsFunc(a.Realm, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		l.problem("authz.realm", `%s: 1 to %d printable ASCII characters, without " and \`, strict.Quote(a.Realm), maxRealm)
	}
	l.timeBetween("authz.wait", a.Wait, 0, maxAuthzWait)
	l.authzHeaders(a, credentials)
	l.oneOf("authz.address", a.Address, AddressPeer, AddressExternal, AddressForwardedFor)
	l.between("authz.hops", a.Hops, 1, maxHops)
	l.between("authz.ipv6_prefix", a.IPv6Prefix, 1, 128)
	if !isPrintable(a.RateLimitRule) {
		l.problem("authz.rate_limit_rule", "%s is no name of a rule", strict.Quote(a.RateLimitRule))
	}
}

func (l *settingsLoader) credentials(a *Authz) []Credential {
	const path = "authz.credentials"
	if len(a.Credentials) == 0 {
		l.problem(path, "at least one is needed")
	}
	var all []Credential
	for _, text := range a.Credentials {
		c, err := ParseCredential(text)
		switch {
		case err != nil:
			l.problem(path, "%s", err)
			continue
		case slices.Contains(all, c):
			l.problem(path, "%s stands there twice", strict.Quote(text))
		}
		all = append(all, c)
	}
	return all
}

// authzHeaders checks that every header upstream means one thing.
func (l *settingsLoader) authzHeaders(a *Authz, credentials []Credential) {
	taken := make(map[string]string)
	for _, c := range credentials {
		switch c.Kind {
		case CredentialHeader:
			taken[c.Name] = "authz.credentials"
		case CredentialBearer, CredentialBasic, CredentialAPIKey:
			taken["authorization"] = "authz.credentials"
		case CredentialCookie:
			taken["cookie"] = "authz.credentials"
		}
	}
	take := func(path, name string) {
		if other, ok := taken[name]; ok {
			l.problem(path, "%s is a header of %s already", name, other)
		}
		taken[name] = path
	}
	a.SubjectHeader, a.TierHeader = strings.ToLower(a.SubjectHeader), strings.ToLower(a.TierHeader)
	for _, h := range []struct{ path, name string }{
		{"authz.subject_header", a.SubjectHeader}, {"authz.tier_header", a.TierHeader},
	} {
		if h.name == "" {
			continue
		}
		if problem := checkUpstreamHeader(h.name); problem != "" {
			l.problem(h.path, "%s", problem)
			continue
		}
		take(h.path, h.name)
	}
	for _, text := range a.LabelHeaders {
		h, err := ParseLabelHeader(text)
		if err != nil {
			l.problem("authz.label_headers", "%s", err)
			continue
		}
		take("authz.label_headers", h.Header)
	}
}
