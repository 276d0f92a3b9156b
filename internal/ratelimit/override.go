package ratelimit

import (
	"strconv"
	"strings"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/slidegate/slidegate/pkg/window"
)

// unitLengths are the lengths of the units of an override. Calendar units are
// lengths too, as in the reference service: a month is 30 days, a year 365.
var unitLengths = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second,
	typev3.RateLimitUnit_MINUTE: time.Minute,
	typev3.RateLimitUnit_HOUR:   time.Hour,
	typev3.RateLimitUnit_DAY:    24 * time.Hour,
	typev3.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
	typev3.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
}

// override reads the limit that came with a descriptor. One that is no limit,
// with an unknown unit or a window that is too long, counts as absent: nil, and
// the rules apply.
func override(o *ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride) *window.Limit {
	if o == nil {
		return nil
	}
	length, ok := unitLengths[o.GetUnit()]
	multiplier := max(1, o.GetUnitMultiplier().GetValue())
	if !ok || time.Duration(multiplier) > window.MaxWindow/length {
		return nil
	}
	return &window.Limit{
		Hits:   uint64(o.GetRequestsPerUnit()),
		Window: length * time.Duration(multiplier),
	}
}

// overrideText writes an override as protobuf text, in the one of its forms that
// has single spaces: the library changes them from build to build.
func overrideText(o *ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride) string {
	var fields []string
	if n := o.GetRequestsPerUnit(); n != 0 {
		fields = append(fields, "requests_per_unit:"+strconv.FormatUint(uint64(n), 10))
	}
	if u := o.GetUnit(); u != 0 {
		fields = append(fields, "unit:"+u.String())
	}
	if m := o.GetUnitMultiplier(); m != nil {
		value := ""
		if n := m.GetValue(); n != 0 {
			value = "value:" + strconv.FormatUint(uint64(n), 10)
		}
		fields = append(fields, "unit_multiplier:{"+value+"}")
	}
	return strings.Join(fields, " ")
}
