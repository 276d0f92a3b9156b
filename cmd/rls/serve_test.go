package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/daemon"
)

// TestWelcome starts with several settings. The greeting describes the ports, and its
// commands fit their addresses. It has no command that cannot work.
func TestWelcome(t *testing.T) {
	g, err := config.Load(settings.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		change  func(*settings.Settings, *daemon.Running)
		want    []string
		without []string
	}{
		{"default", func(*settings.Settings, *daemon.Running) {}, []string{"\n  make envoy-run RLS=127.0.0.1:8081 APP=127.0.0.1:8080\n", " 127.0.0.1:8080/json "}, []string{"warning"}},
		{"other ports", func(_ *settings.Settings, r *daemon.Running) {
			r.GRPC, r.HTTP = []string{"unix:///s", "10.0.0.1:9091"}, "[::1]:9090"
		}, []string{"\n  make envoy-run RLS=10.0.0.1:9091 APP=[::1]:9090\n", " [::1]:9090/json "}, nil},
		{"a socket", func(_ *settings.Settings, r *daemon.Running) { r.GRPC = []string{"unix:///s"} }, []string{"/json"}, []string{"envoy-run"}},
		{"a port and a socket", func(_ *settings.Settings, r *daemon.Running) { r.GRPC = append(r.GRPC, "unix:///s") }, []string{"  gRPC for Envoy   [::]:8081, unix:///s   transport unary, plain text\n"}, nil},
		{"TLS", func(s *settings.Settings, _ *daemon.Running) {
			s.GRPC.TLS.CertFile, s.GRPC.Transport = "c", settings.TransportStandard
		}, []string{"/json", "  gRPC for Envoy   [::]:8081   transport standard, TLS over TCP\n"}, []string{"envoy-run"}},
		{"TLS on sockets", func(s *settings.Settings, r *daemon.Running) {
			s.GRPC.TLS.CertFile, s.GRPC.TLS.UnixSockets, r.GRPC = "c", true, []string{"unix:///s"}
		}, []string{"  gRPC for Envoy   unix:///s   transport unary, TLS\n"}, []string{"envoy-run"}},
		{"pages of the reference", func(s *settings.Settings, _ *daemon.Running) { s.DropIn.Pages = true }, []string{"127.0.0.1:6070   /stats, /rlconfig\n"}, []string{"/metrics"}},
		{"no HTTP", func(_ *settings.Settings, r *daemon.Running) { r.HTTP = "" }, nil, []string{"/json -d", "envoy-run"}},
		{"own rules", func(s *settings.Settings, _ *daemon.Running) { s.Rules.Path = "rules.yaml" }, nil, []string{"demo-free", "envoy-run"}},
		{"own tiers", func(s *settings.Settings, _ *daemon.Running) { s.Tiers.Path = "tiers.yaml" }, nil, []string{"demo-free", "envoy-run"}},
		{"no store", func(_ *settings.Settings, r *daemon.Running) { r.StoreMissing = "Redis does not answer" }, []string{"warning: the store: Redis does not answer\n"}, nil},
	} {
		s, r := settings.Default(), daemon.Running{GRPC: []string{"[::]:8081"}, HTTP: "[::]:8080", Admin: "127.0.0.1:6070", Rules: g.Rules}
		tt.change(&s, &r)
		var out strings.Builder
		welcome(&out, false, s, r)
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: want %q in\n%s", tt.name, want, out.String())
			}
		}
		for _, other := range tt.without {
			if strings.Contains(out.String(), other) {
				t.Errorf("%s: want no %q in\n%s", tt.name, other, out.String())
			}
		}
	}
}

// TestLogFormats reads the lines that each format writes. A pipeline for envoyproxy/ratelimit
// parses those of the format reference.
func TestLogFormats(t *testing.T) {
	for format, want := range map[string]string{
		"json":      `^{"level":"warn","ts":"TIME","msg":"late","node":"a"}\n{"level":"error","ts":"TIME","msg":"broken"}\n$`,
		"reference": `^{"level":"warning","@timestamp":"TIME","@message":"late","node":"a"}\n{"level":"error","@timestamp":"TIME","@message":"broken"}\n$`,
		"console":   `^\d\d:\d\d:\d\d\.\d\d\d  warn  late  {"node": "a"}\n.*  error  broken\n$`,
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr := os.Stderr
		os.Stderr = write
		log, err := newLogger(settings.Log{Level: "info", Format: format})
		os.Stderr = stderr
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("unseen")
		log.Warn("late", zap.String("node", "a"))
		log.Error("broken")
		_ = write.Close()
		got, err := io.ReadAll(read)
		if err != nil {
			t.Fatal(err)
		}
		want = strings.ReplaceAll(want, "TIME", `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d)`)
		if !regexp.MustCompile(want).Match(got) {
			t.Errorf("%s: got\n%swant\n%s", format, got, want)
		}
	}
}
