package ratelimit

import (
	"strconv"
	"strings"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/slidegate/slidegate/pkg/window"
)

// override is a limit that came with a descriptor, as it was sent.
type override struct {
	requestsPerUnit uint32
	unit            typev3.RateLimitUnit
	multiplier      uint32
	// multiplied: it has a multiplier, be it zero, which means one.
	multiplied bool
}

// unitLength returns the length of a unit, zero for one that is none. Calendar units
// are lengths too, as in the reference service: a month is 30 days, a year 365.
func unitLength(u typev3.RateLimitUnit) time.Duration {
	const day = 24 * time.Hour
	switch u {
	case typev3.RateLimitUnit_SECOND:
		return time.Second
	case typev3.RateLimitUnit_MINUTE:
		return time.Minute
	case typev3.RateLimitUnit_HOUR:
		return time.Hour
	case typev3.RateLimitUnit_DAY:
		return day
	case typev3.RateLimitUnit_MONTH:
		return 30 * day
	case typev3.RateLimitUnit_YEAR:
		return 365 * day
	default:
		return 0
	}
}

// asLimit returns the limit. One that is none, with an unknown unit or a window
// that is too long, counts as absent, and the rules apply.
func (o *override) asLimit() (l window.Limit, ok bool) {
	length := unitLength(o.unit)
	multiplier := time.Duration(max(1, o.multiplier))
	if length == 0 || multiplier > window.MaxWindow/length {
		return window.Limit{}, false
	}
	return window.Limit{Hits: uint64(o.requestsPerUnit), Window: length * multiplier}, true
}

// text writes an override as protobuf text, in the one of its forms that has single
// spaces: the library changes them from build to build.
func (o *override) text() string {
	var fields []string
	if n := o.requestsPerUnit; n != 0 {
		fields = append(fields, "requests_per_unit:"+strconv.FormatUint(uint64(n), 10))
	}
	if u := o.unit; u != 0 {
		fields = append(fields, "unit:"+u.String())
	}
	if o.multiplied {
		value := ""
		if n := o.multiplier; n != 0 {
			value = "value:" + strconv.FormatUint(uint64(n), 10)
		}
		fields = append(fields, "unit_multiplier:{"+value+"}")
	}
	return strings.Join(fields, " ")
}
