package tier

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/maypok86/otter/v2"
)

// A sum identifies a key in the cache: the digest of an API key, or that of an id.
type sum [sha256.Size]byte

// idSalt separates the sums of ids from the digests of API keys. It is a secret of the
// process, so that no client can make a key whose digest is the sum of an id.
var idSalt = func() (salt [sha256.Size]byte) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}()

// sumOf returns the sum of a key. It reports false if the key is invalid.
func sumOf(k Key) (s sum, ok bool) {
	if k.Digest == "" {
		if ValidID(k.ID) != nil {
			return s, false
		}
		var text [len(idSalt) + MaxText]byte
		return sha256.Sum256(append(append(text[:0], idSalt[:]...), k.ID...)), true
	}
	if len(k.Digest) != DigestLen {
		return s, false
	}
	var text [DigestLen]byte
	copy(text[:], k.Digest)
	_, err := hex.Decode(s[:], text[:])
	return s, err == nil
}

// A cacheRecord is what the cache knows of one key. It is immutable. It is small, because there may be a
// million of them.
type cacheRecord struct {
	subject Subject       // without an id: the key is unknown
	asked   time.Duration // when the question began
	until   time.Duration // when the record expires
	change  uint64        // the number of the last change before the question
	pause   *pause        // nil for most records
}

// A pause says until when the source is not asked for a key, because it has answered with a malformed
// record. A change with a higher number ends the pause.
type pause struct {
	until  time.Duration
	change uint64
}

func (h *cacheRecord) known() bool { return h.subject.ID != "" }

func (h *cacheRecord) answer() Answer {
	if !h.known() {
		return Answer{}
	}
	return Answer{Subject: &h.subject}
}

// ahead returns the time from which a request refreshes the record before it expires.
func (h *cacheRecord) ahead() time.Duration { return h.until - (h.until-h.asked)/5 }

// lifetime returns how long a record is valid: the ttl, or maxAge if that is shorter, and
// up to a tenth more or less by its key. So records that were loaded together do not
// expire together.
func (s *sum) lifetime(ttl, maxAge time.Duration) time.Duration {
	switch {
	case maxAge < 0:
		return 0
	case maxAge > 0:
		ttl = min(ttl, maxAge)
	}
	part := time.Duration(binary.BigEndian.Uint16(s[sha256.Size/2:])) // of 1<<16
	lifetime := ttl - ttl/10 + (ttl/5>>16)*part
	if maxAge > 0 {
		return min(lifetime, maxAge)
	}
	return lifetime
}

// get returns the record of a key, or nil.
func (c *Cache) get(s *sum) *cacheRecord {
	for _, records := range [...]*otter.Cache[sum, *cacheRecord]{c.records.known, c.records.unknown} {
		if h, ok := records.GetIfPresent(*s); ok {
			return h
		}
	}
	return nil
}

// peek is get, but does not count as an access.
func (c *Cache) peek(s *sum) *cacheRecord {
	for _, records := range [...]*otter.Cache[sum, *cacheRecord]{c.records.known, c.records.unknown} {
		if e, ok := records.GetEntryQuietly(*s); ok {
			return e.Value
		}
	}
	return nil
}

// put replaces the record of a key. The caller has locked mu.
func (c *Cache) put(s *sum, h *cacheRecord) {
	to, from := c.records.known, c.records.unknown
	if !h.known() {
		to, from = from, to
	}
	from.Invalidate(*s)
	to.Set(*s, h)
}
