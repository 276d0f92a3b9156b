package main

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/text"
)

// callerFlags name the caller of a usage or a reset.
type callerFlags struct {
	Address, Digest, Descriptor string
	KeyStdin                    bool
	Rule                        string
}

// callerUse is the argument of a command about a caller.
const callerUse = " [CUSTOMER]"

// flags adds the flags to a command, whose help it completes. rule describes --rule.
func (f *callerFlags) flags(cmd *cobra.Command, rule string) {
	cmd.Long += "\n\nCUSTOMER is the id of a customer, an address or the digest of an API key."
	flags := cmd.Flags()
	flags.StringVar(&f.Address, "address", "", "a client's `IP` address")
	flags.StringVar(&f.Digest, "digest", "", "the digest of an API key in `HEX`, as rls digest prints it")
	flags.BoolVar(&f.KeyStdin, "key-stdin", false, "read an API key from standard input, and send only its digest")
	flags.StringVar(&f.Rule, "rule", "", rule)
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), cobra.NoFileCompletions
}

// flagsWithDescriptor is flags for a command that a descriptor may name the caller of, too.
func (f *callerFlags) flagsWithDescriptor(cmd *cobra.Command) {
	f.flags(cmd, "only the limits of the rule with this `NAME`")
	cmd.Flags().StringVar(&f.Descriptor, "descriptor", "", "`DOMAIN/ENTRIES` of a descriptor, such as edge/route=search")
}

// query returns the caller that the arguments name.
func (f *callerFlags) query(c *cli, args []string) (insight.Query, error) {
	q := insight.Query{Address: f.Address, Digest: f.Digest, Descriptor: f.Descriptor, Rule: f.Rule}
	named := 0
	for _, given := range []bool{len(args) > 0, q.Address != "", q.Digest != "", q.Descriptor != "", f.KeyStdin} {
		if given {
			named++
		}
	}
	if named != 1 {
		return q, usage("name one of a subject, --address, --digest, --descriptor or --key-stdin")
	}
	if len(args) > 0 {
		if strings.TrimSpace(args[0]) == "" {
			return q, usage("the id of the subject is empty")
		}
		q = insight.Typed(args[0])
		q.Rule = f.Rule
	}
	if f.KeyStdin {
		s, err := c.load()
		if err != nil {
			return q, err
		}
		secrets := s.NewSecrets(s.Secrets.Key)
		text, err := keyStdin(secrets, "usage")
		if err != nil {
			return q, err
		}
		q.Digest = secrets.Digest(text)
	}
	return q, nil
}

// noCustomer returns an error if each instance that answered says that it knows no such customer.
func noCustomer(all []merge.Answer[insight.Usage]) (err error) {
	for _, a := range merge.Answered(all) {
		if a.Value.Unknown == "" {
			return nil
		}
		err = errors.New(a.Value.Unknown)
	}
	return err
}

// maxKeyBytes bounds a line with an API key. Headers are far smaller.
const maxKeyBytes = 1 << 20

// keyLines iterates over the lines of standard input, with numbers from 1. It sets err if standard
// input cannot be read.
func keyLines(err *error) iter.Seq2[int, string] { return text.Lines(os.Stdin, maxKeyBytes, err) }

// keyStdin returns the first line of standard input that has an API key, for --key-stdin of a command.
func keyStdin(secrets *tier.Secrets, command string) (line string, err error) {
	for _, line := range keyLines(&err) {
		if secrets.Key(line) != "" {
			return line, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("reading the API key from standard input: %w", err)
	}
	return "", usage(`--key-stdin: standard input holds no API key: printf '%%s\n' "$KEY" | rls %s --key-stdin`, command)
}
