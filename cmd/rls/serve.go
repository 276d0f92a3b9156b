package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/daemon"
)

// logConsole is the value of log.format for people.
const logConsole = "console"

type serveCmd struct{}

func serve(c *cli) *cobra.Command {
	return leaf("serve", "Serve until SIGTERM. The default command.", func() error { return serveCmd{}.Run(c) })
}

// Run serves until SIGTERM or SIGINT. A second one ends the process at once.
// SIGHUP reads rules and tiers again.
func (serveCmd) Run(c *cli) error {
	s, err := config.LoadSettings(c.Config, os.Environ())
	if err != nil {
		// Everything that is wrong at once: what can be read of the settings is
		// enough to look at rules and tiers as well.
		_, loadErr := config.Load(s)
		return invalid(err, loadErr)
	}
	log, err := newLogger(s.Log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be synced
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// From the first signal on, the next one has its usual effect.
	context.AfterFunc(ctx, stop)

	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	reload := make(chan struct{})
	go func() {
		for {
			select {
			case <-hup:
			case <-ctx.Done():
				return
			}
			select {
			case reload <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()

	o := daemon.Options{Version: version, Log: log, Reload: reload}
	if s.Log.Format == logConsole {
		o.Ready = func(r daemon.Running) { welcome(os.Stderr, s, r) }
	}
	err = daemon.Run(ctx, s, o)
	if problems := config.Problems(nil); errors.As(err, &problems) {
		return invalid(err)
	}
	return err
}

// newLogger logs to standard error.
func newLogger(s config.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(s.Level)
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(level)
	c.Encoding = s.Format
	c.DisableStacktrace = true
	c.DisableCaller = true
	c.Sampling = nil // only denials are many, and they are sampled where they are logged
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	c.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	if s.Format == logConsole {
		if coloursOf(os.Stderr) {
			c.EncoderConfig.EncodeLevel = zapcore.LowercaseColorLevelEncoder
		}
		c.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		c.EncoderConfig.ConsoleSeparator = "  "
	}
	return c.Build()
}

// welcome tells a person at a terminal what runs and what to type next.
func welcome(w io.Writer, s config.Settings, r daemon.Running) {
	fmt.Fprintf(w, "\nslidegate %s\n\n", version)
	secured := "plain text"
	if s.GRPC.TLS.On() {
		secured = "TLS over TCP"
	}
	fmt.Fprintf(w, "  gRPC for Envoy   %s   transport %s, %s\n", strings.Join(r.GRPC, ", "), s.GRPC.Transport, secured)
	if r.HTTP != "" {
		fmt.Fprintf(w, "  HTTP             %s   /healthcheck, POST /json\n", r.HTTP)
	}
	if r.Admin != "" {
		fmt.Fprintf(w, "  admin            %s   /metrics, /rlconfig\n", r.Admin)
	}
	fmt.Fprintf(w, "  store            %s\n\n", s.Store.Type)
	for _, line := range r.Describe() {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if r.HTTP != "" && s.Rules.Path == "" {
		_, port, _ := strings.Cut(r.HTTP[strings.LastIndex(r.HTTP, ":"):], ":")
		fmt.Fprintf(w, `
Ask what Envoy would ask, 101 times within a minute (the key's tier allows 100):

  for i in $(seq 101); do curl -s -o /dev/null -w '%%{http_code} ' localhost:%s/json -d \
    '{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":"demo-free"}]}]}'; done; echo

Then give it to Envoy: envoy -c envoy/ratelimit.yaml, explained in docs/start.md.
`, port)
	}
	fmt.Fprintln(w)
}
