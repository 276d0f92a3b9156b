package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
)

// Main runs a program with the arguments of the process. SIGINT and SIGTERM end ctx.
// If run fails, Main writes the error to standard error and exits with code 1.
func Main(name string, run func(ctx context.Context, args []string, out, progress io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Flags are the flags of a program.
type Flags struct{ *flag.FlagSet }

// NewFlags returns the flags of the program with a name.
func NewFlags(name string) Flags {
	return Flags{flag.NewFlagSet(name, flag.ContinueOnError)}
}

// RLS adds the flag -rls.
func (f Flags) RLS(to *string) { f.StringVar(to, "rls", "../bin/rls", "the `binary` of the service") }

// Only adds the flag -only, a regular expression. The default matches everything.
func (f Flags) Only(to **regexp.Regexp, usage string) {
	*to = regexp.MustCompile("")
	f.TextVar(*to, "only", *to, usage)
}

// Parse parses args. An argument that is not a flag is an error.
func (f Flags) Parse(args []string) error {
	if err := f.FlagSet.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return nil
}

// Machine describes the machine in a line. users are the programs that share its
// CPUs.
func Machine(users string) string {
	return fmt.Sprintf("%s/%s, %d CPUs shared by %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), users, runtime.Version())
}
