package tier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DigestLen is the length of a digest as text.
const DigestLen = 2 * sha256.Size

// Secrets digests what must not be kept. It is safe for concurrent use; the
// zero value is not usable, [NewSecrets] makes one.
type Secrets struct {
	keys     map[string]bool // in lower case
	lengths  uint64          // those of keys, as bits: most entries have another one
	current  digester
	previous *digester // nil: none
	found    atomic.Uint64
	// basicHoldsKey: the scheme Basic holds an API key.
	basicHoldsKey bool
}

// digester makes digests under one secret.
type digester struct{ hashes sync.Pool }

// hasher is what one digest needs, used again by the next.
type hasher struct {
	hash hash.Hash
	key  []byte
	sum  [sha256.Size]byte
}

// maxKeptKey bounds the memory that is kept for the next key.
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

// Previous has API keys accepted that are known under another secret alone, while
// their digests are replaced. Empty: plain SHA-256. It must be called before s is
// used.
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
		// In parts: a client may have sent a megabyte.
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

// forget leaves nothing of the key behind: it is there no longer than its request.
func (h *hasher) forget() {
	clear(h.key[:cap(h.key)]) // of several parts the last may be the shortest
	if h.key = h.key[:0]; cap(h.key) > maxKeptKey {
		h.key = nil
	}
	h.sum = [sha256.Size]byte{}
	// A hash keeps the end of what was written until there is a whole block of it.
	h.hash.Reset()
	h.hash.Write(blank[:])
}

var blank [sha256.BlockSize - 1]byte

// Is reports whether entries with this key hold secrets. Case does not count: the
// keys are often names of HTTP headers. That is, of ASCII letters.
func (s *Secrets) Is(key string) bool {
	if s.lengths&lengthBit(key) == 0 {
		return false
	}
	for i := range len(key) {
		if isUpper(key[i]) {
			var lower [64]byte // so that a usual key needs no memory
			return s.keys[string(appendLower(lower[:0], key))]
		}
	}
	return s.keys[key]
}

func lengthBit(key string) uint64 { return 1 << (len(key) % 64) }

// Hides reports whether the values of a key are not to be shown: it holds secrets,
// or looks as if it did although nobody has said so.
func (s *Secrets) Hides(key string) bool { return s.Is(key) || LooksSecret(key) }

// LooksSecret guesses from its key whether an entry holds API keys, or other secrets
// that a request may come with. Tokens in the plural are those of language models,
// and counted.
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

// Digest returns the digest of the API key in a value, which [Secrets.Key] finds, as
// 64 lower-case hex digits.
func (s *Secrets) Digest(value string) string {
	text := s.current.digest(s.Key(value))
	return string(text[:])
}

// Fingerprint returns what may be kept of the API key in a value: its digest, and
// behind it that under the previous secret where there is one.
func (s *Secrets) Fingerprint(value string) string {
	if s.previous == nil {
		return s.Digest(value)
	}
	key := s.Key(value)
	current, previous := s.current.digest(key), s.previous.digest(key)
	return string(append(current[:], previous[:]...))
}

// Value returns what may be kept of an entry: the fingerprint if the key holds
// secrets, else the value itself.
func (s *Secrets) Value(key, value string) string {
	if s.Is(key) {
		return s.Fingerprint(value)
	}
	return value
}

// FingerprintDigest returns the digest of a fingerprint, under the secret of now.
func FingerprintDigest(fingerprint string) string {
	return fingerprint[:min(len(fingerprint), DigestLen)]
}

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

// FoundByPrevious returns how many API keys were found under the previous secret
// alone: while it grows, that secret is needed.
func (s *Secrets) FoundByPrevious() uint64 { return s.found.Load() }
