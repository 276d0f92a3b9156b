package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/text/httpfield"
)

// The protocols of OTLP that are supported.
const (
	ProtocolGRPC = "grpc"
	ProtocolHTTP = "http"
)

// The variables that this package reads by name. Those of OTLP have a second name each, for
// traces alone.
const (
	disabledVariable    = "OTEL_SDK_DISABLED"
	exporterVariable    = "OTEL_TRACES_EXPORTER"
	propagatorsVariable = "OTEL_PROPAGATORS"
	samplerVariable     = "OTEL_TRACES_SAMPLER"
	argumentVariable    = "OTEL_TRACES_SAMPLER_ARG"

	otlpPrefix   = "OTEL_EXPORTER_OTLP_"
	tracesPrefix = otlpPrefix + "TRACES_"
)

// maxQueue bounds the spans that wait, and times in milliseconds.
const maxQueue = 100_000

// environment checks the variables of OpenTelemetry. An empty variable is not set.
type environment struct {
	get      func(name string) string
	problems []error
}

// refuse adds a problem. It never quotes a value that may be a secret.
func (e *environment) refuse(name, format string, args ...any) {
	e.problems = append(e.problems, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
}

// quoted returns the beginning of a value for a message.
func quoted(text string) string { return strconv.Quote(text[:min(len(text), 64)]) }

// oneOf refuses a value that is not in the list.
func (e *environment) oneOf(name string, values ...string) {
	if v := e.get(name); v != "" && !slices.Contains(values, v) {
		e.refuse(name, "%s is not one of %s", quoted(v), strings.Join(values, ", "))
	}
}

// otlp returns the value of a variable of OTLP and its name, the one for traces first.
func (e *environment) otlp(name string) (value, from string) {
	if v := e.get(tracesPrefix + name); v != "" {
		return v, tracesPrefix + name
	}
	return e.get(otlpPrefix + name), otlpPrefix + name
}

// eachOTLP calls back with both names of a variable of OTLP.
func eachOTLP(name string, check func(name string)) {
	check(otlpPrefix + name)
	check(tracesPrefix + name)
}

// on reports whether the variables ask for traces.
func (e *environment) on() bool {
	e.oneOf(exporterVariable, "otlp", "none")
	endpoint, _ := e.otlp("ENDPOINT")
	return e.get(exporterVariable) == "otlp" || e.get(exporterVariable) == "" && endpoint != ""
}

// protocol returns the protocol that the variables name, or http.
func (e *environment) protocol() string {
	eachOTLP("PROTOCOL", func(name string) { e.oneOf(name, "grpc", "http/protobuf") })
	if v, _ := e.otlp("PROTOCOL"); v == "grpc" {
		return ProtocolGRPC
	}
	return ProtocolHTTP
}

// check refuses wrong values of which the libraries would make something else, or which they would
// print although they may be secrets. What else is wrong, the libraries ignore and report.
func (e *environment) check() {
	eachOTLP("ENDPOINT", e.checkEndpoint)
	eachOTLP("HEADERS", e.checkHeaders)
	e.checkSampler()
	for _, name := range []string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"} {
		// The library panics if one is negative.
		if n, err := strconv.Atoi(cmp.Or(e.get(name), "1")); err != nil || n < 1 || n > maxQueue {
			e.refuse(name, "%s is not a whole number between 1 and %d", quoted(e.get(name)), maxQueue)
		}
	}
}

func (e *environment) checkEndpoint(name string) {
	text := e.get(name)
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		// The text may hold a password.
		e.refuse(name, "is not a URL: write http://host:port or https://host:port")
	case !isPort(u.Port()):
		e.refuse(name, "the URL has a port that is not between 1 and 65535")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		e.refuse(name, "the URL has a user, a query or a fragment; put a token into %sHEADERS", otlpPrefix)
	}
}

// isPort reports whether a text is a port, or empty.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// checkHeaders refuses headers that are not a list of name=value. It shows no value.
func (e *environment) checkHeaders(name string) {
	for i, pair := range list(e.get(name)) {
		key, value, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		switch {
		case !ok || err != nil || !httpfield.ValidName(key):
			e.refuse(name, "entry %d is not name=value with a valid header name and a percent-encoded value", i+1)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			e.refuse(name, "entry %d has a value with a character that is not visible ASCII, which no header can have", i+1)
		}
	}
}

func (e *environment) checkSampler() {
	e.oneOf(samplerVariable, "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
	text := e.get(argumentVariable)
	if text == "" || !strings.HasSuffix(e.get(samplerVariable), "traceidratio") {
		return
	}
	if f, err := strconv.ParseFloat(text, 64); err != nil || !(f >= 0 && f <= 1) {
		e.refuse(argumentVariable, "%s is not a number from 0 to 1", quoted(text))
	}
}

// propagators returns the formats of trace context that calls may have.
func (e *environment) propagators() []string {
	known := []string{"tracecontext", "baggage", "b3", "b3multi", "none"}
	var names []string
	for _, name := range list(cmp.Or(e.get(propagatorsVariable), "tracecontext,b3,b3multi")) {
		if name = strings.TrimSpace(name); !slices.Contains(known, name) {
			e.refuse(propagatorsVariable, "%s is not one of %s", quoted(name), strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	return names
}

// err returns all problems, or nil.
func (e *environment) err() error { return errors.Join(e.problems...) }

// list splits a list at its commas. An empty text has no entries.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
