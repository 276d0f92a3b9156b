package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/httpfield"
)

// Authz says how requests are authorized (Envoy's ext_authz).
type Authz struct {
	Credentials      []Credential  `yaml:"credentials" doc:"where the API key of a request is; rls takes the first of these with a key: header:NAME, bearer, basic, apikey (schemes of Authorization), query:NAME, cookie:NAME"`
	RemoveCredential bool          `yaml:"remove_credential" doc:"remove the header or cookie with the API key before the upstream; rls always removes a query parameter"`
	Wait             time.Duration `yaml:"wait" range:"0 10s" doc:"longest time that an authorization waits for the customer source"`
	SubjectHeader    string        `yaml:"subject_header" doc:"the header for the upstream with the customer's id; empty: no header"`
	TierHeader       string        `yaml:"tier_header" doc:"the header for the upstream with the tier; empty: no header"`
	LabelHeaders     []LabelHeader `yaml:"label_headers" doc:"headers for the upstream with labels of the customer, each header=label"`
	Address          string        `yaml:"address" oneof:"peer x-envoy-external-address x-forwarded-for" doc:"where the client's address comes from: peer, x-envoy-external-address or x-forwarded-for"`
	Hops             int           `yaml:"hops" range:"1 100" doc:"with x-forwarded-for: which entry is the client, from the right"`
	IPv6Prefix       int           `yaml:"ipv6_prefix" range:"1 128" doc:"bits of an IPv6 address in masked_remote_address and in the subject of an anonymous client; 128: all"`
}

// Where a client's address comes from.
const (
	AddressPeer         = "peer"
	AddressExternal     = "x-envoy-external-address"
	AddressForwardedFor = "x-forwarded-for"
)

