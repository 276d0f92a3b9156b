package accesslog_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// quoted returns a text as a string of JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// TestPrefixes reads lines behind what other programs write before them, or around them.
func TestPrefixes(t *testing.T) {
	payloads := map[string]struct{ line, client string }{
		"nginx":     {`192.0.2.7 - - [23/Nov/2026:09:48:33 +0000] "GET /a HTTP/1.1" 200 12 "-" "a \x22b"`, "192.0.2.7"},
		"IPv6":      {`2001:db8:: - - [23/Nov/2026:09:48:33 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl/8"`, "2001:db8::"},
		"JSON":      {`{"time":"2026-11-23T09:48:33.000Z","client":"192.0.2.7","method":"GET","path":"/a"}`, "192.0.2.7"},
		"Envoy":     {`[2026-11-23T09:48:33.000Z] "GET /a HTTP/1.1" 200 - 0 0 0 - "-" "curl" "-" "a:80" "-"`, "?"},
		"no client": {`{"time":"2026-11-23T09:48:33.000Z","method":"GET","path":"/a"}`, "?"},
	}
	around := func(before, after string) func(string) string {
		return func(line string) string { return before + quoted(line) + after }
	}
	prefixes := map[string]func(string) string{
		"none": nil,
		"Docker's json-file": func(line string) string {
			return `{"log":` + quoted(line+"\n") + `,"stream":"stdout","time":"2026-11-23T09:48:33.759Z"}`
		},
		"Fluent Bit": around(`{"date":1795427313.7,"stream":"stdout","logtag":"F","log":`, `,"kubernetes":{"pod_name":"a"}}`),
		"Vector":     around(`{"host":"a","message":`, `,"timestamp":"2026-11-23T09:48:33.759Z"}`),
		"journalctl -o json": func(line string) string {
			return `{"_PID":"7","MESSAGE":` + quoted(line) + `,"__REALTIME_TIMESTAMP":"1795427313759000"}`
		},
		"Google Cloud": around(`{"severity":"INFO","textPayload":`, `}`),
		"Docker to Fluent Bit to a file": func(line string) string {
			return `{"log":` + quoted("2026-11-23T09:48:33.759Z stdout F "+line) + `}`
		},
	}
	for name, before := range map[string]string{
		"containerd":                       "2026-05-26T01:50:01.000007919Z stdout F ",
		"CRI-O":                            "2026-05-26T01:50:01.000007919+02:00 stderr F ",
		"containerd with tags":             "2026-05-26T01:50:01.000007919Z stdout F:a ",
		"docker logs --timestamps":         "2026-05-26T01:50:01.000007919Z ",
		"kubectl logs --prefix":            "[pod/nginx-7c5ddbdf54-x2x4z/nginx] ",
		"kubectl logs --prefix and times":  "[pod/nginx-7c5ddbdf54-x2x4z/nginx] 2026-05-26T01:50:01.000007919Z ",
		"docker compose logs":              "nginx-1  | ",
		"docker compose logs, colours":     "\x1b[36mnginx-1  | \x1b[0m",
		"docker compose logs --timestamps": "nginx-1  | 2026-05-26T01:50:01.000007919Z ",
		"docker service logs":              "web.1.k3v9@node-1    | ",
		"RFC 3164":                         "<190>May  6 01:50:01 web-1 nginx: ",
		"RFC 3164 without a host":          "<190>May 26 01:50:01 nginx: ",
		"RFC 5424":                         "<190>1 2026-05-26T01:50:01.003Z web-1 nginx 12 - - ",
		"RFC 5424 with data":               `<190>1 2026-05-26T01:50:01.003Z web-1 nginx - ID47 [a@1 b="c\]d"][e@1 f="g"] ` + "\ufeff",
		"rsyslog":                          "May 26 01:50:01 web-1 nginx[123]: ",
		"rsyslog's new format":             "2026-05-26T01:50:01.123456+00:00 web-1 nginx[123]: ",
		"journalctl -o short-precise":      "May 26 01:50:01.123456 web-1 nginx[123]: ",
		"journalctl -o short-iso":          "2026-05-26T01:50:01+0000 web-1 nginx[123]: ",
		"Docker's syslog":                  "<30>May 26 01:50:01 web-1 docker/8f1b2c[12]: ",
		"Heroku":                           "2026-05-26T01:50:01.123456+00:00 app[web.1]: ",
	} {
		prefixes[name] = func(line string) string { return before + line }
	}
	for name, with := range prefixes {
		for of, payload := range payloads {
			content := strings.Repeat(payload.line+"\n", 3)
			if with != nil {
				content = strings.Repeat("a line of another program\n", 40) + strings.Repeat(with(payload.line)+"\n", 3)
			}
			got, stats, err := all(t, accesslog.Options{Paths: []string{write(t, "log", content)}, Want: []accesslog.Attribute{accesslog.Client, accesslog.PathOnly}})
			want := slices.Repeat([]string{"498729h48m33s " + payload.client + " /a"}, 3)
			if err != nil || !slices.Equal(got, want) || stats.NoAddress > 0 || stats.Broken > 0 && with == nil {
				t.Errorf("%s, %s: %q, %+v, %v", name, of, got, stats, err)
			}
		}
	}
}

