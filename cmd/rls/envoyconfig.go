package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/offline/envoyconfig"
)

type envoyConfigCmd struct {
	envoyconfig.Options
	Guard bool
}

func envoyConfig(c *cli) *cobra.Command {
	var e envoyConfigCmd
	var shapes strings.Builder
	for _, s := range envoyconfig.Shapes {
		fmt.Fprintf(&shapes, "  %-15s %s\n", s.Name, s.What)
	}
	cmd := leaf("envoy-config", "Print a complete and hardened configuration of Envoy for these rules and settings.",
		"A comment at each line of hardening says what breaks without it. The shapes are\n\n"+shapes.String()+"\n"+
			"Routes and descriptors are those of the built-in example rules: write those of your rules in their place, and test them with rls replay. "+
			docsPage("start.md")+" shows how to start Envoy with it.", func() error { return e.Run(c) })
	f := cmd.Flags()
	f.StringVar(&e.Shape, "shape", "", "the `NAME` of the shape (default tls or sidecar if the settings of grpc have only that, else ratelimit)")
	f.StringVar(&e.Upstream, "upstream", "", "the `HOST:PORT` of the application, or unix:///PATH")
	f.StringVar(&e.Listener, "listener", "", "the `IP:PORT` or :PORT on which Envoy listens")
	f.StringVar(&e.Admin, "admin-listener", "", "the `IP:PORT` or :PORT of Envoy's admin interface; keep it on loopback, because it can stop the proxy")
	f.StringVar(&e.Domain, "domain", "", "the `NAME` of the domain; optional if the rules have only one")
	f.StringVar(&e.RLS, "rls", "", "the `HOST:PORT` at which Envoy reaches rls, or unix:///PATH; the name of a host must also be in the certificate of rls (default the host of the shape, and the port or the socket of grpc.address)")
	f.BoolVar(&e.Guard, "guard", false, "add a local_ratelimit filter, with which Envoy itself refuses floods of one address or key; the exact limits stay those of rls")
	completeWords(cmd, "shape", envoyconfig.Names()...)
	return cmd
}

// Run prints the configuration.
func (e *envoyConfigCmd) Run(c *cli) error {
	l, err := c.load()
	if err != nil {
		return invalid(err)
	}
	if err := e.domain(l.Settings); err != nil {
		return err
	}
	e.reach(l.GRPC)
	text, err := envoyconfig.Render(e.Options)
	if err != nil {
		return usageError{err}
	}
	if l.GRPC.TLS.On() && e.Shape != "tls" && !strings.HasPrefix(e.RLS, "unix:") {
		fmt.Fprintf(os.Stderr, "rls: the settings have grpc.tls, and this shape calls rls in plain text: take the transport_socket of --shape tls into it\n")
	}
	_, err = fmt.Fprint(&stdout, text)
	return err
}

// domain finds the domain of the rules, or checks the one of the flag.
func (e *envoyConfigCmd) domain(s settings.Settings) error {
	if s.Rules.Source == settings.RulesXDS {
		if e.Guard {
			return usage("--guard: the rules are those of an xDS server, which is not asked")
		}
		return nil
	}
	g, err := config.Load(s)
	if err != nil {
		return invalid(err)
	}
	switch all := g.Rules.Domains(); {
	case e.Domain == "" && len(all) == 1:
		e.Domain = all[0]
	case e.Domain == "":
		return usage("the rules have the domains %s: choose one with --domain", strings.Join(all, ", "))
	case !slices.Contains(all, e.Domain):
		return usage("--domain: no rule has the domain %q, only %s", e.Domain, cmp.Or(strings.Join(all, ", "), "none"))
	}
	if e.Guard {
		if e.Guards = envoyconfig.Guards(g.Rules, e.Domain, s.Tiers.Source != settings.TiersNone); len(e.Guards) == 0 {
			return usage("--guard: no rule fits. It needs a descriptor of one entry, which is remote_address, masked_remote_address or api_key, without by_tier, and a sliding window or a token bucket. With customers api_key does not fit, because they may have overrides")
		}
	}
	return nil
}

// reach chooses the shape and the address of rls by the settings, where no flag does.
func (e *envoyConfigCmd) reach(s settings.GRPC) {
	var port, socket string
	for _, address := range s.Address {
		if address.IsSocket() {
			socket = cmp.Or(socket, string(address))
		} else if _, p, err := net.SplitHostPort(string(address)); err == nil && p != "0" {
			port = cmp.Or(port, ":"+p)
		}
	}
	if e.Shape == "" {
		switch {
		case port == "" && socket != "":
			e.Shape = "sidecar"
		case s.TLS.On():
			e.Shape = "tls"
		default:
			e.Shape = "ratelimit"
		}
	}
	if e.Shape == "sidecar" {
		e.RLS = cmp.Or(e.RLS, socket)
	} else {
		e.RLS = cmp.Or(e.RLS, port, socket)
	}
}
