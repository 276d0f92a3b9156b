package answer

import (
	"strconv"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/pkg/window"
)

// The problem types that draft-ietf-httpapi-ratelimit-headers-10 registers. The
// first has the member violated-policies.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// costAboveLimit is the problem type of a request that no wait helps: its cost is above the
// limit. No type is registered for that. Clients compare it, so it is the same in every version.
const costAboveLimit = "https://github.com/slidegate/slidegate/blob/main/docs/clients.md#cost-above-limit"

// ContentTypeProblem is the content type of denials, unless the rule has a body.
const ContentTypeProblem = "application/problem+json"

// The titles of the problems, as JSON.
const (
	titleDenied    = `"Too Many Requests"`
	titleNever     = `"The Cost Is Above The Limit"`
	titleUndecided = `"The Limit Cannot Be Checked"`
	titleBeyond    = `"The Request Is Too Large"`
)

// detailBeyond is about a request that exceeds a bound of the service.
const detailBeyond = "The request is too large for its limits to be checked."

// appendProblem appends a problem document (RFC 9457). s is nil if the request exceeds a bound of the
// service.
func appendProblem(dst []byte, s *decide.LimitStatus) []byte {
	if s == nil {
		return append(dst, `{"type":"`+reducedCapacity+`","title":`+titleBeyond+`,"status":429,"detail":"`+detailBeyond+`"}`...)
	}
	dst = append(dst, `{"type":"`...)
	switch {
	case s.DeniedUndecided():
		dst = append(dst, reducedCapacity...)
		dst = append(dst, `","title":`...)
		title := titleUndecided
		if s.Decision.Never {
			title = titleBeyond
		}
		dst = append(dst, title...)
	case s.Decision.Never:
		dst = append(dst, costAboveLimit...)
		dst = append(dst, `","title":`...)
		dst = append(dst, titleNever...)
	default:
		dst = append(dst, quotaExceeded...)
		dst = append(dst, `","title":`...)
		dst = append(dst, titleDenied...)
	}
	dst = append(dst, `,"status":429,"detail":"`...)
	dst = appendDetail(dst, s, nil)
	dst = append(dst, `","rule":"`...)
	dst = append(dst, s.Rule.Name...)
	dst = append(dst, `","limit":`...)
	dst = strconv.AppendUint(dst, s.Limit.Hits, 10)
	if s.Limit.Policy != window.Sliding {
		dst = append(dst, `,"policy":"`...)
		dst = append(dst, s.Limit.Policy.String()...)
		dst = append(dst, '"')
	}
	dst = appendSpan(dst, s)
	switch {
	case s.Decision.Never && s.DeniedUndecided():
	case s.Decision.Never:
		dst = append(dst, `,"cost":`...)
		dst = strconv.AppendUint(dst, s.Cost, 10)
	default:
		if s.Limit.Budget != nil && !s.DeniedUndecided() {
			dst = appendBudget(dst, s)
		}
		dst = append(dst, `,"retry_after":`...)
		dst = strconv.AppendInt(dst, RetryAfter(s), 10)
	}
	if !s.DeniedUndecided() {
		dst = append(dst, `,"violated-policies":["`...)
		dst = append(dst, s.Limit.Name...)
		dst = append(dst, `"]`...)
	}
	return append(dst, '}')
}

// appendBudget appends what the request may cost, and how much of the budget is used.
func appendBudget(dst []byte, s *decide.LimitStatus) []byte {
	if s.Limit.Currency != "" {
		dst = append(append(append(dst, `,"currency":"`...), s.Limit.Currency...), '"')
	}
	dst = strconv.AppendUint(append(dst, `,"cost":`...), s.Cost, 10)
	dst = strconv.AppendUint(append(dst, `,"spent":`...), s.Spent(), 10)
	return strconv.AppendUint(append(dst, `,"reserved":`...), s.Decision.Reserved, 10)
}

// appendSpan appends the member window, in seconds. A limit of requests in flight has none. The
// time in which a bucket fills is rounded up to seconds, as in the header fields.
func appendSpan(dst []byte, s *decide.LimitStatus) []byte {
	span, _ := s.Span()
	switch s.Limit.Policy {
	case window.InFlight:
		return dst
	case window.TokenBucket, window.Calendar:
		dst = append(dst, `,"window":`...)
		return strconv.AppendInt(dst, Seconds(span), 10)
	}
	dst = append(dst, `,"window":`...)
	return strconv.AppendFloat(dst, span.Seconds(), 'f', -1, 64)
}
