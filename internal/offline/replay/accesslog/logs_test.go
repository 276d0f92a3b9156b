package accesslog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// TestLogs reads logs of other programs. The files in testdata were written by Envoy 1.40.0.
func TestLogs(t *testing.T) {
	tenant := accesslog.Header("x-tenant")
	mesh := []accesslog.Attribute{
		accesslog.Method, accesslog.Path, accesslog.PathOnly, accesslog.Authority, accesslog.Client, accesslog.LocalPort, accesslog.Status,
		accesslog.Details, accesslog.Duration, accesslog.Cluster, accesslog.Header("user-agent"), "REQUESTED_SERVER_NAME", "BYTES_RECEIVED",
	}
	for name, c := range map[string]struct {
		paths     []string
		content   string
		format    string
		fields    map[string]accesslog.Attribute
		want      []accesslog.Attribute
		records   []string
		broken    uint64
		noRequest uint64
		atEnd     uint64
	}{
		"Envoy's default": {
			paths: []string{"testdata/envoy-default.log"}, want: []accesslog.Attribute{accesslog.Method, accesslog.Path, accesslog.PathOnly, accesslog.Protocol, accesslog.Header("user-agent"), accesslog.Client},
			records: []string{
				`498729h48m33.759s GET /search?q=a%20b&x=1 /search HTTP/1.1 Mozilla/5.0 (X11) "quoted" é ?`,
				`498729h48m33.966s GET /q"uote\back /q"uote\back HTTP/1.1 - ?`,
				`498729h48m34.042s POST /h2 /h2 HTTP/2 curl/7.88.1 ?`,
			},
			broken: 1, noRequest: 2, // broken: a user agent with the text that separates values
		},
		"the shipped format": {
			paths: []string{"testdata/envoy-json.log"}, want: []accesslog.Attribute{accesslog.Method, accesslog.Path, accesslog.PathOnly, accesslog.Client, accesslog.Status, accesslog.Subject, accesslog.Flags},
			records: []string{
				`498729h48m33.759s GET ? /search 127.0.0.1 200 - -`, `498729h48m33.784s GET ? /rewrite/a 127.0.0.1 503 - UF`,
				`498729h48m33.966s GET ? /q"uote\back 127.0.0.1 200 - -`, `498729h48m34.042s POST ? /h2 10.0.0.2 200 - -`,
			},
			noRequest: 2,
		},
		"Envoy's text": {
			paths:  []string{"testdata/envoy-text.log"},
			format: `%START_TIME(%s.%3f)% %REQ(X-TENANT)%|%REQ(:METHOD)%|%PATH(WQ:ORIG)%|%PATH(NQ)%|%REQ(:PATH)%|%DOWNSTREAM_REMOTE_ADDRESS%|%REQ(USER-AGENT)%|%REQUEST_HEADER(X-Tenant)%|%QUERY_PARAM(q)%|%START_TIME(%d/%b/%Y:%H:%M:%S %z)%|%START_TIME(%Y-%m-%dT%H:%M:%E6SZ)%|%EMIT_TIME%|%DURATION%\n`,
			want:   []accesslog.Attribute{tenant, accesslog.Path, accesslog.PathOnly, accesslog.Client, "QUERY_PARAM(q)"},
			records: []string{
				"498729h48m33.759s Acme /search?q=a%20b&x=1 /search 127.0.0.1 a b", "498729h48m33.966s - /q\"uote\\back /q\"uote\\back 127.0.0.1 -",
				"498729h48m34.042s \xff\xfe /h2 /h2 10.0.0.2 -",
			},
			broken: 1, noRequest: 2, // broken: a tenant with the text that separates values
		},
		"nginx": {
			content: `10.0.0.1 - - [23/Nov/2026:09:48:33 +0100] "GET /a?b=%22\x22 HTTP/1.1" 200 12 "-" "x\x5cy"` + "\n" +
				`10.0.0.1 - - [23/Nov/2026:09:48:33 +0100] "\x16\x03\x01" 400 150 "-" "-"` + "\n",
			want:    []accesslog.Attribute{accesslog.Method, accesslog.Path, accesslog.PathOnly, accesslog.Protocol, accesslog.Client, accesslog.Status, tenant},
			records: []string{`498728h48m33s GET /a?b=%22" /a HTTP/1.1 10.0.0.1 200 ?`}, noRequest: 1, atEnd: 1,
		},
		"nginx with the duration": {
			content: `10.0.0.1 - - [23/Nov/2026:09:48:33 +0100] "GET /a HTTP/1.1" 200 12 "-" "curl" 0.250` + "\n",
			want:    []accesslog.Attribute{accesslog.Path, accesslog.Header("user-agent"), accesslog.Duration},
			records: []string{`498728h48m32.75s /a curl 250`},
		},
		"nginx's variables": {
			content: "1795427313.500 acme|GET|/a?b|2.250|[::1]:80\n1795427313.600 -|GET|/b|-|-\n", format: "$msec ${http_x_tenant}|$request_method|$request_uri|$request_time|$upstream_addr",
			want:    []accesslog.Attribute{tenant, accesslog.Path, accesslog.Duration},
			records: []string{"498729h48m31.25s acme /a?b 2250", "498729h48m33.6s - /b -"}, atEnd: 1,
		},
		"common": {
			content: `::1 - bob [23/Nov/2026:09:48:33 +0000] "GET / HTTP/2.0" 200 1` + "\n", format: "caddy",
			want: []accesslog.Attribute{accesslog.Client, accesslog.Path}, records: []string{"498729h48m33s ::1 /"}, atEnd: 1,
		},
		"Caddy": {
			content: `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"10.0.0.9","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b","headers":{"User-Agent":["curl/7.82.0"],"X-Tenant":["a","b"],"Authorization":["REDACTED"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"","duration":0.5,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}` + "\n",
			want:    []accesslog.Attribute{accesslog.Method, accesslog.Path, accesslog.Client, accesslog.Peer, accesslog.Authority, accesslog.Duration, tenant, accesslog.Header("x-none"), accesslog.Header("authorization")},
			records: []string{"457461h30m1.0241024s GET /a?b 10.0.0.9 127.0.0.1 localhost 500 a,b - ?"},
		},
		// The default access log of Envoy Gateway, by its page "Proxy Access Logs"; it was text in the
		// form of JSON before it was JSON, so the numbers of older versions are texts.
		"Envoy Gateway": {
			content: `{":authority":"www.example.com","bytes_received":0,"bytes_sent":514,"connection_termination_details":null,"downstream_local_address":"10.244.0.22:10080","downstream_remote_address":"10.0.0.9:52144","duration":2,"method":"GET","protocol":"HTTP/1.1","requested_server_name":null,"response_code":200,"response_code_details":"via_upstream","response_flags":"-","route_name":"httproute/default/backend/rule/0/match/0/www_example_com","start_time":"2026-11-23T09:48:33.759Z","upstream_cluster":"httproute/default/backend/rule/0","upstream_host":"10.244.0.18:3000","upstream_local_address":"10.244.0.22:46002","upstream_transport_failure_reason":null,"user-agent":"curl/7.88.1","x-envoy-origin-path":"/get?q=a","x-envoy-upstream-service-time":null,"x-forwarded-for":"10.0.0.9","x-request-id":"9b2f5c1c-6a57-4a3c-8a38-1f3a4c2f0f1e"}` + "\n" +
				`{"start_time":"2026-11-23T09:48:34.042Z","method":"HEAD","x-envoy-origin-path":"/","protocol":"HTTP/2","response_code":"429","response_flags":"RL","response_code_details":"request_rate_limited","connection_termination_details":"-","upstream_transport_failure_reason":"-","bytes_received":"0","bytes_sent":"0","duration":"1","x-envoy-upstream-service-time":"-","x-forwarded-for":"10.0.0.9","user-agent":"-","x-request-id":"0d9d7a0e-31c7-4f43-8c55-0f8b1f1e9a11",":authority":"www.example.com","upstream_host":"-","upstream_cluster":"httproute/default/backend/rule/0","upstream_local_address":"-","downstream_local_address":"[fd00::22]:10443","downstream_remote_address":"[fd00::9]:62217","requested_server_name":"www.example.com","route_name":"httproute/default/backend/rule/0/match/0/www_example_com"}` + "\n",
			want: mesh, records: []string{
				"498729h48m33.759s GET /get?q=a /get www.example.com 10.0.0.9 10080 200 via_upstream 2 httproute/default/backend/rule/0 curl/7.88.1 - 0",
				"498729h48m34.042s HEAD / / www.example.com fd00::9 10443 429 request_rate_limited 1 httproute/default/backend/rule/0 - www.example.com 0",
			},
		},
		// The default JSON of Istio, by EnvoyJSONLogFormatIstio of its source.
		"Istio": {
			content: `{"authority":"productpage:9080","bytes_received":0,"bytes_sent":12,"connection_termination_details":null,"downstream_local_address":"10.96.14.3:9080","downstream_remote_address":"10.0.0.9:40022","duration":5,"method":"GET","path":"/productpage?u=1","protocol":"HTTP/1.1","request_id":"5a8c7d1e-2f0b-4d59-9a40-7d1f0a6b3c55","requested_server_name":null,"response_code":200,"response_code_details":"via_upstream","response_flags":"-","route_name":"default","start_time":"2026-11-23T09:48:33.759Z","upstream_cluster":"outbound|9080||productpage.default.svc.cluster.local","upstream_host":"10.0.0.7:9080","upstream_local_address":"10.0.0.9:51522","upstream_service_time":"4","upstream_transport_failure_reason":null,"user_agent":"curl/7.88.1","x_forwarded_for":null}` + "\n",
			want:    mesh,
			records: []string{"498729h48m33.759s GET /productpage?u=1 /productpage productpage:9080 10.0.0.9 9080 200 via_upstream 5 outbound|9080||productpage.default.svc.cluster.local curl/7.88.1 - 0"},
		},
		"a mapping": {
			content: `{"t":1795427313500,"http":{"url":"/a?b","h":["x"]},"ip":"10.0.0.1:443"}` + "\n" + `{"t":"1795427314500","http":{"url":"/c","h":[]}}` + "\n",
			fields:  map[string]accesslog.Attribute{"t": "START_TIME", "http.url": "%REQ(:PATH)%", "http.h": "REQ(X-Tenant)", "ip": "DOWNSTREAM_REMOTE_ADDRESS"},
			want:    []accesslog.Attribute{accesslog.PathOnly, tenant, accesslog.Client, accesslog.Method},
			records: []string{"498729h48m33.5s /a x 10.0.0.1 ?", "498729h48m34.5s /c - - ?"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := accesslog.Options{Paths: c.paths, Format: c.format, Fields: c.fields, Want: c.want}
			if c.paths == nil {
				o.Paths = []string{write(t, "log", c.content)}
			}
			got, stats, err := all(t, o)
			if err != nil || !slices.Equal(got, c.records) || stats.Broken != c.broken || stats.NoRequest != c.noRequest || stats.AtEnd != c.atEnd {
				t.Errorf("%v, %+v\ngot\n%s\nwant\n%s", err, stats, strings.Join(got, "\n"), strings.Join(c.records, "\n"))
			}
		})
	}
}

// TestWholeSeconds: the times in the lines of each file say whether they have parts of a second,
// and not the starts that follow from them.
func TestWholeSeconds(t *testing.T) {
	whole := `10.0.0.1 - - [23/Nov/2026:09:48:33 +0100] "GET /a HTTP/1.1" 200 12 "-" "curl" 0.250` + "\n"
	const fine = "testdata/envoy-default.log"
	for name, c := range map[string]struct {
		paths []string
		want  bool
	}{
		"with durations": {[]string{write(t, "log", whole+whole)}, true},
		"fine":           {[]string{fine}, false},
		"one line":       {[]string{write(t, "log", whole)}, false},
		"one of two":     {[]string{fine, write(t, "log", whole+whole)}, true},
	} {
		_, stats, err := all(t, accesslog.Options{Paths: c.paths, Want: []accesslog.Attribute{accesslog.Path}})
		if err != nil || stats.WholeSeconds != c.want {
			t.Errorf("%s: whole seconds %v, %+v, %v", name, stats.WholeSeconds, stats, err)
		}
	}
}
