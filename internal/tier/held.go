package tier

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/maypok86/otter/v2"
)

// A sum identifies a key in the cache: the digest of an API key, or that of an id.
type sum [sha256.Size]byte

// A selector is the half of a sum that finds a record. The other half, the verifier, is
// compared in constant time, so that the time of a search does not show how much of a
// digest is right.
type selector [sha256.Size / 2]byte

func (s *sum) selector() selector { return selector(s[:len(selector{})]) }
func (s *sum) verifier() []byte   { return s[len(selector{}):] }

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

// held is a record in the cache. It is immutable. It is small, because there may be a
// million of them.
type held struct {
	subject  Subject // without an id: the key is unknown
	verifier [sha256.Size / 2]byte
	asked    time.Duration // when the question began
	until    time.Duration // when the record expires
	change   uint64        // the number of the last change before the question
	extra    *heldExtra    // nil for most records
}

// heldExtra has the fields that few records need.
type heldExtra struct {
	tag    string
	maxAge time.Duration
	// The source is not asked for the key until hold, unless there is a change after the
	// one with the number change: it has answered with a malformed record.
	hold   time.Duration
	change uint64
}

func (h *held) known() bool { return h.subject.ID != "" }

func (h *held) answer() Answer {
	if !h.known() {
		return Answer{}
	}
	return Answer{Subject: &h.subject}
}

// ahead returns the time from which a request refreshes the record before it expires.
func (h *held) ahead() time.Duration { return h.until - (h.until-h.asked)/5 }

// record returns what the source returned, so that it can confirm it, or nil if it
// cannot. h may be nil.
func (h *held) record() *Record {
	if h == nil || h.extra == nil || h.extra.tag == "" {
		return nil
	}
	return &Record{Subject: h.answer().Subject, MaxAge: h.extra.maxAge, Tag: h.extra.tag}
}

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
	part := time.Duration(binary.BigEndian.Uint16(s.verifier())) // of 1<<16
	lifetime := ttl - ttl/10 + (ttl/5>>16)*part
	if maxAge > 0 {
		return min(lifetime, maxAge)
	}
	return lifetime
}

// get returns the record of a key, or nil.
func (c *Cache) get(s *sum) *held {
	for _, records := range [...]*otter.Cache[selector, *held]{c.known, c.unknown} {
		if h, ok := records.GetIfPresent(s.selector()); ok && h.of(s) {
			return h
		}
	}
	return nil
}

// peek is get, but does not count as an access.
func (c *Cache) peek(s *sum) *held {
	for _, records := range [...]*otter.Cache[selector, *held]{c.known, c.unknown} {
		if e, ok := records.GetEntryQuietly(s.selector()); ok && e.Value.of(s) {
			return e.Value
		}
	}
	return nil
}

// of reports whether h is the record of a key.
func (h *held) of(s *sum) bool { return subtle.ConstantTimeCompare(h.verifier[:], s.verifier()) == 1 }

// put replaces the record of a key. mu is held.
func (c *Cache) put(s *sum, h *held) {
	to, from := c.known, c.unknown
	if !h.known() {
		to, from = from, to
	}
	from.Invalidate(s.selector())
	to.Set(s.selector(), h)
}
