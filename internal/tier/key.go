package tier

import (
	"encoding/base64"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/pkg/descriptors"
)

// The schemes of Authorization whose credential is an API key, or holds one. Case
// does not count.
const (
	SchemeBearer = "Bearer" // RFC 6750
	SchemeBasic  = "Basic"  // RFC 7617
	SchemeAPIKey = "ApiKey"
)

// MaxKey is the length of an API key in bytes at most, and maxPair that of a user and
// a password together.
const (
	MaxKey  = 4 << 10
	maxPair = 2 * MaxKey
)

// malformedBasic stands for every value of the scheme Basic that holds no key. All of
// them are one caller, so that a decoder which accepts many spellings of a pair brings
// its clients one more quota, and not one for each spelling.
const malformedBasic = "basic ="

// ValidKey reports whether text can be an API key: 1 to [MaxKey] bytes of visible ASCII.
func ValidKey(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && len(text) <= MaxKey
}

// CutScheme cuts the value of an Authorization field into its scheme and the
// credential, without the white space around either. The scheme of a single word is
// that word, and its credential is empty.
func CutScheme(value string) (scheme, credential string) {
	value = descriptors.Trim(value)
	if i := indexAny(value, " \t"); i >= 0 {
		return value[:i], descriptors.Trim(value[i:])
	}
	return value, ""
}

// BasicKey returns the API key in the credential of the scheme Basic: the password,
// or the user if the password is empty. It reports false if there is none.
func BasicKey(credential string) (key string, ok bool) {
	pair, ok := decodePair(credential)
	if !ok {
		return "", false
	}
	user, password, _ := strings.Cut(pair, ":")
	if password == "" {
		return user, true
	}
	return password, true
}

// decodePair decodes a user and a password with the colon between them.
func decodePair(credential string) (pair string, ok bool) {
	b, err := base64.StdEncoding.DecodeString(credential)
	pair = string(b)
	return pair, err == nil && len(pair) <= maxPair && strings.Contains(pair, ":")
}

// BasicHoldsKey says that the credential of the scheme Basic holds an API key, as
// [BasicKey] reads it. Otherwise the user and the password count together: the
// password alone would show who has the same. It must be called before s is used.
func (s *Secrets) BasicHoldsKey() { s.basicHoldsKey = true }

// Key returns the API key in a value that holds one: in that of an Authorization
// field, of any other header field, or in a key by itself. Two values that differ in
// spelling alone have one key:
//
//   - White space (spaces and tabs) around the value does not count.
//   - Behind Bearer and ApiKey the key is the next word, which a comma ends too.
//   - Behind Basic it is what [BasicKey] returns, after [Secrets.BasicHoldsKey].
//     Otherwise the key is "basic" and the pair, encoded anew. All values that cannot be
//     decoded have one key.
//   - Behind another scheme, which is a token of RFC 9110, it is that scheme in lower
//     case, a space, and the rest.
//   - Any other value is the key as it is.
//
// Key changes no key that it has returned. Except for Basic and other schemes it does
// not allocate.
func (s *Secrets) Key(value string) string {
	scheme, rest := CutScheme(value)
	switch {
	case rest == "":
		return scheme
	case strings.EqualFold(scheme, SchemeBearer), strings.EqualFold(scheme, SchemeAPIKey):
		if i := indexAny(rest, " \t,"); i >= 0 {
			return rest[:i]
		}
		return rest
	case strings.EqualFold(scheme, SchemeBasic):
		return s.basicKey(rest)
	case !httpguts.ValidHeaderFieldName(scheme): // a scheme is a token too
		return descriptors.Trim(value)
	}
	lower := appendLower(make([]byte, 0, len(value)), scheme)
	return string(append(append(lower, ' '), rest...))
}

func (s *Secrets) basicKey(credential string) string {
	if s.basicHoldsKey {
		if key, ok := BasicKey(credential); ok && ValidKey(key) {
			return key
		}
		return malformedBasic
	}
	pair, ok := decodePair(credential)
	if !ok {
		return malformedBasic
	}
	return "basic " + base64.StdEncoding.EncodeToString([]byte(pair))
}

// indexAny is strings.IndexAny for few single bytes, which it looks for one by one.
func indexAny(text, bytes string) int {
	first := -1
	for i := range len(bytes) {
		if at := strings.IndexByte(text, bytes[i]); at >= 0 {
			text, first = text[:at], at
		}
	}
	return first
}
