package envoyconfig

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/envoy"
)

// TestShapes: without options the output is the file, and each file is a shape.
func TestShapes(t *testing.T) {
	files, err := fs.Glob(envoy.Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Shapes {
		want, err := envoy.Files.ReadFile(s.File)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Render(Options{Shape: s.Name})
		if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
			t.Errorf("%s: %v (-file +got)\n%s", s.Name, err, diff)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return f == s.File })
	}
	if len(files) > 0 {
		t.Errorf("no shape has %v", files)
	}
}

// TestRender: each option changes its places, and nothing else but comments.
func TestRender(t *testing.T) {
	tcp := Options{Listener: "[::1]:88", Admin: ":89", Upstream: "shop.example:90", RLS: "limits.example:91", Domain: "shop"}
	for _, s := range Shapes {
		o := tcp
		o.Shape = s.Name
		replace := []string{
			"{address: 0.0.0.0, port_value: 10000}", `{address: "::1", port_value: 88}`, "{address: 127.0.0.1, port_value: 9901}", `{address: "127.0.0.1", port_value: 89}`,
			"{address: app, port_value: 8080}", `{address: "shop.example", port_value: 90}`, "{address: rls, port_value: 8081}", `{address: "limits.example", port_value: 91}`,
			"domain: edge\n", "domain: \"shop\"\n", "sni: rls", `sni: "limits.example"`, "exact: rls", `exact: "limits.example"`,
		}
		if s.Name == "sidecar" {
			o.RLS = "unix:///srv/rls.sock"
			replace = append(replace, "/run/rls/grpc.sock}", `"/srv/rls.sock"}`, "{address: 127.0.0.1, port_value: 8000}", `{address: "shop.example", port_value: 90}`,
				"upstream\n    type: STATIC", "upstream\n    type: STRICT_DNS")
		}
		file, err := Render(Options{Shape: s.Name})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Render(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(bare(strings.NewReplacer(replace...).Replace(file)), bare(got)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", s.Name, diff)
		}
		for _, old := range []string{"app:8080", "rls:8081", ":10000", "/run/rls", "127.0.0.1:8000"} {
			if strings.Contains(got, old) {
				t.Errorf("%s: a comment still has %s", s.Name, old)
			}
		}
		if err := yaml.Unmarshal([]byte(got), new(yaml.Node)); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// bare returns a configuration without its comments.
func bare(text string) string {
	return regexp.MustCompile(`(?m)^ *#.*\n`).ReplaceAllString(text, "")
}

// TestSocket: Envoy takes a socket only in a cluster without DNS.
func TestSocket(t *testing.T) {
	got, err := Render(Options{RLS: "unix:///run/rls.sock", Upstream: "unix:///run/app.sock"})
	if err != nil || strings.Count(got, "type: STATIC\n") != 2 || strings.Contains(got, "STRICT_DNS\n") || !strings.Contains(got, `pipe: {path: "/run/app.sock"}`) {
		t.Errorf("got %v\n%s", err, got)
	}
}

// TestNames: the name of a host is a text to Envoy, although YAML has another meaning for it.
func TestNames(t *testing.T) {
	got, err := Render(Options{Shape: "tls", RLS: "yes:8081", Upstream: "0x10:80"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{address: "yes", port_value: 8081}`, `sni: "yes"`, `exact: "yes"`, `{address: "0x10", port_value: 80}`} {
		if !strings.Contains(got, want) {
			t.Errorf("want %s in\n%s", want, got)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		Options
		want string
	}{
		{Options{Shape: "mesh"}, `--shape: expected one of ratelimit, sidecar, one-hop, authorization, in-flight, budgets, budgets-1.38, budgets-1.36, budgets-one-hop, mcp, tls, not "mesh"`},
		{Options{Listener: "localhost:80"}, `--listener: "localhost:80": expected IP:PORT or :PORT`},
		{Options{Admin: "unix:///admin"}, `--admin-listener: "unix:///admin": expected HOST:PORT`},
		{Options{Upstream: "app"}, `--upstream: "app": expected HOST:PORT`},
		{Options{Upstream: "app:0"}, `--upstream: "app:0": expected HOST:PORT`},
		{Options{Upstream: "a}\nb:80"}, `--upstream: "a}\nb:80": "a}\nb" is not the name of a host`},
		{Options{RLS: "unix://run\n"}, `--rls: "unix://run\n": expected the path of a socket: unix:///PATH`},
		{Options{Shape: "sidecar", RLS: "rls:8081"}, `--rls: "rls:8081": this shape calls a unix socket: write unix:///PATH`},
	} {
		if _, err := Render(tt.Options); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: got %v, want %s", tt.Options, err, tt.want)
		}
	}
}

// TestHardening: each line without which a limit or the proxy can be attacked has a comment above.
func TestHardening(t *testing.T) {
	line := regexp.MustCompile(`^ *-? ?\{?(admin:|overload_manager:|per_connection_buffer_limit_bytes:|use_remote_address:|normalize_path:|headers_with_underscores_action:|` +
		`idle_timeout:|request_headers_timeout:|max_stream_duration:|remove_on_match:|response_headers_to_remove:|name: ambiguous-path|append:|timeout: 0|failure_mode_|` +
		`rate_limited_as_resource_exhausted:|status_on_error:|allowed_headers:|encode_raw_headers:|validate_mutations:|connection_keepalive:|circuit_breakers:|health_checks:|` +
		`no_traffic_interval:|healthy_panic_threshold:|alpn_protocols:|match_typed_subject_alt_names:)`)
	for _, s := range Shapes {
		text, err := Render(Options{Shape: s.Name})
		if err != nil {
			t.Fatal(err)
		}
		above, found := "", 0
		for text := range strings.Lines(text) {
			if m := line.FindStringSubmatch(text); m != nil && !strings.Contains(text, "timeout: 0.5s") {
				found++
				if !strings.HasPrefix(strings.TrimSpace(above), "#") && !strings.Contains(above, "request_trailers_mutations") {
					t.Errorf("%s: %s has no comment", s.File, m[1])
				}
			}
			above = text
		}
		if found < 18 {
			t.Errorf("%s: %d lines of hardening", s.File, found)
		}
	}
}
