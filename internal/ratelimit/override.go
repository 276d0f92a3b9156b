package ratelimit

import (
	"strconv"
	"strings"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/slidegate/slidegate/pkg/window"
)

// override is a limit that came with a descriptor, as sent.
type override struct {
	requestsPerUnit uint32
	unit            typev3.RateLimitUnit
	multiplier      uint32
	multiplied      bool // there is a multiplier; zero means one
}

// unitLength returns the length of a unit, or zero for an unknown unit. A month has 30 days
// and a year 365, as in the reference service.
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

// asLimit returns the limit. It reports false for an invalid limit: one with an unknown
// unit, or with a window longer than window.MaxWindow.
func (o *override) asLimit() (l window.Limit, ok bool) {
	length := unitLength(o.unit)
	multiplier := time.Duration(max(1, o.multiplier))
	if length == 0 || multiplier > window.MaxWindow/length {
		return window.Limit{}, false
	}
	return window.Limit{Hits: uint64(o.requestsPerUnit), Window: length * multiplier}, true
}

// text returns an override as protobuf text with single spaces. The library writes one
// space or two, depending on the build.
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
