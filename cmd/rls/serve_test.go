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
	"github.com/slidegate/slidegate/internal/operate/logs"
)

// TestWelcome starts with several settings. The greeting describes the ports and the store.
func TestWelcome(t *testing.T) {
	g, err := config.Load(settings.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*settings.Settings, *daemon.Running)
		want   string
	}{
		{"default", func(*settings.Settings, *daemon.Running) {}, "/docs/start.md\n"},
		{"a port and a socket", func(_ *settings.Settings, r *daemon.Running) { r.GRPC = append(r.GRPC, "unix:///s") }, "  gRPC for Envoy   [::]:8081, unix:///s   transport unary, plain text\n"},
		{"TLS", func(s *settings.Settings, _ *daemon.Running) {
			s.GRPC.TLS.CertFile, s.GRPC.Transport = "c", settings.TransportStandard
		}, "  gRPC for Envoy   [::]:8081   transport standard, TLS over TCP\n"},
		{"TLS on sockets", func(s *settings.Settings, r *daemon.Running) {
			s.GRPC.TLS.CertFile, s.GRPC.TLS.UnixSockets, r.GRPC = "c", true, []string{"unix:///s"}
		}, "  gRPC for Envoy   unix:///s   transport unary, TLS\n"},
		{"pages of the reference", func(s *settings.Settings, _ *daemon.Running) { s.DropIn.Pages = true }, "127.0.0.1:6070   /stats, /rlconfig\n"},
		{"no store", func(_ *settings.Settings, r *daemon.Running) { r.StoreMissing = "Redis does not answer" }, "warning: the store: Redis does not answer\n"},
	} {
		s, r := settings.Default(), daemon.Running{GRPC: []string{"[::]:8081"}, HTTP: "[::]:8080", Admin: "127.0.0.1:6070", Rules: g.Rules}
		tt.change(&s, &r)
		var out strings.Builder
		if welcome(&out, false, s, r); !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: want %q in\n%s", tt.name, tt.want, out.String())
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
		log, err := logs.New(settings.Log{Level: "info", Format: format}, coloursOf(os.Stderr))
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
