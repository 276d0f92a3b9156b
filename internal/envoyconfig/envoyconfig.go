// Package envoyconfig prints complete configurations of Envoy. Each is a file of the folder envoy,
// with the addresses and the domain of the caller in the places of its own.
package envoyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/envoy"
)

// A Shape is a configuration with a name.
type Shape struct {
	Name string
	File string // in the folder envoy
	What string // what it is for, in a few words
}

// Shapes are all configurations. The first one is the usual one.
var Shapes = []Shape{
	{"ratelimit", "ratelimit.yaml", "one question about each request"},
	{"sidecar", "sidecar-uds.yaml", "the same in a pod, over a unix socket"},
	{"one-hop", "one-hop.yaml", "API keys and limits in one question"},
	{"authorization", "authorization.yaml", "API keys first, then limits"},
	{"in-flight", "in-flight.yaml", "limits of requests in flight"},
	{"tls", "tls.yaml", "one question about each request, over TLS"},
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
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return "", fmt.Errorf("%s: %w", Shapes[i].File, err)
	}
	root := document.Content[0]
	e := &editor{lines: strings.SplitAfter(string(data), "\n")}
	listeners, clusters := find(root, "static_resources", "listeners"), find(root, "static_resources", "clusters")
	for _, place := range []struct {
		flag, address string
		at            *yaml.Node
		listens       bool
	}{
		{"--listener", o.Listener, named(listeners, "ingress"), true},
		{"--admin-listener", o.Admin, find(root, "admin"), true},
		{"--upstream", o.Upstream, named(clusters, "upstream"), false},
		{"--rls", o.RLS, named(clusters, "rls"), false},
	} {
		if place.address == "" {
			continue
		}
		if err := e.move(place.at, place.address, place.listens); err != nil {
			return "", fmt.Errorf("%s: %w", place.flag, err)
		}
	}
	if o.Domain != "" {
		e.scalars(root, "domain", "", strconv.Quote(o.Domain))
	}
	return strings.Join(e.lines, ""), nil
}

// A place is an address of Envoy's configuration: a host and a port, or the path of a socket.
type place struct{ host, port, path string }

func (p place) String() string {
	if p.path != "" {
		return p.path
	}
	return net.JoinHostPort(p.host, p.port)
}

// yaml returns the place as Envoy's configuration has it.
func (p place) yaml() string {
	if p.path != "" {
		return fmt.Sprintf("pipe: {path: %q}", p.path)
	}
	return fmt.Sprintf("socket_address: {address: %q, port_value: %s}", p.host, p.port)
}

// placeOf reads an address node.
func placeOf(n *yaml.Node) place {
	value := func(keys ...string) string {
		if v := find(n, keys...); v != nil {
			return v.Value
		}
		return ""
	}
	return place{value("socket_address", "address"), value("socket_address", "port_value"), value("pipe", "path")}
}

var (
	hostName   = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	socketPath = regexp.MustCompile(`^/[A-Za-z0-9/._@-]+$`)
)

// parse reads the address of a flag. was is the place in the file.
func parse(text string, was place, listens bool) (place, error) {
	if path, ok := strings.CutPrefix(text, "unix://"); ok && !listens {
		if !socketPath.MatchString(path) {
			return place{}, fmt.Errorf("%q: expected the path of a socket: unix:///PATH", text)
		}
		return place{path: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	_, ipErr := netip.ParseAddr(host)
	switch {
	case err != nil || portErr != nil || number == 0 && !listens:
		return place{}, fmt.Errorf("%q: expected HOST:PORT", text)
	case was.path != "":
		return place{}, fmt.Errorf("%q: this shape calls a unix socket: write unix:///PATH", text)
	case host == "":
		host = was.host
	case ipErr != nil && listens:
		return place{}, fmt.Errorf("%q: expected IP:PORT or :PORT", text)
	case ipErr != nil && !hostName.MatchString(host):
		return place{}, fmt.Errorf("%q: %q is not the name of a host", text, host)
	}
	return place{host: host, port: strconv.FormatUint(number, 10)}, nil
}

// An editor changes lines of a file, so that its comments stay.
type editor struct{ lines []string }

// move gives a listener, a cluster or the admin interface another address.
func (e *editor) move(in *yaml.Node, text string, listens bool) error {
	at := find(in, "address")
	if at == nil {
		at = find(in, "load_assignment", "endpoints", "", "lb_endpoints", "", "endpoint", "address")
	}
	if at == nil {
		return errors.New("this shape has no such address")
	}
	was := placeOf(at)
	is, err := parse(text, was, listens)
	if err != nil || is == was {
		return err
	}
	e.put(at, is.yaml())
	_, ipErr := netip.ParseAddr(is.host)
	switch kind := find(in, "type"); {
	case kind == nil:
	case is.path != "":
		e.put(kind, "STATIC")
	case ipErr != nil:
		e.put(kind, "STRICT_DNS")
	}
	if ipErr != nil && is.host != "" { // the certificate has the name that Envoy calls
		e.scalars(in, "sni", was.host, strconv.Quote(is.host))
		e.scalars(in, "exact", was.host, strconv.Quote(is.host))
	}
	e.comments(was, is, listens)
	return nil
}

// comments writes the new address into the comments that have the old one.
func (e *editor) comments(was, is place, listens bool) {
	old, now := was.String(), is.String()
	if listens {
		old, now = " :"+was.port+" ", " :"+is.port+" "
	}
	for i, line := range e.lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		line = strings.ReplaceAll(line, old, now)
		if was.path != "" {
			line = strings.ReplaceAll(line, " "+path.Dir(was.path)+".", " "+path.Dir(is.path)+".")
		}
		e.lines[i] = line
	}
}

// scalars gives all scalars of a key another text, those with the value was. Empty: any value.
func (e *editor) scalars(in *yaml.Node, key, was, is string) {
	for i, n := range in.Content {
		value := n.Kind == yaml.ScalarNode && in.Kind == yaml.MappingNode && i%2 == 1
		if value && in.Content[i-1].Value == key && (was == "" || n.Value == was) && strconv.Quote(n.Value) != is {
			line := e.lines[n.Line-1]
			begin, end := n.Column-1, n.Column-1+len(n.Value)
			e.lines[n.Line-1] = line[:begin] + is + line[end:]
		}
		e.scalars(n, key, was, is)
	}
}

// put replaces the rest of the line at a node.
func (e *editor) put(n *yaml.Node, text string) {
	e.lines[n.Line-1] = e.lines[n.Line-1][:n.Column-1] + text + "\n"
}

// find returns the node at a path of keys, or nil. The key "" is the first entry of a list.
func find(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n == nil {
			return nil
		}
		var next *yaml.Node
		for i := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode && key == "":
				next = n.Content[0]
			case n.Kind == yaml.MappingNode && i%2 == 0 && n.Content[i].Value == key:
				next = n.Content[i+1]
			}
		}
		n = next
	}
	return n
}

// named returns the entry of a list that has a name, or nil.
func named(list *yaml.Node, name string) *yaml.Node {
	for _, n := range list.Content {
		if v := find(n, "name"); v != nil && v.Value == name {
			return n
		}
	}
	return nil
}
