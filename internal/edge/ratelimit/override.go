package ratelimit

import (
	"strconv"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
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

// asLimit returns the limit. It reports false for an invalid limit: one with an unknown
// unit, or with a window longer than window.MaxWindow.
func (o *override) asLimit() (l window.Limit, ok bool) {
	if o.unit <= 0 || o.unit > typev3.RateLimitUnit_YEAR {
		return window.Limit{}, false
	}
	// The units of requests have the numbers of those of answers.
	length, multiplier := UnitLength(rlsv3.RateLimitResponse_RateLimit_Unit(o.unit)), time.Duration(max(1, o.multiplier))
	if multiplier > window.MaxWindow/length {
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