func defaultAuthz() Authz {
	return Authz{
		Credentials:   []Credential{{Kind: CredentialHeader, Name: "x-api-key"}, {Kind: CredentialBearer}},
		Wait:          50 * time.Millisecond,
		SubjectHeader: "x-subject-id",
		TierHeader:    "x-tier",
		LabelHeaders:  []LabelHeader{},
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

// A Credential says where the API key of a request is.
type Credential struct {
	Kind string
	// Name is that of the header, in lower case, of the query parameter or of the
	// cookie. Schemes of Authorization have none.
	Name string
}

const maxCredentialName = 256

// String returns the credential as authz.credentials has it.
func (c Credential) String() string {
	if c.Name == "" {
		return c.Kind
	}
	return c.Kind + ":" + c.Name
}

// MarshalText returns String.
func (c Credential) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads an item of authz.credentials.
func (c *Credential) UnmarshalText(text []byte) error {
	kind, name, named := strings.Cut(string(text), ":")
	*c = Credential{Kind: strings.ToLower(kind), Name: name}
	problem := ""
	switch c.Kind {
	case CredentialBearer, CredentialBasic, CredentialAPIKey:
		if named {
			problem = c.Kind + " has no name, it is a scheme of Authorization"
		}
	case CredentialHeader:
		c.Name = strings.ToLower(name)
		problem = checkHeader(c.Name)
		if c.Name == "authorization" {
			problem = "Authorization has a scheme: write bearer, basic or apikey"
		}
	case CredentialCookie:
		if !httpfield.ValidName(name) || len(name) > maxCredentialName {
			problem = "expected cookie: and the name of a cookie"
		}
	case CredentialQuery:
		if name == "" || len(name) > maxCredentialName || !isPrintable(name) {
			problem = "expected query: and the name of a parameter"
		}
	default:
		*c = Credential{}
		return errors.New(strict.Quote(string(text)) + " is not one of header:NAME, bearer, basic, apikey, query:NAME, cookie:NAME")
	}
	return itemError(c, text, problem)
}

// itemError returns an error about the text of an item, and empties the item. It returns nil without a
// problem.
func itemError[T any](item *T, text []byte, problem string) error {
	if problem == "" {
		return nil
	}
	*item = *new(T)
	return fmt.Errorf("%s: %s", strict.Quote(string(text)), problem)
}

// NewSecrets returns the digests of API keys under a secret, as the settings say. The scheme
// Basic holds a key only if authz.credentials names it.
func (s *Settings) NewSecrets(secret Secret) *tier.Secrets {
	secrets := tier.NewSecrets(s.Secrets.Entries, secret.Reveal())
	if slices.ContainsFunc(s.Authz.Credentials, func(c Credential) bool { return c.Kind == CredentialBasic }) {
		secrets.BasicHasKey()
	}
	return secrets
}

// A LabelHeader is a header with a label of the subject.
type LabelHeader struct {
	Header string // in lower case
	Label  string
}

// String returns the header as authz.label_headers has it.
func (h LabelHeader) String() string { return h.Header + "=" + h.Label }

// MarshalText returns String.
func (h LabelHeader) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads an item of authz.label_headers, header=label.
func (h *LabelHeader) UnmarshalText(text []byte) error {
	header, label, ok := strings.Cut(string(text), "=")
	*h = LabelHeader{Header: strings.ToLower(header), Label: label}
	problem := checkUpstreamHeader(h.Header)
	switch {
	case !ok:
		problem = "expected header=label"
	case problem == "" && !tier.ValidLabelName(label):
		problem = fmt.Sprintf("the name of a label is 1 to %d letters, digits and _.-", tier.MaxLabelName)
	}
	return itemError(h, text, problem)
}

// fixedHeaders belong to the connection or to the message. No setting may name them.
var fixedHeaders = []string{
	"connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
	"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

func checkHeader(name string) string {
	switch {
	case len(name) > maxCredentialName || !httpfield.ValidName(name):
		return strict.Quote(name) + " is not the name of a header"
	case slices.Contains(fixedHeaders, name):
		return name + " belongs to the connection or the message: choose another header"
	}
	return ""
}

// takenHeaders are headers that proxies put on a request, and headers of answers over HTTP. A
// star stands for any rest of the name.
var takenHeaders = []string{
	"cache-control", "content-*", "forwarded", "ratelimit*", "retry-after*", "www-authenticate", "x-authz-status", "x-envoy-*", "x-forwarded-*",
	"x-original-*", "x-ratelimit*", "x-should-retry",
}

// checkUpstreamHeader returns what is wrong with the name of a header with the subject, its
// tier or a label for the upstream.
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

func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// authz checks that every header upstream means one thing. Items that cannot be read are empty.
func (l *settingsLoader) authz() {
	const path = "authz.credentials"
	a := &l.settings.Authz
	if len(a.Credentials) == 0 {
		l.problem(path, "at least one location is needed")
	}
	for i, c := range a.Credentials {
		if c.Kind != "" && slices.Contains(a.Credentials[:i], c) {
			l.problem(path, "%s is listed twice", strict.Quote(c.String()))
		}
	}
	taken := make(map[string]string)
	for _, c := range a.Credentials {
		switch c.Kind {
		case CredentialHeader:
			taken[c.Name] = path
		case CredentialBearer, CredentialBasic, CredentialAPIKey:
			taken["authorization"] = path
		case CredentialCookie:
			taken["cookie"] = path
		}
	}
	a.SubjectHeader, a.TierHeader = strings.ToLower(a.SubjectHeader), strings.ToLower(a.TierHeader)
	type header struct{ path, name, problem string }
	headers := []header{
		{"authz.subject_header", a.SubjectHeader, checkUpstreamHeader(a.SubjectHeader)},
		{"authz.tier_header", a.TierHeader, checkUpstreamHeader(a.TierHeader)},
	}
	for _, h := range a.LabelHeaders {
		headers = append(headers, header{"authz.label_headers", h.Header, ""})
	}
	for _, h := range headers {
		other, again := taken[h.name]
		switch {
		case h.name == "":
			continue
		case h.problem != "":
			l.problem(h.path, "%s", h.problem)
			continue
		case again:
			l.problem(h.path, "%s is already a header of %s: choose another", h.name, other)
		}
		taken[h.name] = h.path
	}
}
