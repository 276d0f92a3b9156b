package ratelimit

import (
	"math"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/window"
)

// The field numbers of an answer, by message. The answer is written without the protobuf
// library (see package wire). The tests compare it with what the library writes.
const (
	answerCode     protowire.Number = 1
	answerStatuses protowire.Number = 2
	answerHeaders  protowire.Number = 3
	answerBody     protowire.Number = 5
	answerMetadata protowire.Number = 6

	statusCode      protowire.Number = 1
	statusLimit     protowire.Number = 2
	statusRemaining protowire.Number = 3
	statusReset     protowire.Number = 4

	limitHits       protowire.Number = 1
	limitUnit       protowire.Number = 2
	limitName       protowire.Number = 3
	limitMultiplier protowire.Number = 4

	headerName  protowire.Number = 1
	headerValue protowire.Number = 2

	durationSeconds protowire.Number = 1
	wrapperNumber   protowire.Number = 1
)

// appendAnswer appends the encoded response for v to b. body is that of a denial. echo are the encoded
// entries of metadata that repeat the request.
func appendAnswer(b []byte, v *decide.Verdict, fields []answer.Header, body, echo []byte) []byte {
	b = wire.AppendNumber(b, answerCode, uint64(code(v.Allowed)))
	for i, at := range v.Strictest {
		b = wire.AppendMessage(b, answerStatuses, func(b []byte) []byte {
			if at < 0 {
				return appendUnlimited(b, v.Matches[i].Unlimited)
			}
			s := &v.Limits[at]
			return appendLimit(b, s, limitForm{!s.Over(), s.Rule.Name, s.Decision.Remaining, s.Wait()})
		})
	}
	return appendMetadata(appendReply(b, fields, body), v, echo)
}

// appendReply appends header fields, and the body of a denial. Without a body no field may be a
// content type: Envoy would add it to that of the upstream.
func appendReply(b []byte, fields []answer.Header, body []byte) []byte {
	for _, f := range fields {
		b = appendHeader(b, f)
	}
	if len(body) == 0 {
		return b
	}
	return wire.AppendMessage(b, answerBody, func(b []byte) []byte { return append(b, body...) })
}

func appendProbed(b []byte, c *call) []byte {
	b = wire.AppendNumber(b, answerCode, uint64(code(false)))
	for range c.request.Descriptors {
		b = wire.AppendMessage(b, answerStatuses, func(b []byte) []byte { return wire.AppendNumber(b, statusCode, uint64(code(false))) })
	}
	fields, body := answer.Probed(c.probe, time.Now())
	return appendReply(b, fields, body)
}

func code(allowed bool) rlsv3.RateLimitResponse_Code {
	if allowed {
		return rlsv3.RateLimitResponse_OK
	}
	return rlsv3.RateLimitResponse_OVER_LIMIT
}

// appendUnlimited appends the fields of a DescriptorStatus without a limit. If a rule calls
// the descriptor unlimited, the largest number remains, as with envoyproxy/ratelimit.
func appendUnlimited(b []byte, byRule bool) []byte {
	b = wire.AppendNumber(b, statusCode, uint64(rlsv3.RateLimitResponse_OK))
	if byRule {
		b = wire.AppendNumber(b, statusRemaining, math.MaxUint32)
	}
	return b
}

// limitForm has the values in which the native answer and that of envoyproxy/ratelimit differ. ok describes the
// limit alone: a quota rule without room is OVER_LIMIT, although another one may have let the
// request pass.
type limitForm struct {
	ok        bool
	name      string
	remaining uint64
	reset     time.Duration
}

// appendLimit appends the fields of a DescriptorStatus with a limit. A limit of requests in
// flight is left out while it has room: Envoy would describe it in its headers as if what
// remains were for some time.
func appendLimit(b []byte, s *decide.LimitStatus, st limitForm) []byte {
	b = wire.AppendNumber(b, statusCode, uint64(code(st.ok)))
	if st.ok && s.Limit.Policy == window.InFlight {
		return b
	}
	b = wire.AppendMessage(b, statusLimit, func(b []byte) []byte {
		unit, multiplier := unitOfLimit(s)
		b = wire.AppendNumber(b, limitHits, uint64(saturate(s.Limit.Hits)))
		b = wire.AppendNumber(b, limitUnit, uint64(unit))
		b = wire.AppendText(b, limitName, st.name)
		if multiplier > 1 {
			b = wire.AppendMessage(b, limitMultiplier, func(b []byte) []byte {
				return wire.AppendNumber(b, wrapperNumber, uint64(multiplier))
			})
		}
		return b
	})
	b = wire.AppendNumber(b, statusRemaining, uint64(saturate(st.remaining)))
	return wire.AppendMessage(b, statusReset, func(b []byte) []byte {
		return wire.AppendNumber(b, durationSeconds, uint64(answer.Seconds(st.reset)))
	})
}

func appendHeader(b []byte, h answer.Header) []byte {
	return wire.AppendMessage(b, answerHeaders, func(b []byte) []byte {
		b = wire.AppendText(b, headerName, h.Name)
		return wire.AppendText(b, headerValue, h.Value)
	})
}

// windowUnits are the units of an answer, longest first.
var windowUnits = []struct {
	length time.Duration
	unit   rlsv3.RateLimitResponse_RateLimit_Unit
}{
	{365 * 24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_YEAR},
	{30 * 24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_MONTH},
	{7 * 24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_WEEK},
	{24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_DAY},
	{time.Hour, rlsv3.RateLimitResponse_RateLimit_HOUR},
	{time.Minute, rlsv3.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, rlsv3.RateLimitResponse_RateLimit_SECOND},
}

// unitOfLimit returns the span of a limit as Envoy knows it. The unit is UNKNOWN if the span is
// rounded up, and for requests in flight, which are for no time.
func unitOfLimit(s *decide.LimitStatus) (rlsv3.RateLimitResponse_RateLimit_Unit, uint32) {
	span, exact := s.Span()
	if !exact || s.Limit.Policy == window.InFlight {
		return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1
	}
	return UnitOf(span)
}

// UnitLength returns the length of a unit, or 0 for an unknown one.
func UnitLength(unit rlsv3.RateLimitResponse_RateLimit_Unit) time.Duration {
	for _, u := range windowUnits {
		if u.unit == unit {
			return u.length
		}
	}
	return 0
}

// UnitOf returns a window as a multiple of the longest unit that divides it. A window that
// is not a whole number of seconds has the unit UNKNOWN: Envoy then leaves the window out
// of its own headers.
func UnitOf(w time.Duration) (rlsv3.RateLimitResponse_RateLimit_Unit, uint32) {
	for _, u := range windowUnits {
		if w%u.length == 0 {
			return u.unit, uint32(w / u.length)
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1
}

func saturate(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }
