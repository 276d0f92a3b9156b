package envoycheck

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/probelist"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Prober proves that Envoy asks rls. For a while rls denies each call with a random key, and Envoy gets
// one request with this key for each route. A request that passes reaches the application, so it is the
// last one.
type Prober struct {
	URL string // of the listener, without a path; empty: nothing is sent
	// Header is where Envoy takes the key from. Empty: the first header of the credentials.
	Header string
	// Paths are for routes with one path or a regular expression, which are not probed without them.
	Paths []string
	// Ask has the instances of rls, and a token that may act.
	Ask *client.Client
}

// Valid returns what is wrong with the URL.
func (p *Prober) Valid() error {
	if u := p.url(); p.URL != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "") {
		return errors.New("--probe: expected the URL of a listener, such as http://127.0.0.1:10000")
	}
	return nil
}

func (p *Prober) url() *url.URL {
	u, err := url.Parse(p.URL)
	if err != nil {
		return new(url.URL)
	}
	return u
}

// A Probed is a route that was probed, with what its request had when it arrived at rls.
type Probed struct {
	Where  string       `json:"where"`
	Status int          `json:"status"`
	Calls  []probe.Call `json:"calls"`

	host, path, digest string
}

const (
	// maxProbed bounds the routes of one probe: so many calls are kept.
	maxProbed = probe.MaxCalls
	// spread is how long instances need until they have a probe.
	spread = time.Second
	// patience is how long to ask for what they have.
	patience = 3 * spread
)

// probe probes the routes of a listener. Its error says that Envoy or rls does not answer.
func (in *input) probe(ctx context.Context, p *Prober) error {
	header := strings.ToLower(p.Header)
	for _, c := range in.service.credentials() {
		if c.Kind != settings.CredentialCookie {
			header = cmp.Or(header, headerOf(c))
		}
	}
	aims := in.aims(p, header)
	if len(aims) == 0 {
		in.report(notProbed, "listener "+p.URL, "No route of it could be probed. The lines below say why, or no listener of Envoy has this port.")
		return nil
	}
	key := rand.Text()
	started, err := p.Ask.StartProbe(ctx, probelist.Request{Key: key, Seconds: 10 + len(aims)})
	if err != nil {
		return err
	}
	for _, to := range p.Ask.Instances {
		if err := retry(ctx, func() error {
			_, err := p.Ask.Probe(ctx, to, started.ID)
			return err
		}); err != nil {
			return fmt.Errorf("%s does not know the probe: %w", to.Name, err)
		}
	}
	time.Sleep(spread) // for instances that --admin does not name
	if header == "authorization" {
		key = "Bearer " + key
	}
	calls := 0
	for _, one := range aims {
		one.digest = started.Digest
		id, err := one.send(ctx, p.url(), header, key)
		if err != nil {
			return fmt.Errorf("--probe: the listener does not answer: %w", err)
		}
		in.probed = append(in.probed, one)
		if id != started.ID {
			in.report(probePassed, one.Where, "GET %s got the status %d and not the denial of the probe, so no limit is in force for it. The application has seen this one request, unless Envoy has answered itself. No further request was sent.", one.path, one.Status)
			return nil
		}
		if err := retry(ctx, func() error {
			seen, err := p.Ask.Probe(ctx, p.Ask.Instances[0], started.ID)
			if err == nil && len(seen.Calls) <= calls {
				err = errors.New("its call has not arrived")
			}
			if err == nil {
				one.Calls, calls = seen.Calls[calls:], len(seen.Calls)
			}
			return err
		}); err != nil {
			in.notRead("what %s sends to rls: %v", one.Where, err)
		}
		in.arrived(one)
	}
	return nil
}

func retry(ctx context.Context, ask func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, ask() },
		backoff.WithBackOff(backoff.NewConstantBackOff(spread/20)), backoff.WithMaxElapsedTime(patience))
	return err
}

