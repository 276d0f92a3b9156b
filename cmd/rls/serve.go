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

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/daemon"
	"github.com/slidegate/slidegate/internal/operate/logs"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// ballast is the size of memory that the process reserves and never touches, so it takes none of
// the machine. The garbage collector runs each time the heap has doubled, and without ballast that
// is every few MB.
const ballast = 16 << 20

func serveOf(c *cli) *cobra.Command {
	return leaf("serve", "Serve until SIGTERM. The default command.", "", func() error { return serve(c) })
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
	log, err := logs.New(s.Log, coloursOf(os.Stderr))
	if err != nil {
		return err
	}
	audit, err := logs.New(logs.AtInfo(s.Log), coloursOf(os.Stderr))
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

	o := daemon.Options{Version: this.Version, Commit: this.Commit, Log: log, Audit: audit, Reload: hup, LimitMemory: true}
	if s.Log.Format == logs.Console && l.Reading == nil {
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
