package accesslog

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// envoyDefault is the text format that Envoy writes if its configuration has none.
const envoyDefault = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% ` +
	`%RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% ` +
	`"%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`

// The formats of nginx, Apache, Caddy and ingress-nginx.
const (
	commonFormat   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combinedFormat = commonFormat + ` "$http_referer" "$http_user_agent"`
	ingressFormat  = combinedFormat + ` $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $rest`
)

// A field is one name of JSON and what its value is.
type field struct {
	name      string
	attribute Attribute
}

// shipped are the names in the Envoy files of Slidegate, without those of what was answered. With
// authorization, the subject comes from another filter, and is the same.
var shipped = []field{
	{"time", "START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)"},
	{"client", Client},
	{"method", Method},
	{"path", PathOnly},
	{"protocol", Protocol},
	{"status", Status},
	{"flags", Flags},
	{"details", Details},
	{"subject", Subject},
	{"subject", "DYNAMIC_METADATA(envoy.filters.http.ext_authz:subject)"},
	{"key_digest", KeyDigest},
	{"reason", Reason},
	{"duration_ms", Duration},
	{"request_id", "REQ(x-request-id)"},
}

// meshes are the names of the same in the default access logs of Envoy Gateway ("Proxy Access Logs" in
// its documentation) and of Istio (EnvoyJSONLogFormatIstio in its source).
var meshes = []field{
	{"start_time", StartTime},
	{"method", Method},
	{"path", OriginalOrPath},
	{"x-envoy-origin-path", OriginalOrPath},
	{"protocol", Protocol},
	{"response_code", Status},
	{"response_flags", Flags},
	{"response_code_details", Details},
	{"duration", Duration},
	{"authority", Authority},
	{":authority", Authority},
	{"x_forwarded_for", "REQ(x-forwarded-for)"},
	{"x-forwarded-for", "REQ(x-forwarded-for)"},
	{"user_agent", "REQ(user-agent)"},
	{"user-agent", "REQ(user-agent)"},
	{"request_id", "REQ(x-request-id)"},
	{"x-request-id", "REQ(x-request-id)"},
	{"downstream_local_address", localWithPort},
	{"downstream_remote_address", clientWithPort},
	{"requested_server_name", "REQUESTED_SERVER_NAME"},
	{"upstream_cluster", Cluster},
	{"bytes_received", "BYTES_RECEIVED"},
	{"bytes_sent", "BYTES_SENT"},
	{"route_name", RouteName},
}

const (
	caddyName    = "caddy"
	caddyHeaders = "request.headers."
)

// caddy are the names in the access log of Caddy, without the headers of the requests.
var caddy = []field{
	{"ts", EmitTime},
	{"status", Status},
	{"request.client_ip", Client},
	{"request.remote_ip", Peer},
	{"request.remote_ip", Client}, // before Caddy 2.7, which has client_ip
	{"request.method", Method},
	{"request.uri", Path},
	{"request.host", Authority},
	{"request.proto", Protocol},
	{"duration", Seconds},
}

// jsonFormat returns the format of JSON with these names.
func jsonFormat(name string, fields []field) *format {
	f := &format{name: name}
	for _, v := range fields {
		f.slots, f.names = append(f.slots, v.attribute), append(f.names, v.name)
	}
	return f
}

// caddyFormat returns the format of Caddy, with the headers among the wanted attributes.
func caddyFormat(want []Attribute) *format {
	fields := slices.Clone(caddy)
	for _, a := range want {
		inner, ok := strings.CutPrefix(string(a), "REQ(")
		if !ok {
			continue
		}
		for _, header := range strings.Split(strings.TrimSuffix(inner, ")"), "?") {
			if header != "" && header[0] != ':' && !strings.Contains(header, ")") {
				fields = append(fields, field{caddyHeaders + textproto.CanonicalMIMEHeaderKey(header), Header(header)})
			}
		}
	}
	return jsonFormat(caddyName, fields)
}

// isNginxTime reports whether a duration is written as by nginx, such as 0.250. Other servers end
// their lines with other numbers.
func isNginxTime(b []byte) bool {
	n := skipDigits(b, 0)
	return n > 0 && len(b) == n+4 && b[n] == '.' && skipDigits(b, n+1) == len(b)
}

// candidates returns the formats that a file can have by the options, the likeliest first.
func candidates(o *Options) ([]*format, error) {
	text := func(name, format string) *format {
		f, err := newTextFormat(name, format)
		if err != nil {
			panic(err) // they are constants
		}
		return f
	}
	nginx := []*format{
		text("nginx", combinedFormat), text("nginx", combinedFormat+" $request_time"), text("nginx", combinedFormat+` "$http_x_forwarded_for"`),
		text("nginx", ingressFormat), text("nginx", combinedFormat+" $rest"), text("nginx", commonFormat), text("nginx", commonFormat+" $rest"),
	}
	nginx[1].nginxTime = true
	ours := []*format{jsonFormat("json", shipped), jsonFormat("json", meshes)}
	if o.Fields != nil {
		if o.Format != "" && o.Format != "json" {
			return nil, fmt.Errorf("fields are named, which only the format json has, and the format is %q", o.Format)
		}
		f, err := mappedFormat("of the named fields", o.Fields)
		return []*format{f}, err
	}
	switch o.Format {
	case "":
		return slices.Concat(writtenFormats(o.Written), ours, []*format{caddyFormat(o.Want), text("envoy", envoyDefault)}, nginx), nil
	case "json":
		return ours, nil
	case "envoy":
		return []*format{text("envoy", envoyDefault)}, nil
	case "nginx":
		return nginx, nil
	case "caddy":
		return slices.Concat([]*format{caddyFormat(o.Want)}, nginx), nil
	}
	if !strings.ContainsAny(o.Format, "%$") {
		return nil, fmt.Errorf("the format %q is not known: use json, envoy, nginx, caddy, or the text of a log format of Envoy or nginx", o.Format)
	}
	f, err := newTextFormat("of the text", o.Format)
	return []*format{f}, err
}

// A Written is a log format of Envoy's configuration: the fields of JSON, as in [Options], or a text.
type Written struct {
	Name   string // where it is written, such as envoy.yaml:17
	Fields map[string]Attribute
	Text   string // counts if there are no fields
}

// writtenFormats returns the formats that files can be read by: those that can be read and
// say when a request came.
func writtenFormats(written []Written) (formats []*format) {
	for _, w := range written {
		f, err := mappedFormat(w.Name, w.Fields)
		if len(w.Fields) == 0 {
			if f, err = newTextFormat(w.Name, w.Text); err == nil {
				_, err = f.newDecoder(nil)
			}
		}
		if err == nil {
			f.written = true
			formats = append(formats, f)
		}
	}
	return formats
}

// mappedFormat returns the format of JSON with the names of the caller.
func mappedFormat(name string, fields map[string]Attribute) (*format, error) {
	var list []field
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if key == "" {
			problems = append(problems, errors.New("a field of the mapping has no name"))
		}
		a, err := Parse(string(fields[key]))
		if err == nil {
			_, err = a.IsTime()
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("the field %q: %w", key, err))
		}
		list = append(list, field{key, a})
	}
	f := jsonFormat(name, list)
	if len(problems) == 0 {
		_, err := f.newDecoder(nil)
		problems = append(problems, err)
	}
	return f, errors.Join(problems...)
}