// aims returns the routes of the listener to probe, each with a host and a path. What is left out it says with notRead.
func (in *input) aims(p *Prober, header string) (all []*Probed) {
	to, nonce := p.url(), strings.ToLower(rand.Text()[:8])
	port := cmp.Or(to.Port(), map[string]string{"https": "443"}[to.Scheme], "80")
	for _, r := range in.routes {
		if len(in.sites) > 1 && strconv.Itoa(r.manager.listener.Address.Socket.Port) != port {
			continue
		}
		path := ""
		if at := slices.IndexFunc(p.Paths, r.paths.takes); at >= 0 {
			path = p.Paths[at]
		} else if r.Match.Prefix != nil || r.Match.SeparatedPrefix != "" {
			path = strings.TrimSuffix(r.paths.begin, "/") + "/slidegate-probe-" + nonce
		}
		not := ""
		switch {
		case !r.wide():
			not = "it has conditions that are not of its path"
		case path == "":
			not = "name one of its paths in --probe-path"
		case !r.has(header):
			not = "no descriptor has the header " + header
		case len(all) == maxProbed:
			not = fmt.Sprintf("at most %d routes are", maxProbed)
		}
		if not != "" {
			in.notRead("%s by the probe: %s", r.where, not)
			continue
		}
		host := to.Host
		if len(r.host.Domains) > 0 && r.host.Domains[0] != "*" {
			host = strings.ReplaceAll(r.host.Domains[0], "*", "slidegate-probe")
		}
		all = append(all, &Probed{Where: safetext.Text(r.where), Calls: []probe.Call{}, host: host, path: path})
	}
	return all
}

// has reports whether Envoy asks rls before a request, and sends it a header.
func (r *route) has(header string) bool {
	return slices.ContainsFunc(r.manager.authorizations, func(a *authorizationFilter) bool { return !r.authorizationOff(a) }) ||
		slices.ContainsFunc(r.sends, func(s *sent) bool {
			return !s.limit.AtEnd && slices.ContainsFunc(s.entries, func(e entry) bool { return strings.EqualFold(e.of.Header, header) })
		})
}

var listenerClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true}, // without the proxy of the environment
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       10 * time.Second,
}

// send sends the request of a route, and returns the id of the probe that has denied it.
func (one *Probed) send(ctx context.Context, to *url.URL, header, key string) (id string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.Scheme+"://"+to.Host+one.path, nil)
	if err != nil {
		return "", err
	}
	r.Host = one.host
	r.Header.Set("User-Agent", "slidegate-check")
	r.Header.Set(header, key)
	response, err := listenerClient.Do(r)
	if err != nil {
		return "", err
	}
	_ = response.Body.Close() // the status and the header say all
	if one.Status = response.StatusCode; one.Status == http.StatusTooManyRequests {
		id = response.Header.Get(answer.ProbeHeader)
	}
	return id, nil
}

// arrived checks what Envoy hides: the domain and the descriptors of the context of the route.
func (in *input) arrived(one *Probed) {
	for _, c := range one.Calls {
		switch {
		case c.Problem != "":
			in.report(contextWrong, one.Where, "The context_extensions of the route make no descriptors: %s", c.Problem)
		case c.Domain != "" && in.tree(c.Domain) == nil:
			in.report(wrongRouteDomain, one.Where, "The request arrived at rls with the domain %q, for which it has no rules.", c.Domain)
		case c.Domain != "" && c.Service == "ext_authz" && !c.Cut && !slices.ContainsFunc(c.Descriptors, func(d string) bool { return in.mayLimit(c.Domain, d) }):
			in.report(nothingLimits, one.Where, "No descriptor that arrived at rls has a rule that limits.")
		}
	}
}

// mayLimit reports whether a descriptor that arrived may have a rule that limits.
func (in *input) mayLimit(domain, text string) bool {
	d, err := descriptors.Parse(text)
	var entries []entry
	for _, e := range d {
		entries = append(entries, entry{Node: descriptors.Node{Key: e.Key, Value: e.Value, AnyValue: e.Value == rules.HiddenValue}})
	}
	return err != nil || slices.ContainsFunc(in.find(domain, entries), func(r *Rule) bool { return r.Limits })
}

// text says what arrived.
func (one *Probed) text() string {
	lines := []string{fmt.Sprintf("probed: %s: %d", one.Where, one.Status)}
	for _, c := range one.Calls {
		line := fmt.Sprintf("%s of domain %s, %d ms left: [%s]", c.Service, cmp.Or(c.Domain, "-"), c.Deadline, strings.Join(c.Descriptors, "] ["))
		for _, name := range slices.Sorted(maps.Keys(c.Context)) {
			line += fmt.Sprintf(", %s: %s", name, c.Context[name])
		}
		lines = append(lines, safetext.Text(strings.ReplaceAll(line, one.digest, "KEY")))
	}
	return strings.Join(lines, "\n  ")
}
