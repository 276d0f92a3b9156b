package envoycheck

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// A called is a cluster of rls, and a filter that calls it.
type called struct {
	*envoydump.Cluster
	where, by string
	hosts     []envoydump.Host // nil: unknown
	tls       *envoydump.UpstreamTLS
}

// clusters checks the clusters that the filters of the checked listeners call.
func (in *input) clusters() {
	seen := make(map[string]bool)
	check := func(f *filter, call envoydump.Call) {
		name := call.Envoy.Cluster
		switch c := in.Clusters[name]; {
		case name == "":
			in.notRead("the service that the %s calls", f.where())
		case seen[name]:
		case c == nil:
			in.report(noCluster, "cluster "+name, "Envoy has no such cluster, and the %s calls it.", f.where())
		case c.Custom.Config.Type == "aggregate.ClusterConfig":
			in.notRead("the clusters of the aggregate cluster %s", name)
		default:
			out := &called{Cluster: c, where: "cluster " + name, by: f.where()}
			if in.Live != nil && in.Live.Hosts != nil {
				out.hosts = append([]envoydump.Host{}, in.Live.Hosts[name]...)
			}
			if c.TransportSocket != nil {
				out.tls, _ = c.TransportSocket.Config.Message.(*envoydump.UpstreamTLS)
			}
			for _, check := range []func(*called){in.protocol, in.secure, in.bounds, in.endpoints, in.certificates, in.calls} {
				check(out)
			}
		}
		seen[name] = true
	}
	for _, m := range in.managers {
		for _, f := range m.limits {
			check(&f.filter, f.Service.Call)
		}
		for _, f := range m.authorizations {
			check(&f.filter, f.Call)
		}
	}
}

// options are the protocols of the cluster. Without any it has HTTP/1.1, or that of the field HTTP2.
func (c *called) options() (o envoydump.HTTPOptions) {
	for _, options := range c.Options {
		if o, ok := options.Message.(*envoydump.HTTPOptions); ok {
			return *o
		}
	}
	return o
}

// protocol: gRPC needs HTTP/2.
func (in *input) protocol(c *called) {
	switch o := c.options(); {
	case c.HTTP2 != nil, o.Auto != nil, o.Explicit != nil && o.Explicit.HTTP1 == nil:
	case o.Downstream != nil:
		in.notRead("the protocol of %s, which follows that of the client", c.where)
	default:
		in.report(clusterHTTP1, c.where, "The cluster has HTTP/1.1, and gRPC needs HTTP/2: every call fails.")
	}
}

// secure compares TLS on both sides.
func (in *input) secure(c *called) {
	if c.TransportSocket != nil && c.tls == nil && !strings.HasSuffix(c.TransportSocket.Config.Type, "RawBuffer") || len(c.SocketMatches) > 0 {
		in.notRead("transport socket of %s", c.where)
		return
	}
	socket := slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return h.Address.Pipe.Path != "" }) // without TLS
	if s := in.service.Settings; s != nil && !socket && !c.answered() && s.GRPC.TLS.On() != (c.tls != nil) {
		if c.tls != nil {
			in.report(tlsMismatch, c.where, "Envoy calls rls over TLS, and rls expects plain text.")
		} else {
			in.report(tlsMismatch, c.where, "Envoy calls rls in plain text, and rls expects TLS.").Fix = "Add a transport_socket with TLS to the cluster."
		}
	}
	if c.tls != nil && !c.tls.Verifies() {
		in.report(tlsNotVerified, c.where, "Envoy does not verify the certificate of rls: any server at this address may answer.")
	}
}

// answered reports whether rls has answered a call.
func (c *called) answered() bool {
	return slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return h.Stat("rq_success") > 0 })
}

const (
	// defaultBound is Envoy's own for calls under way, and for connections.
	defaultBound = 1024
	// fewCalls is how many calls at a time a busy Envoy may need.
	fewCalls = 100
)

// bounds checks how many calls may be under way, and what takes an endpoint out.
func (in *input) bounds(c *called) {
	requests, connections := uint64(defaultBound), uint64(defaultBound)
	for _, t := range c.Breakers.Thresholds {
		if t.Priority != "" && t.Priority != "DEFAULT" {
			continue
		}
		if t.Requests != nil {
			requests = uint64(*t.Requests)
		}
		if t.Connections != nil {
			connections = uint64(*t.Connections)
		}
	}
	if requests <= defaultBound {
		in.report(breakerDefault, c.where, "At most %d calls may be under way; Envoy's default is %d. If rls is slow for a moment, Envoy asks it about no further request.", requests, defaultBound)
	}
	streams := c.HTTP2
	if o := c.options(); o.Explicit != nil {
		streams = o.Explicit.HTTP2
	}
	if streams != nil && streams.Streams != nil && uint64(*streams.Streams)*connections < fewCalls {
		in.report(callsQueue, c.where, "At most %d calls may be under way on all connections. Others wait, and may time out.", uint64(*streams.Streams)*connections)
	}
	if c.Outliers != nil {
		in.report(outlierDetection, c.where, "Outlier detection may eject rls after a few calls that time out.")
	}
}

