package tracing

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
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
	attributesVariable  = "OTEL_RESOURCE_ATTRIBUTES"
	serviceVariable     = "OTEL_SERVICE_NAME"
	samplerVariable     = "OTEL_TRACES_SAMPLER"
	argumentVariable    = "OTEL_TRACES_SAMPLER_ARG"
	queueVariable       = "OTEL_BSP_MAX_QUEUE_SIZE"
	batchVariable       = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"

	otlpPrefix   = "OTEL_EXPORTER_OTLP_"
	tracesPrefix = otlpPrefix + "TRACES_"
)

// The bounds of the queue of ended spans.
const (
	defaultQueue = 2048
	maxQueue     = 100_000
	defaultBatch = 512
)

// maxMillis bounds times in milliseconds: ten minutes catch a wrong unit.
const maxMillis = 600_000

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

// truth refuses a value that is neither true nor false. It returns whether it is true.
func (e *environment) truth(name string) bool {
	switch v := e.get(name); {
	case v == "" || strings.EqualFold(v, "false"):
		return false
	case strings.EqualFold(v, "true"):
		return true
	default:
		e.refuse(name, "%s is neither true nor false", quoted(v))
		return false
	}
}

// number refuses a value that is not a whole number between 1 and most. It returns the number, or
// def if there is none.
func (e *environment) number(name string, def, most int) int {
	v := e.get(name)
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		e.refuse(name, "%s is not a whole number between 1 and %d", quoted(v), most)
		return def
	}
	return n
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

// check refuses the wrong values of all variables that the libraries read.
func (e *environment) check() {
	eachOTLP("ENDPOINT", e.checkEndpoint)
	eachOTLP("HEADERS", e.checkHeaders)
	eachOTLP("TIMEOUT", func(name string) { e.number(name, 0, maxMillis) })
	eachOTLP("COMPRESSION", func(name string) { e.oneOf(name, "gzip", "none") })
	eachOTLP("INSECURE", func(name string) { e.truth(name) })
	eachOTLP("CERTIFICATE", e.checkCertificates)
	for _, prefix := range []string{otlpPrefix, tracesPrefix} {
		e.checkPair(prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY")
	}
	e.checkAttributes()
	e.checkSampler()
	for _, name := range []string{"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"} {
		e.number(name, 0, maxMillis)
	}
	queue := e.number(queueVariable, defaultQueue, maxQueue)
	if batch := e.number(batchVariable, min(defaultBatch, queue), maxQueue); batch > queue {
		e.refuse(batchVariable, "%d is more than the queue holds, %d (%s)", batch, queue, queueVariable)
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
		case !ok || err != nil || !httpguts.ValidHeaderFieldName(key):
			e.refuse(name, "entry %d is not name=value with a valid header name and a percent-encoded value", i+1)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			e.refuse(name, "entry %d has a value with a character that is not visible ASCII, which no header can have", i+1)
		}
	}
}

func (e *environment) checkCertificates(name string) {
	path := e.get(name)
	if path == "" {
		return
	}
	pem, err := os.ReadFile(path)
	switch {
	case err != nil:
		e.refuse(name, "%s", err)
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		e.refuse(name, "%s has no certificate in PEM", quoted(path))
	}
}

func (e *environment) checkPair(cert, key string) {
	c, k := e.get(cert), e.get(key)
	switch {
	case c == "" && k == "":
	case c == "" || k == "":
		e.refuse(cert, "set it together with %s", key)
	default:
		if _, err := tls.LoadX509KeyPair(c, k); err != nil {
			e.refuse(cert, "%s", err)
		}
	}
}

func (e *environment) checkAttributes() {
	for i, pair := range list(e.get(attributesVariable)) {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(value)
		switch {
		case !ok || strings.TrimSpace(name) == "" || err != nil:
			e.refuse(attributesVariable, "entry %d is not name=value with a percent-encoded value", i+1)
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			e.refuse(attributesVariable, "entry %d is not UTF-8, so no span could be sent", i+1)
		}
	}
	if !utf8.ValidString(e.get(serviceVariable)) {
		e.refuse(serviceVariable, "it is not UTF-8, so no span could be sent")
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
