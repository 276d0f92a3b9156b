package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/daemon"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// The values of log.format.
const (
	logJSON      = "json"
	logConsole   = "console"   // for a terminal
	logReference = "reference" // JSON with the keys of envoyproxy/ratelimit
)

// ballast is the size of memory that the process reserves and never touches, so it takes none of
// the machine. The garbage collector runs each time the heap has doubled, and without ballast that
// is every few MB.
const ballast = 16 << 20

func serveOf(c *cli) *cobra.Command {
	return leaf("serve", "Serve until SIGTERM. The default command.", func() error { return serve(c) })
}

// serve serves until SIGTERM or SIGINT. A second signal ends the process at once. On SIGHUP the
// service reads rules and tiers again.
func serve(c *cli) error {
	l, err := c.load()
	s, ruleErr := l.Settings, l.needRules()
	if err != nil || ruleErr != nil {
		// The valid part of the settings is enough to check rules and tiers too. So the
		// operator sees all problems at once.
		var loadErr error
		if !l.rulesMissing() {
			_, loadErr = config.Load(s)
		}
		return invalid(err, ruleErr, loadErr)
	}
	log, err := newLogger(s.Log)
	if err != nil {
		return err
	}
	audit, err := newLogger(atInfo(s.Log))
	if err != nil {
		return err
	}
	if err := l.announce(log); err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be synced
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// After the first signal, the next one has its default effect: it ends the process.
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

	o := daemon.Options{Version: this.Version, Commit: this.Commit, Log: log, Audit: audit, Reload: reload, LimitMemory: true}
	if s.Log.Format == logConsole && l.Reading == nil {
		o.Ready = func(r daemon.Running) { welcome(os.Stderr, coloursOf(os.Stderr), s, r) }
	}
	reserved := make([]byte, ballast)
	err = daemon.Run(ctx, s, o)
	runtime.KeepAlive(reserved)
	if problems := strict.Problems(nil); errors.As(err, &problems) {
		return invalid(err)
	}
	return err
}

// atInfo returns the settings of a log whose lines count at any log.level: if that has fewer lines,
// those at info are there too.
func atInfo(s settings.Log) settings.Log {
	s.Level = zap.InfoLevel.String()
	return s
}

// newLogger returns a logger that writes to standard error.
func newLogger(s settings.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(s.Level)
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(level)
	c.Encoding = s.Format
	c.DisableStacktrace = true
	c.DisableCaller = true
	c.Sampling = nil // package daemon samples frequent messages, such as denials
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	c.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	if s.Format == logReference {
		c.Encoding = logJSON
		c.EncoderConfig.TimeKey, c.EncoderConfig.MessageKey = "@timestamp", "@message"
		c.EncoderConfig.EncodeLevel = referenceLevel
	}
	if s.Format == logConsole {
		if coloursOf(os.Stderr) {
			c.EncoderConfig.EncodeLevel = zapcore.LowercaseColorLevelEncoder
		}
		c.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		c.EncoderConfig.ConsoleSeparator = "  "
	}
	return c.Build()
}

// referenceLevel writes a level as envoyproxy/ratelimit does.
func referenceLevel(l zapcore.Level, e zapcore.PrimitiveArrayEncoder) {
	if l == zapcore.WarnLevel {
		e.AppendString("warning")
		return
	}
	zapcore.LowercaseLevelEncoder(l, e)
}

// welcome writes what runs for a person at a terminal.
func welcome(w io.Writer, paint terminal.Colours, s settings.Settings, r daemon.Running) {
	fmt.Fprintf(w, "\n%s %s\n\n", paint.Bold("slidegate"), this.Version)
	secured := "plain text"
	switch {
	case s.GRPC.TLS.UnixSockets:
		secured = "TLS"
	case s.GRPC.TLS.On():
		secured = "TLS over TCP"
	}
	fmt.Fprintf(w, "  gRPC for Envoy   %s   transport %s, %s\n", strings.Join(r.GRPC, ", "), s.GRPC.Transport, secured)
	if r.HTTP != "" {
		fmt.Fprintf(w, "  HTTP             %s   /healthcheck, POST /json\n", r.HTTP)
	}
	if r.Admin != "" {
		paths := "/ (console), /metrics, /rlconfig"
		if s.DropIn.Pages {
			paths = "/stats, /rlconfig"
		}
		fmt.Fprintf(w, "  admin            %s   %s\n", r.Admin, paths)
	}
	fmt.Fprintf(w, "  store            %s\n", s.Store.Type)
	if r.StoreMissing != "" {
		fmt.Fprintf(w, "  %s %s\n", paint.Yellow("warning: the store:"), r.StoreMissing)
	}
	fmt.Fprintln(w)
	for _, line := range r.Describe() {
		fmt.Fprintf(w, "  %s\n", line)
	}
	fmt.Fprintf(w, "\nRead on in %s\n\n", docsPage("start.md"))
}