// endpoints checks where Envoy calls rls, and whether it regards the endpoints as healthy.
func (in *input) endpoints(c *called) {
	assignment := &c.Assignment
	if c.Type == "EDS" {
		assignment = in.Assignments[cmp.Or(c.EDS.Service, c.Name)] // nil: the dump does not have endpoints
	}
	if c.hosts != nil && len(c.hosts) == 0 || c.hosts == nil && assignment != nil && assignment.Empty() {
		in.report(noEndpoint, c.where, "The cluster has no endpoint, and the %s calls it.", c.by)
		return
	}
	in.addresses(c)
	allOut := !slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return !h.Out() })
	for _, h := range c.hosts {
		at := text(h.Address)
		switch {
		case !h.Out():
		case !h.Health.FailedOutlier && allOut:
			in.report(endpointOut, c.where, "The endpoint %s does not pass its health checks. No other endpoint is left.", at)
		case !h.Health.FailedOutlier:
			f := in.report(endpointOut, c.where, "The endpoint %s does not pass its health checks.", at)
			f.Severity, f.Passes = Warning, ""
		case allOut && c.LB.Panic != nil && c.LB.Panic.Value == 0:
			f := in.report(endpointEjected, c.where, "Outlier detection has ejected the endpoint %s, and healthy_panic_threshold is 0: Envoy does not call rls.", at)
			f.Severity, f.Passes, f.Fix = Error, notAsked, "Remove outlier_detection, or set healthy_panic_threshold above 0."
		case allOut:
			in.report(endpointEjected, c.where, "Outlier detection has ejected the endpoint %s. Envoy calls it only because no other is left.", at)
		default:
			in.report(endpointEjected, c.where, "Outlier detection has ejected the endpoint %s.", at)
		}
	}
}

// addresses says so if no endpoint is an address of rls, and rls has answered no call. A proxy in
// front of rls may have another address, and then calls have answers.
func (in *input) addresses(c *called) {
	if in.service.Settings == nil || c.answered() || len(c.hosts) == 0 {
		return
	}
	var called, listens []string
	failed := false
	for _, a := range in.service.Settings.GRPC.Address {
		listens = append(listens, string(a))
	}
	for _, h := range c.hosts {
		if slices.ContainsFunc(listens, func(a string) bool { return reaches(h.Address, a) }) {
			return
		}
		called = append(called, text(h.Address))
		failed = failed || h.Stat("cx_connect_fail")+h.Stat("rq_total") > 0
	}
	f := in.report(otherAddress, c.where, "Envoy calls %s, and rls listens for Envoy on %s. No call has succeeded.", strings.Join(called, ", "), strings.Join(listens, ", "))
	if !failed {
		f.Severity = Warning // nothing was tried
	}
}

// reaches reports whether an endpoint may be an address on which rls listens. Port 0 is any port.
func reaches(a envoydump.Address, listens string) bool {
	if path, ok := strings.CutPrefix(listens, "unix://"); ok || a.Pipe.Path != "" {
		return ok && path == a.Pipe.Path
	}
	host, port, err := net.SplitHostPort(listens)
	if port == "0" {
		return true
	}
	ip, notIP := netip.ParseAddr(host)
	return err == nil && port == strconv.Itoa(a.Socket.Port) && (notIP != nil || ip.IsUnspecified() || host == a.Socket.Address)
}

// text is an address as people write it.
func text(a envoydump.Address) string {
	if a.Pipe.Path != "" {
		return a.Pipe.Path
	}
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(a.Socket.Port))
}

// soon is in how many days the end of a certificate is worth a warning.
const soon = 14

// certificates checks how long the certificates are valid with which Envoy calls rls.
func (in *input) certificates(c *called) {
	if in.Live == nil || c.tls == nil {
		return
	}
	files, discovered := c.tls.Files()
	for _, cert := range in.Live.Certificates {
		if cert.Days < soon && (discovered || slices.Contains(files, cert.Path)) {
			in.report(certificateExpires, c.where, "The certificate %s expires in %d days. Then every call to rls fails.", cert.Path, cert.Days)
		}
	}
}
