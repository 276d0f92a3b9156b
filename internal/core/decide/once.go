package decide

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// countAttempts moves the entries with idempotency keys behind the other entries of a descriptor,
// whose order stays, and returns how many there are.
func countAttempts(dom *rules.Domain, entries descriptors.Descriptor) int {
	if dom.Once == nil {
		return 0
	}
	n := 0
	for i := range entries {
		if entries[i].Key != dom.Once.Once.Entry {
			entries[n], entries[i] = entries[i], entries[n]
			n++
		}
	}
	return len(entries) - n
}

// Limited returns the entries of a descriptor without idempotency keys.
func (m *Match) Limited(entries descriptors.Descriptor) descriptors.Descriptor {
	return entries[:len(entries)-m.attempts]
}

// attempt returns the idempotency key in a descriptor, or an empty text.
func (m *Match) attempt(entries descriptors.Descriptor) string {
	for _, e := range entries[len(entries)-m.attempts:] {
		if e.Value != "" {
			return e.Value
		}
	}
	return ""
}

// once makes a check one of an attempt, if its descriptor has an idempotency key.
func (c *Call) once(s *LimitStatus, check *window.Check) {
	o := &s.Rule.Once
	attempt := c.verdict.Matches[s.Descriptor].attempt(c.req.Descriptors[s.Descriptor].Entries)
	switch {
	case attempt == "":
	case s.Mode == window.Refund:
		// The retry is free instead.
		s.Cost, check.Cost = 0, 0
	case s.Mode == window.Always:
		// The end of a stream: what it reports has been spent.
	default:
		// The name of a log has no zero byte, so two attempts never share this text.
		c.text = append(append(append(reuse.Slice(c.text), check.Key...), 0), attempt...)
		digest := sha256.Sum256(c.text)
		check.Once = window.Once{ID: max(1, binary.BigEndian.Uint64(digest[:])), For: o.For, Repeats: o.Retries}
	}
}
