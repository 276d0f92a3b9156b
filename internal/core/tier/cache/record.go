package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// A cacheRecord is what the cache knows of one key. It is immutable. It is small, because there may be a
// million of them.
type cacheRecord struct {
	subject tier.Subject  // without an id: the key is unknown
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

func (h *cacheRecord) answer() tier.Answer {
	if !h.known() {
		return tier.Answer{}
	}
	return tier.Answer{Subject: &h.subject}
}

// ahead returns the time from which a request refreshes the record before it expires.
func (h *cacheRecord) ahead() time.Duration { return h.until - (h.until-h.asked)/5 }

// lifetime returns how long a record is valid: the ttl, or maxAge if that is shorter, and
// up to a tenth more or less by its key. So records that were loaded together do not
// expire together.
func lifetime(s *tier.Sum, ttl, maxAge time.Duration) time.Duration {
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
func (c *Cache) get(s *tier.Sum) *cacheRecord {
	for _, records := range [...]*otter.Cache[tier.Sum, *cacheRecord]{c.records.known, c.records.unknown} {
		if h, ok := records.GetIfPresent(*s); ok {
			return h
		}
	}
	return nil
}

// peek is get, but does not count as an access.
func (c *Cache) peek(s *tier.Sum) *cacheRecord {
	for _, records := range [...]*otter.Cache[tier.Sum, *cacheRecord]{c.records.known, c.records.unknown} {
		if e, ok := records.GetEntryQuietly(*s); ok {
			return e.Value
		}
	}
	return nil
}

// put replaces the record of a key. The caller has locked mu.
func (c *Cache) put(s *tier.Sum, h *cacheRecord) {
	to, from := c.records.known, c.records.unknown
	if !h.known() {
		to, from = from, to
	}
	from.Invalidate(*s)
	to.Set(*s, h)
}
