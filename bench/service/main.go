// Command service measures how much of a bare gRPC server's throughput the service
// keeps. "make bench" runs it:
//
//	go -C bench run ./service -rls ../bin/rls [-envoy FILE] [-rounds N] [-requests N] [-only REGEXP] [-before FILE]
//
// Absolute figures depend on the machine, so the result is ratios from one run. Two
// servers answer the same request with the same message:
//
//   - bare: grpc-go with the server options of the service and the stock codec.
//     It reads an answer of the service from a file and marshals it for every call.
//     It decides nothing.
//   - rls, with its default settings, on the embedded store or on Redis, and with
//     tiers from a file or from PostgreSQL. Only the comparison of transports sets
//     the transport.
//
// The table of tiers compares rls with tiers to an rls without tiers.
//
// h2load loads them from outside, one after the other in every round. Each ratio is
// taken within a round, so that a slow machine slows both servers. Each server is a
// process.
//
// A server with wrong answers must not win. The program compares samples of the
// answers before and after every measurement. h2load's counts of responses and bytes
// must match, and rls must count the intended decisions.
//
// With -before, an older binary of the service is measured with the new one, on
// each store. "make bench-before" builds it from a commit.
//
// The program itself makes the calls of a single caller.
//
// With -goals ("make goals") it measures the goals of the way to Redis instead, and says which are met.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"

	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/bench/internal/program"
)

func main() { program.Main("service", run) }

// options are the flags.
type options struct {
	rls      string
	before   string // empty: no older binary
	envoy    string
	rounds   int
	requests int
	only     *regexp.Regexp
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := program.NewFlags("service")
	var o options
	flags.RLS(&o.rls)
	flags.StringVar(&o.before, "before", "", "an older `binary` of the service, to compare this one with; empty: none")
	flags.StringVar(&o.envoy, "envoy", "", "the `binary` of Envoy; empty: what SLIDEGATE_TEST_ENVOY names, else envoy in PATH")
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is measured; the table shows medians")
	flags.IntVar(&o.requests, "requests", 50_000, "requests of one measurement")
	flags.Only(&o.only, "measure only what matches this `regexp`, such as store/memory/allowed/1")
	frames := flags.Bool("frames", false, "with -bare: read frames instead of running a gRPC server")
	showGoals := flags.Bool("goals", false, "measure only the goals of the way to Redis, next to envoyproxy/ratelimit and a frame reader")
	bare := flags.String("bare", "", "serve an answer, `METHOD=FILE`; what the benchmark runs as its bare server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *bare != "" {
		return serveBare(ctx, *bare, *frames, out)
	}
	if o.rounds < 1 || o.requests < 1000 {
		return errors.New("-rounds must be at least 1 and -requests at least 1000")
	}
	if _, err := exec.LookPath(h2load); err != nil {
		return fmt.Errorf("%s is not in PATH: install it (Debian: apt-get install nghttp2-client)", h2load)
	}
	if *showGoals {
		return reportGoals(ctx, o, out, progress)
	}
	r, err := measure(ctx, o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, grpc-go %s; %s -c %d -m %d; medians of %d rounds of %d requests\n\n",
		program.Machine("server and load"), grpc.Version, h2load, connections, streams, o.rounds, o.requests)
	for _, m := range r.comparisons {
		m.write(out)
	}
	r.envoy.write(out)
	r.alone.write(out)
	return nil
}
