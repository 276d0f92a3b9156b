// Package apikey reads API keys as clients send them: the schemes of Authorization (Bearer, Basic),
// the pairs of Basic, and which texts can be a key ([ValidKey]). [LooksSecret] guesses from the
// name of an entry or a field whether it holds a secret.
package apikey

import (
	"encoding/base64"
	"strings"

	"github.com/slidegate/slidegate/internal/text/httpfield"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// The schemes of Authorization whose credential is an API key or contains one. Case does
// not matter.
const (
	SchemeBearer = "Bearer" // RFC 6750
	SchemeBasic  = "Basic"  // RFC 7617
	SchemeAPIKey = "ApiKey"
)

// MaxKey is the maximum length of an API key in bytes, and maxPair that of a user and a
// password together.
const (
	MaxKey  = 4 << 10
	maxPair = 2 * MaxKey
)

// malformedBasic is the key of each value of the scheme Basic without an API key. All of
// them share one log. Otherwise a client could get a quota for each spelling of a pair
// that its server still decodes.
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

// CutScheme cuts the value of an Authorization field into its scheme and credential, and
// trims both. A single word is a scheme with an empty credential.
func CutScheme(value string) (scheme, credential string) {
	value = descriptors.Trim(value)
	if i := indexAny(value, " \t"); i >= 0 {
		return value[:i], descriptors.Trim(value[i:])
	}
	return value, ""
}

// BasicKey returns the API key in the credential of the scheme Basic: the password,
// or the user if the password is empty. It reports false for a malformed credential.
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

// Key returns the API key in the value of an Authorization field or of any other field.
// The value can also be a key. Two spellings of one credential have the same key:
//
//   - White space (spaces and tabs) around the value is ignored.
//   - After Bearer and ApiKey the key is the next word. A comma ends the word too.
//   - After Basic the key is what [BasicKey] returns, if basicHasKey. Otherwise it is "basic" and the pair, encoded again. All malformed values
//     have the same key.
//   - After another scheme, which is a token of RFC 9110, the key is the scheme in lower
//     case, a space, and the rest.
//   - Any other value is the key.
//
// The key of a key is the same key. Key allocates only for Basic and for other schemes.
func Key(value string, basicHasKey bool) string {
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
		return basicPair(rest, basicHasKey)
	case !httpfield.ValidName(scheme): // a scheme is a token too
		return descriptors.Trim(value)
	}
	return strings.ToLower(scheme) + " " + rest
}

func basicPair(credential string, basicHasKey bool) string {
	if basicHasKey {
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

// indexAny is strings.IndexAny for few bytes. It searches for one byte after the other.
func indexAny(text, bytes string) int {
	first := -1
	for i := range len(bytes) {
		if at := strings.IndexByte(text, bytes[i]); at >= 0 {
			text, first = text[:at], at
		}
	}
	return first
}

// LooksSecret guesses from its key whether an entry contains an API key or another
// secret. It ignores "tokens", which are counts of language models.
func LooksSecret(key string) bool {
	key = separators.Replace(strings.ToLower(key))
	for _, word := range secretWords {
		if strings.Contains(key, word) {
			return true
		}
	}
	return strings.Contains(strings.ReplaceAll(key, "tokens", ""), "token")
}

var secretWords = []string{
	"apikey", "authorization", "authentication", "secret", "password", "accesstoken", "bearer",
	"credential", "session", "cookie", "signature",
}

// separators removes the characters between the words of a key.
var separators = strings.NewReplacer("-", "", "_", "")
