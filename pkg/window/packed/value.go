package packed

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// decodeValue is [Decode] for the policies other than [window.Sliding].
func decodeValue(b []byte) (Contents, error) {
	s := State{policy: window.Policy(b[0] - kindPolicy)}
	// The window is not in the bytes, and a longer one allows more.
	s.view.log, s.view.win = b, 1<<48
	if s.policy == window.InFlight {
		return decodeHolds(b)
	}
	switch want, wide := valueBytes(s.policy, false), valueBytes(s.policy, true); {
	case b[0] == kindOnceRecord:
		return Contents{}, notLog("it is an idempotency record of charge_once")
	case b[0]&^1 == kindStream:
		return Contents{}, notLog("it says what a stream in flight holds")
	case want == 0:
		return Contents{}, notLog("kind 0x%02x is unknown to this version", b[0])
	case len(b) != want && len(b) != wide:
		return Contents{}, notLog("%d bytes, want %d or %d for %v", len(b), want, wide, s.policy)
	case !s.readHeader():
		return Contents{}, notLog("the clock is above %d", uint64(window.MaxClock))
	case !s.readValue():
		return Contents{}, notLog("the numbers of %v cannot be", s.policy)
	}
	c := Contents{Policy: s.policy, Clock: micros(s.view.clock), Bytes: len(b)}
	switch s.policy {
	case window.TokenBucket:
		life := time.Duration(binary.BigEndian.Uint32(b[len(b)-atLife:])) * time.Second
		c.Bucket = Bucket{Tokens: s.tokens, Fraction: s.fraction, Full: c.Clock + life}
	case window.SlidingCounter:
		c.Current, c.Previous = s.current, s.previous
	default:
		c.Current, c.End = s.view.used, micros(s.end)
	}
	return c, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// writeValue describes a log for an operator.
func (c *Contents) writeValue(b *strings.Builder) {
	fmt.Fprintf(b, "%v, %d bytes\n", c.Policy, c.Bytes)
	fmt.Fprintf(b, "clock    %v\n", date(c.Clock))
	switch c.Policy {
	case window.InFlight:
		c.writeHolds(b)
	case window.TokenBucket:
		fmt.Fprintf(b, "tokens   %d, and %d parts of one more\n", c.Bucket.Tokens, c.Bucket.Fraction)
		fmt.Fprintf(b, "full     %v\n", date(c.Bucket.Full))
	case window.SlidingCounter:
		fmt.Fprintf(b, "current  %d\n", c.Current)
		fmt.Fprintf(b, "previous %d\n", c.Previous)
	default:
		fmt.Fprintf(b, "used     %d\n", c.Current)
		fmt.Fprintf(b, "end      %v\n", date(c.End))
	}
}
