package extauthz

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/tier/apikey"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// scheme returns the scheme of a kind of credential in Authorization and WWW-Authenticate. Kinds
// without a registered scheme have ApiKey.
func scheme(kind string) string {
	switch kind {
	case settings.CredentialBearer:
		return apikey.SchemeBearer
	case settings.CredentialBasic:
		return apikey.SchemeBasic
	default:
		return apikey.SchemeAPIKey
	}
}

// A credential is one position where a request may have its API key.
type credential settings.Credential

const (
	headerAuthorization = "authorization"
	headerCookie        = "cookie"
)

type presence int

const (
	absent presence = iota
	present
	malformed
)

// find returns the API key at the first position that has a credential, and the positions after
// it.
func find(r *request, credentials []settings.Credential) (key string, p presence, behind []settings.Credential) {
	for i, c := range credentials {
		if key, p = credential(c).find(r); p != absent {
			behind = credentials[i+1:]
			break
		}
	}
	if p == present && !apikey.ValidKey(key) {
		return "", malformed, nil
	}
	return key, p, behind
}

// appendOthers appends the API keys at the given positions to keys, each key once. It
// reports false if one is malformed: an application may read a key there that rls
// cannot look up. It leaves out an empty value and a value that is too long: neither can
// be a subject's key.
func appendOthers(keys []string, r *request, others []settings.Credential) (all []string, ok bool) {
	for _, c := range others {
		switch key, p := credential(c).find(r); {
		case p == absent:
		case p == malformed, strings.ContainsFunc(key, invisible):
			return keys, false
		case apikey.ValidKey(key) && !slices.Contains(keys, key):
			keys = append(keys, key)
		}
	}
	return keys, true
}

func invisible(c rune) bool { return c <= ' ' || c > '~' }

// find returns the value at this position. The value need not be a valid API key.
func (c credential) find(r *request) (key string, p presence) {
	switch c.Kind {
	case settings.CredentialHeader:
		value, lines := r.fields.get(c.Name, ",")
		return single(descriptors.Trim(value), lines)
	case settings.CredentialQuery:
		return c.findParameter(r)
	case settings.CredentialCookie:
		return c.findCookie(r)
	default:
		return c.findAuthorization(r)
	}
}

// single returns a value that must occur once. A value with a comma is malformed: Envoy
// joins repeated fields by a comma.
func single(value string, times int) (string, presence) {
	switch {
	case times == 0:
		return "", absent
	case times > 1 || strings.Contains(value, ","):
		return "", malformed
	default:
		return value, present
	}
}

func (c credential) findAuthorization(r *request) (string, presence) {
	value, lines := r.fields.get(headerAuthorization, ",")
	if lines == 0 || !c.inAuthorization(value) {
		return "", absent // it has another scheme
	}
	_, rest := apikey.CutScheme(value)
	key, p := single(rest, lines)
	if p != present || c.Kind != settings.CredentialBasic {
		return key, p
	}
	key, ok := apikey.BasicKey(key)
	if !ok {
		return "", malformed
	}
	return key, present
}

// inAuthorization reports whether one of the joined values of Authorization has the
// scheme.
func (c credential) inAuthorization(value string) bool {
	for more := true; more; {
		var one string
		one, value, more = strings.Cut(value, ",")
		if found, _ := apikey.CutScheme(one); strings.EqualFold(found, scheme(c.Kind)) {
			return true
		}
	}
	return false
}

func (c credential) findParameter(r *request) (string, presence) {
	value, times, similar := "", 0, false
	c.eachParameter(r.query(), func(_, raw string, exact bool) {
		value, times, similar = raw, times+1, similar || !exact
	})
	switch {
	case similar:
		return "", malformed
	case times != 1:
		return single("", times)
	}
	key, err := url.PathUnescape(value) // it keeps a plus: no key contains a space
	if err != nil {
		return "", malformed
	}
	return key, present
}

// eachParameter calls found for each parameter that some reader may take for the
// credential, with its name as written. If exact is false, only some readers take the
// parameter, or a part of it, for the credential.
func (c credential) eachParameter(query string, found func(name, value string, exact bool)) {
	for query != "" {
		var one string
		one, query, _ = strings.Cut(query, "&")
		raw, value, _ := strings.Cut(one, "=")
		exact, similar := decoded(raw) == c.Name, false
		first := true
		for part := range strings.SplitSeq(one, ";") { // old readers split parameters here
			if name, _, _ := strings.Cut(part, "="); !first || !exact {
				similar = similar || c.similar(decoded(name))
			}
			first = false
		}
		if exact || similar {
			found(raw, value, !similar)
		}
	}
}

// decoded returns the decoded name of a parameter, or "" if it has a bad escape.
func decoded(raw string) string {
	name, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	return name
}

// similar reports whether some reader may take the name for that of the credential. Some
// readers trim white space or a plus. Some cut the name at NUL or at the bracket of a list.
// Some treat names as equal that [alike] describes.
func (c credential) similar(name string) bool {
	if alike(name, c.Name) {
		return true
	}
	if i := strings.IndexAny(name, "\x00["); i >= 0 {
		name = name[:i]
	}
	return alike(strings.TrimFunc(name, func(r rune) bool { return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r) }), c.Name)
}

// alike reports whether some reader treats two names of a parameter or a cookie as equal.
// ASP.NET ignores the case of ASCII letters. PHP reads a dot, a space and an opening
// bracket as an underscore.
func alike(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if merged(a[i]) != merged(b[i]) {
			return false
		}
	}
	return true
}

// merged returns one byte for all bytes that some reader treats as equal.
func merged(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case c == '.', c == ' ', c == '+', c == '[':
		return '_'
	}
	return c
}

func (c credential) findCookie(r *request) (string, presence) {
	header, lines := r.fields.get(headerCookie, ";")
	if lines == 0 {
		return "", absent
	}
	key, times := "", 0
	for more := true; more; {
		var one string
		one, header, more = strings.Cut(header, ";")
		name, value := cutCookie(one)
		if name == c.Name {
			key, times = value, times+1
		} else if alike(name, c.Name) || c.joinedInto(one) {
			return "", malformed
		}
	}
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
		if strings.Contains(key, `\`) {
			return "", malformed // some readers decode \101 to A
		}
	}
	return single(key, times)
}

// joinedInto reports whether the cookie occurs after a comma in another one. Then Envoy has
// joined two header fields.
func (c credential) joinedInto(cookie string) bool {
	_, rest, more := strings.Cut(cookie, ",")
	for more {
		var one string
		one, rest, more = strings.Cut(rest, ",")
		if name, _ := cutCookie(one); alike(name, c.Name) {
			return true
		}
	}
	return false
}

func cutCookie(text string) (name, value string) {
	name, value, _ = strings.Cut(text, "=")
	return strings.Trim(name, " \t"), strings.Trim(value, " \t")
}
