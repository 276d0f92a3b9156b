package headers

import (
	"strconv"

	"github.com/slidegate/slidegate/internal/policy"
)

// quotaExceeded is the problem type that draft-ietf-httpapi-ratelimit-headers-10
// registers, with its violated-policies member.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// AppendProblem appends the body of a denial, a problem document (RFC 9457), to
// dst. v is a denial. Every string in it is a constant, a number or a name whose
// characters policy.ValidName allows, so that nothing needs an escape.
func AppendProblem(dst []byte, v *policy.Verdict) []byte {
	s := &v.Limits[v.Decisive]
	dst = append(dst, `{"type":"`+quotaExceeded+`","title":"Too Many Requests","status":429,"detail":"`...)
	if s.Decision.Never {
		dst = append(dst, "This request asks for more than there ever is under rule "...)
	} else {
		dst = append(dst, "No room under rule "...)
	}
	dst = append(dst, s.Rule.Name...)
	dst = append(dst, ": "...)
	dst = strconv.AppendUint(dst, s.Limit.Hits, 10)
	dst = append(dst, " hits in any "...)
	dst = append(dst, policy.FormatWindow(s.Limit.Window)...)
	if !s.Decision.Never {
		dst = append(dst, "; try again in "...)
		dst = strconv.AppendInt(dst, RetryAfter(s), 10)
		dst = append(dst, " s"...)
	}
	dst = append(dst, `.","rule":"`...)
	dst = append(dst, s.Rule.Name...)
	dst = append(dst, `","limit":`...)
	dst = strconv.AppendUint(dst, s.Limit.Hits, 10)
	dst = append(dst, `,"window":`...)
	dst = strconv.AppendFloat(dst, s.Limit.Window.Seconds(), 'f', -1, 64)
	dst = append(dst, `,"retry_after":`...)
	dst = strconv.AppendInt(dst, RetryAfter(s), 10)
	dst = append(dst, `,"violated-policies":["`...)
	dst = append(dst, s.Limit.Policy...)
	return append(dst, `"]}`...)
}
