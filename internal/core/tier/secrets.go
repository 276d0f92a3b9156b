package tier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier/apikey"
)

// DigestLen is the length of a digest as text.
const DigestLen = 2 * sha256.Size

// Secrets knows which descriptor entries contain API keys, and digests the keys. It is
// safe for concurrent use. The zero value is not usable; make one with [NewSecrets].
type Secrets struct {
	keys     map[string]bool // in lower case
	lengths  uint64          // a bit for each length of keys, which most entries do not have
	current  digester
	previous *digester // nil: none
	found    atomic.Uint64
	// basicHasKey: the credential of the scheme Basic contains an API key.
	basicHasKey bool
}

// digester makes digests under one secret.
type digester struct{ hashes sync.Pool }

// hasher is the memory of one digest. The next one reuses it.
type hasher struct {
	hash hash.Hash
	key  []byte
	sum  [sha256.Size]byte
}

// maxKeptKey bounds the memory that a hasher keeps for the next key, in bytes.
const maxKeptKey = 1 << 10

// NewSecrets returns Secrets for descriptor entries with the given keys, in upper
// or lower case. secret keys the digest; empty means plain SHA-256.
func NewSecrets(keys []string, secret []byte) *Secrets {
	s := &Secrets{keys: make(map[string]bool, len(keys))}
	for _, k := range keys {
		s.keys[string(appendLower(nil, k))] = true
		s.lengths |= lengthBit(k)
	}
	s.current.use(secret)
	return s
}

// Previous sets the secret of digests that are still to be replaced. A key that is
// unknown under the current secret is looked up under this one too. Empty means plain
// SHA-256. It must be called before s is used.
func (s *Secrets) Previous(secret []byte) {
	s.previous = new(digester)
	s.previous.use(secret)
}

func (d *digester) use(secret []byte) {
	d.hashes.New = func() any {
		if len(secret) == 0 {
			return &hasher{hash: sha256.New()}
		}
		return &hasher{hash: hmac.New(sha256.New, secret)}
	}
}

func (d *digester) digest(apiKey string) (text [DigestLen]byte) {
	h := d.hashes.Get().(*hasher)
	h.hash.Reset()
	for rest := apiKey; rest != ""; {
		// The key goes in parts, because it may be a megabyte long.
		part := rest[:min(len(rest), maxKeptKey)]
		rest = rest[len(part):]
		h.key = append(h.key[:0], part...)
		h.hash.Write(h.key)
	}
	hex.Encode(text[:], h.hash.Sum(h.sum[:0]))
	h.forget()
	d.hashes.Put(h)
	return text
}

// forget removes the key from memory that the next digest reuses.
func (h *hasher) forget() {
	clear(h.key[:cap(h.key)]) // an earlier part may be longer than the last
	if h.key = h.key[:0]; cap(h.key) > maxKeptKey {
		h.key = nil
	}
	h.sum = [sha256.Size]byte{}
	// A hash keeps an incomplete block of the key. These bytes overwrite it.
	h.hash.Reset()
	h.hash.Write(blank[:])
}

// blank overwrites an incomplete block of a hash.
var blank [sha256.BlockSize - 1]byte

// Is reports whether entries with this key contain API keys. The case of ASCII letters
// does not matter, because keys are often names of HTTP headers.
func (s *Secrets) Is(key string) bool {
	if s.lengths&lengthBit(key) == 0 {
		return false
	}
	for i := range len(key) {
		if isUpper(key[i]) {
			var lower [64]byte // on the stack, so that most keys do not allocate
			return s.keys[string(appendLower(lower[:0], key))]
		}
	}
	return s.keys[key]
}

func lengthBit(key string) uint64 { return 1 << (len(key) % 64) }

// Hides reports whether the values of a key must not be shown: it contains API keys, or
// its name looks like that of a secret.
func (s *Secrets) Hides(key string) bool { return s.Is(key) || apikey.LooksSecret(key) }

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

// BasicHasKey makes [Secrets.Key] read the credential of the scheme Basic with
// [apikey.BasicKey]. Without it the user and the password are the key together. It must be
// called before s is used.
func (s *Secrets) BasicHasKey() { s.basicHasKey = true }

// Key returns the API key in the value of a field: see [apikey.Key].
func (s *Secrets) Key(value string) string { return apikey.Key(value, s.basicHasKey) }

// Digest returns the digest of the API key that [Secrets.Key] finds in a value: 64
// hexadecimal digits in lower case.
func (s *Secrets) Digest(value string) string {
	text := s.current.digest(s.Key(value))
	return string(text[:])
}

// Fingerprint returns the text that replaces the API key in a value: its digest. If there
// is a previous secret, the digest under that follows.
func (s *Secrets) Fingerprint(value string) string {
	if s.previous == nil {
		return s.Digest(value)
	}
	key := s.Key(value)
	current, previous := s.current.digest(key), s.previous.digest(key)
	return string(append(current[:], previous[:]...))
}

// Value returns the value of an entry, or its fingerprint if the key contains API keys.
func (s *Secrets) Value(key, value string) string {
	if s.Is(key) {
		return s.Fingerprint(value)
	}
	return value
}

// FingerprintDigest returns the digest under the current secret in a fingerprint.
func FingerprintDigest(fingerprint string) string {
	return fingerprint[:min(len(fingerprint), DigestLen)]
}

// shownDigits is how many digits of a digest a name or a log line has. A log is copied often,
// and without a secret a whole digest lets its reader test guesses of the key.
const shownDigits = 12

// ShortDigest returns the first 12 digits of a digest, or a shorter text as it is. Names, log lines
// and metadata have these in place of a digest.
func ShortDigest(digest string) string { return digest[:min(len(digest), shownDigits)] }

// Resolve asks r for the subject of the API key with this fingerprint. It asks by the
// current digest first. If no subject has that, it asks by the digest under the
// previous secret. plain is the key itself for a source that needs it, else empty.
// wait and ok are those of [Resolver].Resolve; both questions share the wait.
func (s *Secrets) Resolve(ctx context.Context, r Resolver, fingerprint, plain string, wait time.Duration) (a Answer, ok bool) {
	if s.previous == nil || len(fingerprint) != 2*DigestLen {
		return r.Resolve(ctx, Key{Digest: FingerprintDigest(fingerprint), Plain: plain}, wait)
	}
	start := time.Now()
	a, ok = r.Resolve(ctx, Key{Digest: fingerprint[:DigestLen], Plain: plain}, wait)
	if !ok || a.Subject != nil {
		return a, ok
	}
	if wait > 0 {
		wait = max(0, wait-time.Since(start))
	}
	old, ok := r.Resolve(ctx, Key{Digest: fingerprint[DigestLen:], Plain: plain}, wait)
	switch {
	case !ok:
		return Answer{}, false
	case old.Subject != nil:
		s.found.Add(1)
		return old, true
	}
	a.Unavailable = a.Unavailable || old.Unavailable
	return a, true
}

// FoundByPrevious returns how many API keys were found only under the previous secret.
// While it grows, that secret is still needed.
func (s *Secrets) FoundByPrevious() uint64 { return s.found.Load() }