// TestWrappedPipe: in a pipe, the first line alone could be read as JSON with a time and nothing else.
func TestWrappedPipe(t *testing.T) {
	line := `192.0.2.7 - - [23/Nov/2026:09:48:33 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl"`
	docker := `{"log":"starting\n","stream":"stdout","time":"2026-11-23T09:48:33Z"}` + "\n"
	pipe := io.MultiReader(strings.NewReader(docker), strings.NewReader(`{"log":`+quoted(line+"\n")+`,"stream":"stdout","time":"2026-11-23T09:48:33Z"}`+"\n"))
	if got, stats, err := all(t, accesslog.Options{Paths: []string{"-"}, Stdin: pipe, Want: []accesslog.Attribute{accesslog.Client}}); err != nil || len(got) != 1 || stats.Broken != 1 {
		t.Errorf("%q, %+v, %v", got, stats, err)
	}
}

// TestNoAddress counts clients that are no addresses, and keeps them.
func TestNoAddress(t *testing.T) {
	line := func(client string) string {
		return client + ` - - [23/Nov/2026:09:48:33 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl"` + "\n"
	}
	addresses := line("192.0.2.7") + line("::1") + line("fe80::1%eth0") + line("::ffff:192.0.2.1") + line("-")
	for name, c := range map[string]struct {
		content, format string
		want            uint64
	}{
		"addresses":                {content: addresses},
		"others":                   {content: addresses + line("a.example.com") + line("unix:") + line("192.0.2.256") + line("192.0.2.7, 192.0.2.8") + line("1.2.3"), want: 5},
		"an unknown prefix":        {content: line("a b 192.0.2.7") + line("c d 192.0.2.8"), want: 2},
		"a format with the prefix": {content: line("a:80 192.0.2.7"), format: `$host:$server_port $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`},
		"a format with a time":     {content: `2026-11-23T09:48:33Z 192.0.2.7 "GET / HTTP/1.1"` + "\n", format: `$time_iso8601 $remote_addr "$request"`},
	} {
		_, stats, err := all(t, accesslog.Options{Paths: []string{write(t, "log", c.content)}, Format: c.format, Want: []accesslog.Attribute{accesslog.Client}})
		if err != nil || stats.Broken > 0 || stats.NoAddress != c.want {
			t.Errorf("%s: %+v, %v; want %d", name, stats, err, c.want)
		}
	}
}

// TestDurations reads the durations that servers write, and leaves other numbers out.
func TestDurations(t *testing.T) {
	combined := `192.0.2.7 - - [23/Nov/2026:09:48:33 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl"`
	caddy := func(duration string) string {
		return `{"ts":1795427313,"request":{"client_ip":"192.0.2.7","method":"GET","uri":"/a"},"duration":` + duration + `}`
	}
	const listed = `$remote_addr [$time_local] "$request" $upstream_addr $upstream_response_time $request_time`
	for name, c := range map[string]struct {
		line, format string
		want         string // the start, and the duration
		tooEarly     uint64
	}{
		"nginx":                   {line: combined + ` 0.250`, want: "498729h48m32.75s 250"},
		"Apache's %D":             {line: combined + ` 250000`, want: "498729h48m33s ?"},
		"Apache's %T":             {line: combined + ` 0`, want: "498729h48m33s ?"},
		"Apache's %D and %T":      {line: combined + ` 0/250000`, want: "498729h48m33s ?"},
		"Apache's %I and %O":      {line: combined + ` 12 250000`, want: "498729h48m33s ?"},
		"%D behind common":        {line: combined[:strings.Index(combined, ` "-"`)] + ` 250000`, want: "498729h48m33s ?"},
		"nginx's main":            {line: combined + ` "192.0.2.9, 192.0.2.8"`, want: "498729h48m33s ?"},
		"ingress-nginx":           {line: combined + ` 120 0.250 [default-web-80] [] 10.0.0.1:80, 10.0.0.2:80 0, 12 0.000, 0.250 502, 200 5a8c7d1e`, want: "498729h48m32.75s 250"},
		"microseconds by a word":  {line: combined + ` 250000`, format: `%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% - - [%EMIT_TIME(%d/%b/%Y:%H:%M:%S %z)%] "%REQUEST_LINE%" %RESPONSE_CODE% %BYTES_SENT% "-" "%REQ(USER-AGENT)%" %DURATION(us)%`, want: "498729h48m32.75s 250"},
		"seconds that are others": {line: combined + ` 250000`, format: `$remote_addr - - [$time_local] "$request" $status $body_bytes_sent "-" "$http_user_agent" $request_time`, want: "498660h21m53s 250000000", tooEarly: 1},
		"Caddy":                   {line: caddy("0.25"), want: "498729h48m32.75s 250"},
		"no list":                 {line: `192.0.2.7 [23/Nov/2026:09:48:33 +0000] "GET / HTTP/1.1" 10.0.0.1:80 0.004 0.250`, format: listed, want: "498729h48m32.75s 250"},
		"no upstream":             {line: `192.0.2.7 [23/Nov/2026:09:48:33 +0000] "GET / HTTP/1.1" - - 0.250`, format: listed, want: "498729h48m32.75s 250"},
	} {
		got, stats, err := all(t, accesslog.Options{Paths: []string{write(t, "log", c.line+"\n")}, Format: c.format, Want: []accesslog.Attribute{accesslog.Duration}})
		if err != nil || len(got) != 1 || got[0] != c.want || stats.TooEarly != c.tooEarly {
			t.Errorf("%s: %q, %+v, %v; want %s", name, got, stats, err, c.want)
		}
	}
}
