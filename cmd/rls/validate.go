package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/internal/offline/check"
)

type validateCmd struct {
	Paths []string
	JSON  bool
	// Portable refuses what envoyproxy/ratelimit reads otherwise.
	Portable bool
	// Subject or KeyStdin names the customer to look up in the customer source.
	Subject  string
	KeyStdin bool
	// configGiven is true if --config is on the command line.
	configGiven bool
}

func validate(c *cli) *cobra.Command {
	var v validateCmd
	var cmd *cobra.Command
	cmd = newCommand("validate [PATH]...", "Check settings, rules, tiers and tests; print every problem and exit 1 if there is one.",
		"PATH is a file of settings, tiers, rules or tests of rules, or a directory of rules; - is standard input. Rules of several paths are one set. "+
			"If no PATH has settings or tiers, they come from --config and the environment. Tests are checked with the rules and tiers that they name; rls test runs them.\n\n"+
			"With --subject or --key-stdin it also asks tiers.source for one customer, and prints the answer.",
		func(args []string) error {
			v.Paths, v.configGiven = args, cmd.Flags().Changed("config")
			return v.Run(c)
		})
	cmd.Flags().BoolVar(&v.Portable, "portable", false, "also refuse what envoyproxy/ratelimit cannot read, or would read otherwise")
	cmd.Flags().BoolVar(&v.JSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&v.Subject, "subject", "", "also look up the customer with this `ID`")
	cmd.Flags().BoolVar(&v.KeyStdin, "key-stdin", false, "also read an API key from standard input and look up its customer")
	return cmd
}

// Run loads everything as serve does. It prints problems, warnings, and what the rules mean
// and cost. With a problem the exit code is 1.
func (v validateCmd) Run(c *cli) error {
	in, err := config.NewInput(v.Paths, os.Stdin)
	switch {
	case err != nil:
		return usageError{err}
	case in.Settings == "":
		in.Settings = c.Config
	case v.configGiven:
		return usage("--config %s and %s are both settings files: give one", c.Config, in.Settings)
	}
	if in.OnlyTests() && v.Portable {
		return usage("--portable is about rules: name rules, too")
	}
	if v.Portable {
		in.Portable = compat.PlainValue
	}
	l, err := load(in.LoadSettings)
	keys, keysErr := v.customer(&l.Settings)
	if keysErr != nil && err == nil {
		return keysErr
	}
	var ruleErr error
	if len(v.Paths) == 0 {
		ruleErr = l.needRules()
	}
	if err != nil {
		keys = nil // the customer source may be none of the settings
	}
	result := check.Run(check.Options{
		Paths: v.Paths, Input: in, Settings: l.Settings, Problems: strict.ProblemsOf(err, ruleErr), NoRules: len(v.Paths) == 0 && l.rulesMissing(), Customer: keys,
	})
	if v.JSON {
		if err := encode(result); err != nil || result.Valid {
			return err
		}
		return errInvalid
	}
	paint := coloursOf(os.Stderr)
	for _, w := range result.Warnings {
		fmt.Fprintf(os.Stderr, "%s %s\n", paint.Yellow("warning:"), problemLine(paint, w))
	}
	if !result.Valid {
		return invalid(strict.Problems(result.Problems))
	}
	result.WriteText(&stdout, coloursOf(os.Stdout))
	if v.Portable && result.Server == "" {
		fmt.Fprintf(&stdout, "\nportable: envoyproxy/ratelimit reads these rules the same\n")
	}
	return nil
}

// errInvalid ends a command that has printed the problems on standard output.
var errInvalid = errors.New("the configuration is not valid")

// customer returns the keys of the customer to look up: one, or two during a change of the secret. It
// returns none without --subject and --key-stdin.
func (v *validateCmd) customer(s *settings.Settings) ([]tier.Key, error) {
	switch {
	case v.Subject == "" && !v.KeyStdin:
		return nil, nil
	case v.Subject != "" && v.KeyStdin:
		return nil, usage("--subject and --key-stdin: give one")
	case v.KeyStdin && slices.Contains(v.Paths, "-"):
		return nil, usage("--key-stdin and -: standard input holds one of them")
	case !s.Tiers.Asks():
		return nil, usage("--subject and --key-stdin ask the customer source: set tiers.source to postgres, redis or http")
	}
	if v.KeyStdin {
		secrets := s.NewSecrets(s.Secrets.Key)
		text, err := keyStdin(secrets, "validate")
		if err != nil {
			return nil, err
		}
		var keys []tier.Key
		for digests := secrets.Fingerprint(text); digests != ""; digests = digests[tier.DigestLen:] {
			keys = append(keys, tier.Key{Digest: tier.FingerprintDigest(digests), Plain: secrets.Key(text)})
		}
		return keys, nil
	}
	if p := s.Tiers.Postgres; s.Tiers.Source == settings.TiersInPostgres && p.Query != "" && p.QueryByID == "" {
		return nil, usage("--subject: set tiers.postgres.query_by_id, or use --key-stdin")
	}
	return []tier.Key{{ID: v.Subject}}, nil
}
