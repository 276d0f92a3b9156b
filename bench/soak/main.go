// Command soak loads a service for a long time, over connections that open and close in
// every way. It fails if a call fails that should not, or if the service grows:
//
//	go -C bench run ./soak -rls ../bin/rls [-for 1h] [-every 1m] [-rate N] [-transport NAME] [-tls]
//
// # What it does
//
// The service has the embedded store and max_connection_age of 30 s. It has two addresses for
// calls: TCP, with TLS if -tls is set, and a unix socket.
//
// Half of the calls use eight lasting connections of grpc-go's client, as Envoy does. The
// service ends them every 30 s, and the client replaces them. No call may fail for that. The
// other calls use connections that live for a second or so, of these kinds:
//
//   - proper: makes some calls, one after the other and several at once. Then it closes cleanly.
//   - hasty: cancels calls, or gives them a deadline of a millisecond or two.
//   - reset: resets streams before, within and after the message. Then it makes a call that the
//     service must answer.
//   - narrow: reads answers through a window of 16 bytes.
//   - cut: closes the connection while calls are under way, with half a message sent.
//   - old: stays until the server sends GOAWAY, and always has a call under way.
//   - silent: sends nothing, or only the preface.
//
// Calls are rate-limit requests, allowed and denied ones, with one descriptor and with three.
// Others are checks of an API key. Each address also gets a health check once a second.
//
// # What fails
//
// A call with a wrong answer. A call that its caller has cancelled or cut off may end in
// any way, and is counted apart.
//
// Growth, in the last half of the time: the medians of its two halves may differ by a
// tenth and a little more (see growth.go) in goroutines, open files, live heap
// and resident memory. When all clients are gone, goroutines and open files must be
// what they were before they came. Then the service must end by SIGTERM with exit
// code 0, and have logged no warning and no error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slidegate/slidegate/bench/internal/program"
)

func main() { program.Main("soak", run) }

// options are the flags.
type options struct {
	rls       string
	lasts     time.Duration
	every     time.Duration
	rate      int // calls a second
	transport string
	tls       bool
}

func run(ctx context.Context, args []string, out, _ io.Writer) error {
	flags := program.NewFlags("soak")
	var o options
	flags.RLS(&o.rls)
	flags.DurationVar(&o.lasts, "for", time.Hour, "how long the service is asked")
	flags.DurationVar(&o.every, "every", time.Minute, "how often a line is written")
	flags.IntVar(&o.rate, "rate", 300, "calls a `second`, health checks not counted")
	flags.StringVar(&o.transport, "transport", "", "grpc.transport; empty: the default of the service")
	flags.BoolVar(&o.tls, "tls", false, "speak TLS on TCP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case o.rate < 10:
		return errors.New("-rate must be at least 10")
	case o.every <= 0 || o.lasts < o.every:
		return errors.New("-for must be at least -every, which must be more than 0s")
	}
	transport := o.transport
	if transport == "" {
		transport = "by default"
	}
	fmt.Fprintf(out, "%s; transport %s, TLS %t; %d calls a second for %v\n\n", program.Machine("service and load"), transport, o.tls, o.rate, o.lasts)
	failures, err := soak(ctx, o, out)
	if err != nil {
		return err
	}
	for _, f := range failures {
		fmt.Fprintln(out, "FAILED", f)
	}
	if n := len(failures); n > 0 {
		return fmt.Errorf("%d requirements are not met", n)
	}
	return nil
}
