package answer

import (
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/core/probe"
)

// ProbeHeader is the field of a denial that has the id of a probe.
const ProbeHeader = "slidegate-probe"

// Probed returns the header fields and the body of a call that a probe denies now. A client that waits
// for Retry-After comes after the end of the probe.
func Probed(p *probe.Probe, now time.Time) (fields []Header, body []byte) {
	wait := strconv.FormatInt(max(1, Seconds(p.Until.Sub(now))), 10)
	return []Header{{Name: ProbeHeader, Value: p.ID}, {Name: "retry-after", Value: wait}, {Name: "content-type", Value: ContentTypeProblem}},
		[]byte(`{"type":"about:blank","title":"Probe","status":429,"detail":"A probe denies each request with this key."}`)
}
