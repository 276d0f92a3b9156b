package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	// Time zones of calendars, for machines and images that have no database of them: 0.4 MB.
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/internal/operate/client"
)

// exitHelp describes the exit codes, once for all commands.
const exitHelp = "Exit code 0: the command succeeded. 1: it failed, what it checks is not valid, or a condition that you set holds. " +
	"2: the command line or standard input is wrong. 3: the output is not complete, because an instance or the store did not answer, or a log was read in part."

// Exit codes.
const (
	exitFailure = 1 // the command failed, the configuration is not valid, or a condition that the caller set holds
	exitUsage   = 2 // the command line or standard input is wrong
	exitPartial = 3 // the output is not complete: an instance or the store did not answer, or a part of a log was not read
)

func main() {
	os.Args = commandLine(os.Args)
	os.Exit(run(root(), os.Args[1:]))
}

// commandLine returns argv without a first program if the second word names envoyproxy/ratelimit.
// Compose files for that service have `command: /bin/ratelimit`, which an image with an ENTRYPOINT
// gets as its first argument.
func commandLine(argv []string) []string {
	if len(argv) > 1 && filepath.Base(argv[1]) == compat.Command {
		return argv[1:]
	}
	return argv
}

// run runs a command line and returns the exit code.
func run(root *cobra.Command, args []string) int {
	stdout = screen{}
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if stdout.err != nil {
		err = failure{stdout.err}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, coloursOf(os.Stderr).Red("rls:"), err)
	// Errors that are not a failure come from cobra, which checks the command line first.
	begun := new(failure)
	if errors.As(err, new(partial)) || errors.As(err, new(client.Partial)) {
		return exitPartial
	}
	if errors.As(err, begun) && !errors.As(err, new(usageError)) {
		return exitFailure
	}
	fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	return exitUsage
}

// failure is an error of a command that began to run.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// usageError is an error in the arguments or the standard input of a command.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// partial is the error of a command that has printed less than it was asked for.
type partial struct{ error }

func (p partial) Unwrap() error { return p.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// otherName is a second name of the program: rustup has a proxy with the name rls.
const otherName = "slidegate"

// cli has the flags that all commands share.
type cli struct {
	Config string
}

// root returns the command rls with all others below it. Without a command, rls serves.
func root() *cobra.Command {
	c := new(cli)
	cobra.EnableCommandSorting = false
	name := "rls"
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == otherName {
		name = otherName
	}
	root := &cobra.Command{
		Use:           name,
		Short:         "Exact sliding-window rate limits for Envoy, by subscription tier.",
		Long:          "Exact sliding-window rate limits for Envoy, by subscription tier.\n\nWithout a command, rls serves.\n\n" + adminHelp + "\n\n" + exitHelp,
		Version:       this.Version,
		RunE:          begin(func([]string) error { return serve(c) }),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(&stdout)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if wrong := new(pflag.InvalidValueError); errors.As(err, &wrong) { // its text has the value, which may have a password
			return fmt.Errorf("--%s: %w", wrong.GetFlag().Name, wrong.Unwrap())
		}
		return err
	})
	root.SetVersionTemplate("slidegate {{.Version}}\n")
	root.PersistentFlags().StringVar(&c.Config, "config", os.Getenv("SLIDEGATE_CONFIG"),
		"settings `FILE`; every setting is also an environment variable, see "+docsPage("reference/settings.md"))
	root.AddCommand(serveOf(c), validate(c), checkOf(c), explainOf(c), diffOf(c), testOf(c), replayOf(c), digestOf(c), usageOf(c), reset(c), grantOf(c), denials(c), top(c), healthcheck(c), envoyConfig(c), env(c), reloadOf(c), versionOf())
	explainCommands(root)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() {
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(*cobra.Command, []string) error { return usage("name a command of %s", cmd.CommandPath()) }
		}
	}
	return root
}

// begin returns do as a function for cobra, which calls it if the command line is right.
// Errors of do become failures.
func begin(do func(args []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		if err := do(args); err != nil {
			return failure{err}
		}
		return nil
	}
}

// leaf returns a command without arguments. Its help has short and, below, long, which may be empty.
func leaf(use, short, long string, do func() error) *cobra.Command {
	cmd := newCommand(use, short, long, func([]string) error { return do() })
	cmd.Args = cobra.NoArgs
	return cmd
}

// newCommand is leaf for any arguments.
func newCommand(use, short, long string, do func(args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: begin(do)}
	if long != "" {
		cmd.Long = short + "\n\n" + long
	}
	return cmd
}

// A word is the value of a flag that takes one of several words.
type word struct {
	to *string
	of []string
}

func (w word) String() string { return *w.to }
func (word) Type() string     { return "string" }
func (w word) Set(text string) error {
	if !slices.Contains(w.of, text) {
		last := len(w.of) - 1
		return fmt.Errorf("expected %s or %s, not %q", strings.Join(w.of[:last], ", "), w.of[last], text)
	}
	*w.to = text
	return nil
}

// wordVar adds a flag that takes one of several words, and completes them.
func wordVar(cmd *cobra.Command, to *string, flag, usual, help string, of ...string) {
	*to = usual
	cmd.Flags().Var(word{to, of}, flag, help)
	completeWords(cmd, flag, of...)
}

// completeWords completes the value of a flag with fixed words.
func completeWords(cmd *cobra.Command, flag string, of ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined before
	}
}

func require(cmd *cobra.Command, flag string) {
	if err := cmd.MarkFlagRequired(flag); err != nil {
		panic(err) // the flag is defined before
	}
}
