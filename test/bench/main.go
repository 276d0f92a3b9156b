// Command bench measures how much of a bare gRPC server's throughput the service
// keeps. "make bench" runs it:
//
//	go run ./test/bench -rls bin/rls [-envoy FILE] [-rounds N] [-requests N] [-only REGEXP] [-before FILE]
//
// Absolute figures say more about a machine than about the service, so the
// result is ratios from one run. Two servers answer the same question with the
// same message:
//
//   - bare: grpc-go with the server options of the service and the stock codec.
//     Its answer is one that the service gave, read from a file and marshalled
//     for every call. It decides nothing.
//   - rls, with its default settings, on the embedded store or on Redis, and with
//     tiers from a file or from PostgreSQL. So its transport is the default too,
//     but where transports are compared.
//
// What tiers cost is told by rls without any: in that table it is what the others are
// compared with.
//
// h2load asks them from outside, one after the other in every round, and each
// ratio is taken within a round, so that what slows the whole machine for a
// while slows both. All servers are processes of their own.
//
// A server that answers something else must not win: samples of the answers are
// compared before and after every measurement, h2load's counts of responses and
// bytes must match, and the decisions that rls counts must be the ones intended.
//
// With -before, an older binary of the service is measured beside the new one, on
// each store. "make bench-before" builds it from a commit.
//
// One caller alone, and what becomes of a source of tiers while somebody makes up
// keys, is measured by callers of this program's own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"

	"google.golang.org/grpc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

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
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.rls, "rls", "bin/rls", "the `binary` of the service")
	flags.StringVar(&o.before, "before", "", "an older `binary` of the service, to compare this one with; empty: none")
	flags.StringVar(&o.envoy, "envoy", "", "the `binary` of Envoy; empty: what SLIDEGATE_TEST_ENVOY names, else envoy in PATH")
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is measured; the table shows medians")
	flags.IntVar(&o.requests, "requests", 50_000, "requests of one measurement")
	only := flags.String("only", "", "measure only what matches this `regexp`, such as store/memory/allowed/1")
	bare := flags.String("bare", "", "serve an answer, `METHOD=FILE`; what the benchmark runs as its bare server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *bare != "" {
		return serveBare(ctx, *bare, out)
	}
	var err error
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.rounds < 1 || o.requests < 1000:
		return errors.New("-rounds must be at least 1 and -requests at least 1000")
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if _, err := exec.LookPath(h2load); err != nil {
		return fmt.Errorf("%s is not in PATH: install it (Debian: apt-get install nghttp2-client)", h2load)
	}
	for name, binary := range map[string]*string{"-rls": &o.rls, "-before": &o.before} {
		if *binary == "" {
			continue
		}
		if *binary, err = filepath.Abs(*binary); err != nil {
			return err
		}
		if _, err := exec.LookPath(*binary); err != nil {
			return fmt.Errorf("%s: %w: build it with make build", name, err)
		}
	}
	r, err := measure(ctx, o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s/%s, %d CPUs shared by server and load, %s, grpc-go %s; %s -c %d -m %d; medians of %d rounds of %d requests\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), grpc.Version, h2load, connections, streams, o.rounds, o.requests)
	for _, m := range r.comparisons {
		m.write(out)
	}
	r.envoy.write(out)
	r.memory.write(out)
	r.alone.write(out)
	r.flood.write(out)
	return nil
}
