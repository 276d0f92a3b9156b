package window

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// decodeValue is [Decode] for the policies other than [Sliding].
func decodeValue(b []byte) (Contents, error) {
	s := State{policy: Policy(b[0] - kindPolicy)}
	// The window is not in the bytes, and a longer one allows more.
	s.view.log, s.view.win = b, 1<<48
	if s.policy == InFlight {
		return decodeHolds(b)
	}
	switch want := valueBytes(s.policy); {
	case b[0] == kindReceipt:
		return Contents{}, notLog("it is a receipt of charge_once")
	case b[0]&^1 == kindStream:
		return Contents{}, notLog("it says what a stream in flight holds")
	case want == 0:
		return Contents{}, notLog("kind 0x%02x is unknown to this version", b[0])
	case len(b) != want:
		return Contents{}, notLog("%d bytes, want %d for %v", len(b), want, s.policy)
	case !s.readHeader():
		return Contents{}, notLog("the clock is above %d", uint64(maxClock))
	case !s.readValue():
		return Contents{}, notLog("the numbers of %v cannot be", s.policy)
	}
	c := Contents{Policy: s.policy, Clock: micros(s.view.clock), Bytes: len(b)}
	switch s.policy {
	case TokenBucket:
		c.Tokens, c.Fraction = s.tokens, s.fraction
		c.Full = c.Clock + time.Duration(binary.BigEndian.Uint32(b[atLife:]))*time.Second
	case SlidingCounter:
		c.Current, c.Previous = uint32(s.current), uint32(s.previous)
	default:
		c.Current, c.End = uint32(s.view.used), micros(s.end)
	}
	return c, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// writeValue describes a log for an operator.
func (c *Contents) writeValue(b *strings.Builder) {
	fmt.Fprintf(b, "%v, %d bytes\n", c.Policy, c.Bytes)
	fmt.Fprintf(b, "clock    %v\n", date(c.Clock))
	switch c.Policy {
	case InFlight:
		c.writeHolds(b)
	case TokenBucket:
		fmt.Fprintf(b, "tokens   %d, and %d parts of one more\n", c.Tokens, c.Fraction)
		fmt.Fprintf(b, "full     %v\n", date(c.Full))
	case SlidingCounter:
		fmt.Fprintf(b, "current  %d\n", c.Current)
		fmt.Fprintf(b, "previous %d\n", c.Previous)
	default:
		fmt.Fprintf(b, "used     %d\n", c.Current)
		fmt.Fprintf(b, "end      %v\n", date(c.End))
	}
}
