package settings

import (
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// traces checks the settings of traces.
func (l *settingsLoader) traces() {
	t := &l.settings.Traces
	switch t.Protocol {
	case TracesOff:
		l.refuse("traces", []string{"sampling", "attributes"}, "there are no traces: traces.protocol is off")
		return
	case "":
		l.refuse("traces", []string{"sampling", "attributes"}, "traces.protocol is not set: set it, or OTEL_TRACES_SAMPLER and OTEL_RESOURCE_ATTRIBUTES instead")
		return
	}
	l.oneOf("traces.protocol", t.Protocol, []string{TracesGRPC, TracesHTTP, TracesOff})
	for _, a := range t.Attributes {
		if name, _, ok := strings.Cut(a, "="); !ok || strings.TrimSpace(name) == "" {
			l.problem("traces.attributes", "%s is not an attribute: write name=value", strict.Quote(a))
		}
	}
}
