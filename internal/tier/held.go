package tier

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// A sum is what a key is held by: the digest of an API key, or that of an id.
type sum [sha256.Size]byte

// A selector is the half of a sum that a record is found by. The other half, the
// verifier, is compared in constant time, so that how long a search takes tells
// nobody how much of a digest was right.
type selector [sha256.Size / 2]byte

func (s *sum) selector() selector { return selector(s[:len(selector{})]) }
func (s *sum) verifier() []byte   { return s[len(selector{}):] }

// idSalt keeps the sums of ids apart from the digests of API keys: nobody outside of
// this process can make up a key whose digest is the sum of an id.
var idSalt = func() (salt [sha256.Size]byte) {
	_, _ = rand.Read(salt[:]) // which never fails
	return salt
}()

// sumOf reports whether a key can be one.
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

// held is a record in the cache. It is immutable, and there may be a million of them.
type held struct {
	subject  Subject // without an id: nobody has the key
	verifier [sha256.Size / 2]byte
	asked    time.Duration // when the source was asked
	until    time.Duration // when it is asked again
	change   uint64        // the last change of which the source was asked after
	says     *says         // nil: nothing
}

// says is what few sources say of a record, beside the subject.
type says struct {
	tag    string
	maxAge time.Duration
	// Until hold the key is not asked for: the source said something that is no record,
	// and since then has told of no change.
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

// ahead is when an access has the record asked for again, although it counts.
func (h *held) ahead() time.Duration { return h.until - (h.until-h.asked)/5 }

// record is what the source returned, for asking whether it still holds.
func (h *held) record() *Record {
	if h == nil || h.says == nil || h.says.tag == "" {
		return nil // nothing to ask it by
	}
	return &Record{Subject: h.answer().Subject, MaxAge: h.says.maxAge, Tag: h.says.tag}
}

// lifetime is how long a record counts: the ttl, or less if the source says so, and
// up to a tenth more or less by its key, so that what was loaded at once is not asked
// for again at once.
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
	if h, ok := c.known.GetIfPresent(s.selector()); ok && h.of(s) {
		return h
	}
	if h, ok := c.unknown.GetIfPresent(s.selector()); ok && h.of(s) {
		return h
	}
	return nil
}

// peek is get, but no access.
func (c *Cache) peek(s *sum) *held {
	if e, ok := c.known.GetEntryQuietly(s.selector()); ok && e.Value.of(s) {
		return e.Value
	}
	if e, ok := c.unknown.GetEntryQuietly(s.selector()); ok && e.Value.of(s) {
		return e.Value
	}
	return nil
}

func (h *held) of(s *sum) bool { return subtle.ConstantTimeCompare(h.verifier[:], s.verifier()) == 1 }

// put holds a record instead of what was. mu is held.
func (c *Cache) put(s *sum, h *held) {
	to, from := c.known, c.unknown
	if !h.known() {
		to, from = from, to
	}
	from.Invalidate(s.selector())
	to.Set(s.selector(), h)
}
