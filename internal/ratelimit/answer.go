package ratelimit

import (
	"math"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/headers"
	"github.com/slidegate/slidegate/internal/policy"
)

// An answer is some thirty objects as a message of the protobuf library, all of
// them garbage once they are encoded, and encoding its map goes through
// reflection. So it is written in encoded form at once, fields by ascending
// number: byte for byte what the library's deterministic encoding gives, which
// the tests hold it to.

// encoded is an encoded RateLimitResponse. [Codec] passes it on as it is.
type encoded []byte

// The fields that are written, by message.
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

	structFields protowire.Number = 1
	mapKey       protowire.Number = 1
	mapValue     protowire.Number = 2
	valueNull    protowire.Number = 1
	valueNumber  protowire.Number = 2
	valueText    protowire.Number = 3
	valueBool    protowire.Number = 4
	valueStruct  protowire.Number = 5
	valueList    protowire.Number = 6
	listValues   protowire.Number = 1
)

// appendAnswer appends the response for v, encoded, to b. What asked is put into
// its metadata.
func appendAnswer(b []byte, v *policy.Verdict, fields []headers.Header, asked echo) []byte {
	b = appendNumber(b, answerCode, uint64(code(v.Allowed)))
	for i, at := range v.Strictest {
		b = appendMessage(b, answerStatuses, func(b []byte) []byte {
			if at < 0 {
				return appendUnlimited(b, v.Matches[i].Unlimited)
			}
			return appendStatus(b, &v.Limits[at])
		})
	}
	for _, f := range fields {
		b = appendHeader(b, f)
	}
	if !v.Allowed {
		// Never on an allowed answer: Envoy would join it with the upstream's.
		b = appendHeader(b, headers.Header{Name: "content-type", Value: headers.DenialType(v)})
		b = appendMessage(b, answerBody, func(b []byte) []byte { return headers.AppendDenial(b, v) })
	}
	return appendMetadata(b, v, asked)
}

func code(allowed bool) rlsv3.RateLimitResponse_Code {
	if allowed {
		return rlsv3.RateLimitResponse_OK
	}
	return rlsv3.RateLimitResponse_OVER_LIMIT
}

// appendUnlimited appends the fields of a DescriptorStatus without a limit. Of one
// that a rule calls unlimited all there is remains, as envoyproxy/ratelimit says.
func appendUnlimited(b []byte, byRule bool) []byte {
	b = appendNumber(b, statusCode, uint64(rlsv3.RateLimitResponse_OK))
	if byRule {
		b = appendNumber(b, statusRemaining, math.MaxUint32)
	}
	return b
}

// appendStatus appends the fields of a DescriptorStatus. Its code is that of the
// limit alone: a quota rule without room is over it although another may have let
// the request pass, and one that is only observed never is.
func appendStatus(b []byte, s *policy.LimitStatus) []byte {
	b = appendNumber(b, statusCode, uint64(code(!s.Over())))
	b = appendMessage(b, statusLimit, func(b []byte) []byte {
		unit, multiplier := unitOf(s.Limit.Window)
		b = appendNumber(b, limitHits, uint64(saturate(s.Limit.Hits)))
		b = appendNumber(b, limitUnit, uint64(unit))
		b = appendText(b, limitName, s.Rule.Name)
		if multiplier > 1 {
			b = appendMessage(b, limitMultiplier, func(b []byte) []byte {
				return appendNumber(b, wrapperNumber, uint64(multiplier))
			})
		}
		return b
	})
	b = appendNumber(b, statusRemaining, uint64(saturate(s.Decision.Remaining)))
	return appendMessage(b, statusReset, func(b []byte) []byte {
		return appendNumber(b, durationSeconds, uint64(headers.Seconds(s.Reset())))
	})
}

func appendHeader(b []byte, h headers.Header) []byte {
	return appendMessage(b, answerHeaders, func(b []byte) []byte {
		b = appendText(b, headerName, h.Name)
		return appendText(b, headerValue, h.Value)
	})
}

// appendNumber appends a number, unless it is zero: that is what its absence
// means.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// appendText appends a text, unless it is empty.
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return appendAnyText(b, field, text)
}

// appendAnyText appends a text, empty ones too. A reader refuses the whole message
// for one text that is not UTF-8, and Envoy lets a request pass whose answer it
// cannot read. Texts come from the configuration, which is UTF-8; if one ever is
// not, it is mended here.
func appendAnyText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), strings.ToValidUTF8(text, "\uFFFD"))
}

// appendMessage appends a field that holds what write appends: a message, or
// plain bytes.
func appendMessage(b []byte, field protowire.Number, write func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = append(b, 0) // the length takes one byte if it is below 128, which most are
	start := len(b)
	b = write(b)
	length := len(b) - start
	if length < 1<<7 {
		b[start-1] = byte(length)
		return b
	}
	// The rest moves on to make room for a longer one.
	more := protowire.SizeVarint(uint64(length)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[start+more:], b[start:start+length])
	protowire.AppendVarint(b[:start-1], uint64(length))
	return b
}

// windowUnits are the units of an answer, the longest first.
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

// unitOf writes a window as a multiple of the longest unit that divides it. A
// window that is not a whole number of seconds has no unit: Envoy then leaves
// the window out of its own headers, which is better than a wrong one.
func unitOf(w time.Duration) (rlsv3.RateLimitResponse_RateLimit_Unit, uint32) {
	for _, u := range windowUnits {
		if w%u.length == 0 {
			return u.unit, uint32(w / u.length)
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1
}

func saturate(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }
