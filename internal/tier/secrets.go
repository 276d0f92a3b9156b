package tier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
	"sync"
)

// DigestLen is the length of a digest as text.
const DigestLen = 2 * sha256.Size

// Secrets digests what must not be kept. It is safe for concurrent use; the
// zero value is not usable, [NewSecrets] makes one.
type Secrets struct {
	keys   map[string]bool // in lower case
	hashes sync.Pool
}

// NewSecrets returns Secrets for descriptor entries with the given keys, in upper
// or lower case. secret keys the digest; empty means plain SHA-256.
func NewSecrets(keys []string, secret []byte) *Secrets {
	s := &Secrets{keys: make(map[string]bool, len(keys))}
	for _, k := range keys {
		s.keys[string(appendLower(nil, k))] = true
	}
	s.hashes.New = func() any {
		if len(secret) == 0 {
			return sha256.New()
		}
		return hmac.New(sha256.New, secret)
	}
	return s
}

// Is reports whether entries with this key hold secrets. Case does not count: the
// keys are often names of HTTP headers. That is, of ASCII letters.
func (s *Secrets) Is(key string) bool {
	for i := range len(key) {
		if isUpper(key[i]) {
			var lower [64]byte // so that a usual key needs no memory
			return s.keys[string(appendLower(lower[:0], key))]
		}
	}
	return s.keys[key]
}

// Hides reports whether the values of a key are not to be shown: it holds secrets,
// or looks as if it did although nobody has said so.
func (s *Secrets) Hides(key string) bool { return s.Is(key) || LooksSecret(key) }

// LooksSecret guesses from its key whether an entry holds API keys.
func LooksSecret(key string) bool {
	key = separators.Replace(strings.ToLower(key))
	for _, word := range []string{"apikey", "authorization", "secret", "password", "accesstoken", "bearer"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// separators are what words of a key are joined with.
var separators = strings.NewReplacer("-", "", "_", "")

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func appendLower(b []byte, text string) []byte {
	for i := range len(text) {
		c := text[i]
		if isUpper(c) {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// Digest returns the digest of an API key as 64 lower-case hex digits.
func (s *Secrets) Digest(apiKey string) string {
	h := s.hashes.Get().(hash.Hash)
	defer s.hashes.Put(h)
	h.Reset()
	h.Write([]byte(apiKey))
	var sum [sha256.Size]byte
	var text [DigestLen]byte
	hex.Encode(text[:], h.Sum(sum[:0]))
	return string(text[:])
}

// Value returns what may be kept of an entry: its digest if the key holds
// secrets, else the value itself.
func (s *Secrets) Value(key, value string) string {
	if s.Is(key) {
		return s.Digest(value)
	}
	return value
}
