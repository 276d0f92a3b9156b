// Package envoyconfig prints complete configurations of Envoy. Each [Shape] is a YAML file of the
// folder envoy. [Render] puts the addresses and the domain of the caller in place of those in the
// files.
package envoyconfig

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/envoy"
)

// A Shape is a configuration with a name.
type Shape struct {
	Name string
	File string // in the folder envoy
	What string // what it is for, in a few words
	// Since is the first minor version of Envoy 1 that accepts it.
	Since int
}

// Shapes are all configurations. The first one is the usual one.
var Shapes = []Shape{
	{"ratelimit", "ratelimit.yaml", "one question about each request", 36},
	{"sidecar", "sidecar-uds.yaml", "the same in a pod, over a unix socket", 36},
	{"one-hop", "one-hop.yaml", "API keys and limits in one question", 36},
	{"authorization", "authorization.yaml", "API keys first, then limits", 36},
	{"in-flight", "in-flight.yaml", "limits of requests in flight", 36},
	{"budgets", "budgets.yaml", "tokens and dollars of language models, Envoy 1.40", 40},
	{"budgets-1.38", "budgets-1.38.yaml", "tokens of language models, Envoy 1.38", 38},
	{"budgets-1.36", "budgets-1.36.yaml", "costs that a response header names", 36},
	{"budgets-one-hop", "budgets-one-hop.yaml", "API keys and such costs in one question", 36},
	{"mcp", "mcp.yaml", "tools, sessions and keys before an MCP server", 38},
	{"tls", "tls.yaml", "one question about each request, over TLS", 36},
}

// Names returns the names of all shapes.
func Names() []string {
	names := make([]string, len(Shapes))
	for i, s := range Shapes {
		names[i] = s.Name
	}
	return names
}

// Options say what differs from the file of a shape. An empty field: nothing.
type Options struct {
	Shape string // a name of Shapes; empty: the first
	// Listener and Admin are where Envoy listens: IP:PORT or :PORT.
	Listener, Admin string
	// Upstream and RLS are the application and the rate-limit service: HOST:PORT, or unix:///PATH.
	// With :PORT the host stays that of the shape.
	Upstream, RLS string
	// Domain is that of the rules.
	Domain string
	// Guards refuse floods before Envoy asks rls.
	Guards []Guard
}

// Render returns the configuration as YAML. The error says which option is wrong, by the name of
// its flag.
func Render(o Options) (string, error) {
	name := cmp.Or(o.Shape, Shapes[0].Name)
	i := slices.IndexFunc(Shapes, func(s Shape) bool { return s.Name == name })
	if i < 0 {
		return "", fmt.Errorf("--shape: expected one of %s, not %q", strings.Join(Names(), ", "), name)
	}
	data, err := envoy.Files.ReadFile(Shapes[i].File)
	if err != nil {
		return "", err
	}
	text := string(data)
	for _, one := range []struct {
		flag, address, above string
		listens              bool
	}{
		{"--listener", o.Listener, "\n  - name: ingress\n", true},
		{"--admin-listener", o.Admin, "\nadmin:\n", true},
		{"--upstream", o.Upstream, "\n  - name: upstream\n", false},
		{"--rls", o.RLS, "\n  - name: rls\n", false},
	} {
		if one.address == "" {
			continue
		}
		before, in, _ := strings.Cut(text, one.above)
		in, was, is, err := move(in, one.address, one.listens)
		if err != nil {
			return "", fmt.Errorf("%s: %w", one.flag, err)
		}
		text = comments(before+one.above+in, was, is, one.listens)
	}
	if o.Domain != "" && o.Domain != domain {
		text = strings.ReplaceAll(text, " domain: "+domain+"\n", " domain: "+strconv.Quote(o.Domain)+"\n")
	}
	if len(o.Guards) > 0 {
		return guard(text, o.Guards)
	}
	return text, nil
}

// domain is that of all shapes.
const domain = "edge"

// An address is one of Envoy's configuration: a host and a port, or the path of a socket.
type address struct{ host, port, path string }

func (p address) String() string {
	if p.path != "" {
		return p.path
	}
	return net.JoinHostPort(p.host, p.port)
}

// yaml returns the address as Envoy's configuration has it.
func (p address) yaml() string {
	if p.path != "" {
		return fmt.Sprintf("pipe: {path: %q}", p.path)
	}
	return fmt.Sprintf("socket_address: {address: %q, port_value: %s}", p.host, p.port)
}

var (
	found      = regexp.MustCompile(`(?m)(?:socket_address: \{address: (.*), port_value: (.*)|pipe: \{path: (.*))\}$`)
	kind       = regexp.MustCompile(`(?m)^    type: .*$`)
	comment    = regexp.MustCompile(`(?m)^ *#.*$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	socketPath = regexp.MustCompile(`^/[A-Za-z0-9/._@-]+$`)
)

// parse reads the address of a flag. was is the address in the file.
func parse(text string, was address, listens bool) (address, error) {
	if path, ok := strings.CutPrefix(text, "unix://"); ok && !listens {
		if !socketPath.MatchString(path) {
			return address{}, fmt.Errorf("%q: expected the path of a socket: unix:///PATH", text)
		}
		return address{path: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	_, ipErr := netip.ParseAddr(host)
	switch {
	case err != nil || portErr != nil || number == 0 && !listens:
		return address{}, fmt.Errorf("%q: expected HOST:PORT", text)
	case was.path != "":
		return address{}, fmt.Errorf("%q: this shape calls a unix socket: write unix:///PATH", text)
	case host == "":
		host = was.host
	case ipErr != nil && listens:
		return address{}, fmt.Errorf("%q: expected IP:PORT or :PORT", text)
	case ipErr != nil && !hostName.MatchString(host):
		return address{}, fmt.Errorf("%q: %q is not the name of a host", text, host)
	}
	return address{host: host, port: strconv.FormatUint(number, 10)}, nil
}

// move gives a listener, a cluster or the admin interface another address. in is the text below its
// name.
func move(in, text string, listens bool) (moved string, was, is address, err error) {
	old := found.FindStringSubmatch(in)
	was = address{old[1], old[2], old[3]}
	is, err = parse(text, was, listens)
	if err != nil || is == was {
		return in, was, is, err
	}
	in = strings.Replace(in, old[0], is.yaml(), 1)
	if listens {
		return in, was, is, nil
	}
	resolved := "STATIC"
	if _, err := netip.ParseAddr(is.host); err != nil && is.path == "" {
		resolved = "STRICT_DNS"
		// The certificate has the name that Envoy calls.
		in = strings.NewReplacer(" sni: "+was.host+"\n", fmt.Sprintf(" sni: %q\n", is.host), "{exact: "+was.host+"}", fmt.Sprintf("{exact: %q}", is.host)).Replace(in)
	}
	return strings.Replace(in, kind.FindString(in), "    type: "+resolved, 1), was, is, nil
}

// comments writes the new address into the comments that have the old one.
func comments(text string, was, is address, listens bool) string {
	old, now := was.String(), is.String()
	if listens {
		old, now = " :"+was.port+" ", " :"+is.port+" "
	}
	replace := []string{old, now}
	if was.path != "" {
		replace = append(replace, " "+path.Dir(was.path)+".", " "+path.Dir(is.path)+".")
	}
	return comment.ReplaceAllStringFunc(text, strings.NewReplacer(replace...).Replace)
}
