package answer

import "github.com/slidegate/slidegate/internal/core/probe"

// ProbeHeader is the field of a denial that has the id of a probe.
const ProbeHeader = "slidegate-probe"

// Probed returns the header fields and the body of a call that a probe denies.
func Probed(p *probe.Probe) (fields []Header, body []byte) {
	return []Header{{Name: ProbeHeader, Value: p.ID}, {Name: "content-type", Value: ContentTypeProblem}},
		[]byte(`{"type":"about:blank","title":"Probe","status":429,"detail":"A probe denies each request with this key."}`)
}
