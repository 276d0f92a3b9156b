package compare

import (
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/pkg/window"
)

// Answer is the result of one service for a call.
type Answer int

// The answers. Only the other service has TimedOut and Skipped.
const (
	OK Answer = iota
	OverLimit
	// Failed: the service has not decided.
	Failed
	// TimedOut: no answer came in time.
	TimedOut
	// Skipped: the other service was not asked, because too many calls wait for it.
	Skipped
)

// Answers lists all answers by number with their metric label.
var Answers = [...]string{OK: "ok", OverLimit: "over_limit", Failed: "error", TimedOut: "timeout", Skipped: "skipped"}

// String returns the metric label.
func (a Answer) String() string { return Answers[a] }

// The codes of an answer.
const (
	codeOK        = rlsv3.RateLimitResponse_OK
	codeOverLimit = rlsv3.RateLimitResponse_OVER_LIMIT
)

type answer struct {
	code     rlsv3.RateLimitResponse_Code
	statuses []descriptorStatus
}

type descriptorStatus struct {
	code    rlsv3.RateLimitResponse_Code
	limited bool // the service names its limit
	hits    uint64
	window  time.Duration // 0: unknown
}

func answerOf(r *rlsv3.RateLimitResponse) answer {
	a := answer{code: r.GetOverallCode()}
	for _, from := range r.GetStatuses() {
		l := from.GetCurrentLimit()
		s := descriptorStatus{code: from.GetCode(), limited: l != nil, hits: uint64(l.GetRequestsPerUnit())}
		multiplier := uint64(1)
		if m := l.GetUnitMultiplier(); m != nil {
			multiplier = uint64(m.GetValue())
		}
		if multiplier <= maxMultiplier {
			s.window = min(ratelimit.UnitLength(l.GetUnit()), window.MaxWindow/time.Duration(max(1, multiplier))) * time.Duration(multiplier)
		}
		a.statuses = append(a.statuses, s)
	}
	return a
}

// maxMultiplier keeps a window from overflowing.
const maxMultiplier = uint64(window.MaxWindow / time.Second)
