package decide

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/pkg/window"
)

// once makes a check charge once if its descriptor has an idempotency key.
func (c *Call) once(s *LimitStatus, check *window.Check) {
	o := &s.Rule.Charge.Once
	attempt := c.verdict.Matches[s.Descriptor].Attempt(c.req.Descriptors[s.Descriptor].Entries)
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
