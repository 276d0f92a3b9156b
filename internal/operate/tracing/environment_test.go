package tracing

import (
	"strings"
	"testing"
)

// check returns the problems of an environment, as a text.
func check(pairs ...string) (on bool, problems string) {
	all := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	e := &environment{get: func(name string) string { return all[name] }}
	on = e.on()
	e.protocol()
	e.propagators()
	e.check()
	if err := e.err(); err != nil {
		problems = err.Error()
	}
	return on, problems
}

// TestEnvironment reads each variable with right values, and with a wrong one, whose problem
// begins with its name.
func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name, good, bad, problem string
	}{
		{"OTEL_TRACES_EXPORTER", "otlp", "console", `"console" is not one of otlp, none`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317", "collector:4317", "is not a URL: write http://host:port"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/x", "http://u:secret@collector", "the URL has a user, a query or a fragment"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "http/json", `"http/json" is not one of grpc, http/protobuf`},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc", "udp", `"udp" is not one of grpc, http/protobuf`},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret,a=b", "a=b,Bearer secret", "entry 2 is not name=value"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-token=secret", "x-token=secret%zz", "entry 1 is not name=value"},
		{"OTEL_TRACES_SAMPLER", "parentbased_always_off", "xray", `"xray" is not one of always_on`},
		{"OTEL_BSP_SCHEDULE_DELAY", "100", "x", `"x" is not a whole number between 1 and 100000`},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "1000", "-1", `"-1" is not a whole number`},
		{"OTEL_PROPAGATORS", "tracecontext,baggage,b3,b3multi", "jaeger", `"jaeger" is not one of tracecontext, baggage, b3, b3multi, none`},
	} {
		if _, problems := check(tt.name, tt.good); problems != "" {
			t.Errorf("%s=%s: got %q, want no problem", tt.name, tt.good, problems)
		}
		_, problems := check(tt.name, tt.bad)
		if !strings.HasPrefix(problems, tt.name+": ") || !strings.Contains(problems, tt.problem) || strings.Contains(problems, "secret") {
			t.Errorf("%s=%s: got %q, want %q", tt.name, tt.bad, problems, tt.problem)
		}
	}
	if _, problems := check("OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "2"); problems != `OTEL_TRACES_SAMPLER_ARG: "2" is not a number from 0 to 1` {
		t.Errorf("a ratio of 2: got %q", problems)
	}
}

// TestWrongEnvironments has wrong values that a person or an attacker of the deployment may write. The
// problem names the variable, is short, and has no secret.
func TestWrongEnvironments(t *testing.T) {
	const secret = "Bearer%20s3cr3t"
	huge := strings.Repeat("s3cr3t", 1<<18)
	for _, tt := range []struct{ name, value string }{
		{"OTEL_EXPORTER_OTLP_HEADERS", secret},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization: " + secret},
		{"OTEL_EXPORTER_OTLP_HEADERS", "=" + secret},
		{"OTEL_EXPORTER_OTLP_HEADERS", "bad name=" + secret},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=b,," + secret},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cr3t%0d%0ax-other: 1"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cr3t%00"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cr3t%C3%A9"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cr3t\xff"},
		{"OTEL_EXPORTER_OTLP_HEADERS", huge},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=s3cr3t%"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://s3cr3t@collector:4318"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318?key=s3cr3t"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:s3cr3t"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99999"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:0"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "unix:///s3cr3t"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "\x7f" + huge},
	} {
		_, problems := check(tt.name, tt.value)
		if !strings.HasPrefix(problems, tt.name+": ") || strings.Contains(problems, "s3cr3t") || len(problems) > 300 {
			t.Errorf("%s=%.60q: got %.300q, want a problem that names the variable and no value", tt.name, tt.value, problems)
		}
	}
	for _, arg := range []string{"-0.1", "1.1", "NaN", "Inf", "half", "0.5,1", huge} {
		_, problems := check("OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", arg)
		if !strings.HasPrefix(problems, "OTEL_TRACES_SAMPLER_ARG: ") || len(problems) > 300 {
			t.Errorf("a ratio of %.60q: got %.300q", arg, problems)
		}
	}
}

// TestWhenTracesAreOn lists what turns traces on.
func TestWhenTracesAreOn(t *testing.T) {
	for _, tt := range []struct {
		pairs []string
		want  bool
	}{
		{nil, false},
		{[]string{"OTEL_SERVICE_NAME", "rls", "OTEL_TRACES_SAMPLER", "always_on"}, false},
		{[]string{"OTEL_TRACES_EXPORTER", "otlp"}, true},
		{[]string{"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, true},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318"}, true},
	} {
		if on, problems := check(tt.pairs...); on != tt.want || problems != "" {
			t.Errorf("%v: got on %v and %q, want %v", tt.pairs, on, problems, tt.want)
		}
	}
}
