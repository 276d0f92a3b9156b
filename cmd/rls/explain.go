package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/tables"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

type explainCmd struct {
	Rules       string
	Domain      string
	Descriptor  []string
	Tier        string
	Hits        uint64
	Live        bool
	Address     string
	UntilDenied int
	Timeout     time.Duration
}

func explainOf(c *cli) *cobra.Command {
	var e explainCmd
	cmd := leaf("explain", "Print which rules a request matches and why, and what the answer would be.",
		"rls asks the running service, which charges nothing. If none answers at admin.address, or with --rules, nothing counts as used, and the first line says so.", func() error { return e.Run(c) })
	f := cmd.Flags()
	f.StringArrayVar(&e.Descriptor, "descriptor", nil, "the `ENTRIES` of a descriptor, such as 'route=search,api_key=k1', with a backslash before a comma or = in a value; repeat the flag for each descriptor of the request")
	f.StringVar(&e.Domain, "domain", "", "the `NAME` of the domain; optional without --live if the rules have only one")
	f.StringVar(&e.Rules, "rules", "", "a `PATH` of rules, instead of rules.path")
	f.StringVar(&e.Tier, "tier", "", "the `NAME` of a tier, instead of that of the key")
	f.Uint64Var(&e.Hits, "hits", 1, "cost of the request; 0 only reads the limits")
	f.BoolVar(&e.Live, "live", false, "send the request to the running service as Envoy does, which charges it, and print the answer")
	f.IntVar(&e.UntilDenied, "until-denied", 0, "with --live: send it up to `N` times, until it is denied, and print the last three answers; exit 1 if it never is")
	f.StringVar(&e.Address, "address", "", "with --live: the `HOST:PORT` of a service on another machine; with grpc.tls the system must trust its certificate (SSL_CERT_FILE)")
	f.DurationVar(&e.Timeout, "timeout", time.Second, "with --live: how long to wait for an answer")
	require(cmd, "descriptor")
	return cmd
}

// Run prints which rules match and why, and what the answer would be now, or with nothing used if no
// service can be asked. With Live it sends the request.
func (e *explainCmd) Run(c *cli) error {
	l, err := c.load()
	switch {
	case err != nil:
		return invalid(err)
	case e.Live:
		return e.live(l)
	case e.UntilDenied != 0 || e.Address != "":
		return usage("--until-denied and --address are for --live: give it too")
	}
	nothing := "--rules asks no service"
	if e.Rules == "" {
		var answer *admin.Explained
		if answer, err = e.now(c); err == nil {
			for _, step := range answer.Steps {
				fmt.Fprintln(&stdout, safetext.Text(step))
			}
			return nil
		}
		if refused := new(client.Refusal); errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
			return usageError{err}
		}
		nothing = err.Error()
	}
	s, g, err := rulesOf(l.Settings, e.Rules, "")
	if err != nil {
		return err
	}
	var inRedis func(window.LogID) string
	if s.Store.Type == settings.StoreRedis {
		inRedis = func(id window.LogID) string {
			at, _ := s.Store.RedisOf(id.Scope)
			return redisstore.KeyName(at.KeyPrefix, id)
		}
	}
	lines, err := e.explain(g, inRedis)
	if err != nil {
		return err
	}
	fmt.Fprintln(&stdout, "with nothing used: "+safetext.Text(nothing))
	fmt.Fprintln(&stdout, strings.Join(append(e.origin(s, g), lines...), "\n"))
	return nil
}

// now asks the running service what would happen now.
func (e *explainCmd) now(c *cli) (*admin.Explained, error) {
	ask, err := (&adminPorts{Timeout: e.Timeout}).client(c)
	if err != nil {
		return nil, err
	}
	return ask.Explain(context.Background(), admin.ExplainRequest{Domain: e.Domain, Descriptors: e.Descriptor, Tier: e.Tier, Hits: &e.Hits})
}

// origin returns the lines that say where the rules and the tier come from.
func (e *explainCmd) origin(s settings.Settings, g *config.Generation) []string {
	lines := []string{"rules: " + s.Rules.Path}
	if s.Rules.Path == "" {
		lines[0] = "rules: the built-in example (rules.path is not set; use the settings of the service: --config or SLIDEGATE_ variables)"
	}
	if tiers := g.Rules.Tiers(); s.Tiers.Asks() && e.Tier == "" && tiers != nil {
		lines = append(lines, fmt.Sprintf("tier: %s (the default; explain does not ask tiers.source %s; give --tier)", tiers.DefaultTier(), s.Tiers.Source))
	}
	return lines
}

// explain returns the explanation of the request. inRedis returns the name of a log in Redis;
// nil means that no log is in Redis.
func (e *explainCmd) explain(g *config.Generation, inRedis func(window.LogID) string) ([]string, error) {
	all, err := parseDescriptors(e.Descriptor)
	if err != nil {
		return nil, err
	}
	req, err := g.Request(e.Domain, e.Tier, all, e.Hits)
	if err != nil {
		return nil, usage("--%w", err)
	}
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }() // the store is only for this answer
	answer, err := explain.Explain(context.Background(), decide.NewDecider(g.Rules, decide.Options{Store: store}), *req, inRedis)
	if err != nil {
		return nil, err
	}
	return answer.Lines, nil
}

func parseDescriptors(texts []string) ([]descriptors.Descriptor, error) {
	all := make([]descriptors.Descriptor, len(texts))
	for i, text := range texts {
		var err error
		if all[i], err = descriptors.Parse(text); err != nil {
			return nil, usage("--descriptor: %w", err)
		}
	}
	return all, nil
}

// live prints the last answers of the running service. A denial is an answer, not a failure.
func (e *explainCmd) live(s loaded) error {
	sent, err := parseDescriptors(e.Descriptor)
	if err != nil {
		return err
	}
	switch {
	case e.Domain == "":
		return usage("--live: name the domain of the request with --domain")
	case e.Rules != "" || e.Tier != "":
		return usage("--rules and --tier: the running service has its own rules and tiers, so --live takes neither")
	case e.Hits > math.MaxUint32:
		return usage("--hits: the protocol of Envoy has at most %d", uint32(math.MaxUint32))
	case e.UntilDenied < 0:
		return usage("--until-denied: expected a number above 0")
	case e.Timeout <= 0:
		return usage("--timeout: expected a duration above 0")
	}
	address, secure, err := e.service(s.GRPC)
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	conn, err := client.Dial(address, secure)
	if err != nil {
		return fmt.Errorf("explain: %s: %w", address, err)
	}
	defer conn.Close()
	lines, err := (&client.Trial{Domain: e.Domain, Sent: sent, Hits: uint32(e.Hits), Timeout: e.Timeout}).Run(conn, e.UntilDenied, tables.Reply)
	for _, line := range lines {
		fmt.Fprintln(&stdout, line)
	}
	switch {
	case client.NothingListens(err):
		return fmt.Errorf("explain: nothing listens on %s: start rls there, or name another --address", address)
	case err != nil:
		return fmt.Errorf("explain: %s: %w", address, err)
	}
	return nil
}

// service returns the address and the credentials for calling the service.
func (e *explainCmd) service(s settings.GRPC) (settings.Address, credentials.TransportCredentials, error) {
	if e.Address == "" {
		return client.Local(s)
	}
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil && s.TLS.On() {
		return "", nil, usage("--address: %w", err)
	}
	secure, err := client.Remote(s, host)
	return settings.Address(e.Address), secure, err
}
