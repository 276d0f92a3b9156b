package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/offline/envoycheck"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

type checkCmd struct {
	adminPorts
	envoycheck.Options
	Envoy, Dump, FailOn string
	Rules               []string
}

func checkOf(c *cli) *cobra.Command {
	var k checkCmd
	cmd := leaf("check", "Ask a live Envoy and rls which limits are in force, which are not, and why.",
		"It reads the admin port of Envoy, compares what it shows with the rules, and changes nothing. "+docsPage("operate.md#no-client-is-denied")+" has an example. "+
			"It checks the listeners that ask rls, and those on the same port or with the same clusters.\n\n"+
			"The rules are those of the running service, or of --rules. Addresses, TLS and authorization are compared with the settings, unless --admin or --rules is given without --config.\n\n"+
			"Exit code 1: there is a finding as bad as --fail-on. 3: Envoy or rls does not answer.", func() error { return k.Run(c) })
	k.flags(cmd, waitToRead)
	f := cmd.Flags()
	f.StringVar(&k.Envoy, "envoy", "127.0.0.1:9901", "the `ADDRESS` of Envoy's admin port, or its URL")
	f.StringVar(&k.Dump, "envoy-dump", "", "instead a `FILE` with the answer of /config_dump?include_eds, or the one that Envoy reads")
	f.StringSliceVar(&k.Rules, "rules", nil, "instead of the running service, `PATHS` of rules as for rls validate")
	f.StringSliceVar(&k.Listeners, "listener", nil, "check only the listeners with these `NAMES`")
	f.BoolVar(&k.Edge, "edge", false, "clients connect to this Envoy, so no X-Forwarded-For is trusted")
	f.BoolVar(&k.Complete, "complete", false, "this is the only Envoy, so its routes must reach each rule")
	f.IntVar(&k.Hops, "hops", -1, "how many trusted proxies stand in front of Envoy (default unknown)")
	f.Lookup("hops").DefValue = "0"
	wordVar(cmd, &k.FailOn, "fail-on", string(envoycheck.Error), "exit 1 for `SEVERITY`: error or warning", string(envoycheck.Error), string(envoycheck.Warning))
	f.StringVar(&k.Probe.URL, "probe", "", "ask Envoy too: send one GET with a random key for each route of the listener at `URL`, which rls denies without a charge. The token must be one that may act. A request that passes reaches the application; it is the last one")
	f.StringVar(&k.Probe.Header, "probe-header", "", "the `NAME` of the header with the key (default the first header of authz.credentials, x-api-key)")
	f.StringSliceVar(&k.Probe.Paths, "probe-path", nil, "`PATHS` of routes with one path or a regular expression, which are not probed without them")
	return cmd
}

// errFound ends a command that has printed findings.
var errFound = errors.New("limits are not in force as configured")

// Run prints what is wrong between Envoy and rls.
func (k *checkCmd) Run(c *cli) error {
	switch {
	case len(k.Rules) > 0 && len(k.Admin) > 0:
		return usage("--rules and --admin: give one")
	case k.Probe.URL != "" && len(k.Rules) > 0:
		return usage("--probe asks the running service: leave out --rules")
	}
	if err := k.Probe.Valid(); err != nil {
		return usageError{err}
	}
	service, err := k.service(c)
	if err != nil {
		return err
	}
	seen, err := k.seen()
	if err != nil {
		return err
	}
	for _, name := range k.Listeners {
		if !slices.ContainsFunc(seen.Listeners, func(l envoydump.Listener) bool { return l.Name == name }) {
			return usage("--listener: Envoy has no listener %q", name)
		}
	}
	report, unanswered := envoycheck.Run(context.Background(), seen, service, k.Options)
	if k.JSON {
		if err := encode(report); err != nil {
			return err
		}
	} else {
		report.WriteText(&stdout, widthOf(os.Stdout), coloursOf(os.Stdout))
	}
	if unanswered != nil {
		return partial{unanswered}
	}
	if report.Has(envoycheck.Severity(k.FailOn)) {
		return errFound
	}
	return nil
}

// seen reads what Envoy shows.
func (k *checkCmd) seen() (*envoydump.Seen, error) {
	if k.Dump != "" {
		seen, err := envoydump.Read(k.Dump)
		if err != nil {
			return nil, usage("--envoy-dump: %w", err)
		}
		return seen, nil
	}
	seen, err := envoydump.Ask(context.Background(), k.Envoy)
	if err != nil {
		return nil, partial{fmt.Errorf("%w; name its admin port in --envoy, or give a dump in --envoy-dump", err)}
	}
	return seen, nil
}

// service returns what is known of rls.
func (k *checkCmd) service(c *cli) (*envoycheck.Service, error) {
	out := new(envoycheck.Service)
	if c.Config != "" || len(k.Rules)+len(k.Admin) == 0 {
		s, err := c.load()
		if err != nil {
			return nil, invalid(err)
		}
		out.Settings, out.StoreTimeout = &s.Settings, s.Store.Timeout
	}
	if len(k.Rules) == 0 {
		ask, err := k.client(c)
		if err != nil {
			return nil, err
		}
		k.Probe.Ask = ask
		if err := out.Ask(context.Background(), ask); err != nil {
			return nil, partial{err}
		}
		return out, nil
	}
	in, err := config.NewInput(k.Rules, os.Stdin)
	switch {
	case err != nil:
		return nil, usageError{err}
	case in.Settings != "" || len(in.Tests) > 0:
		return nil, usage("--rules: expected rules and tiers; settings go into --config")
	}
	s, err := c.load()
	if err == nil {
		err = out.Load(&in, s.Settings)
	}
	if err != nil {
		return nil, invalid(err)
	}
	return out, nil
}
