package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// A called is a cluster of rls, and a filter that calls it.
type called struct {
	*envoydump.Cluster
	found
	by    string
	hosts []envoydump.Host // nil: unknown
	tls   *envoydump.UpstreamTLS
}

// clusters checks the clusters that the filters of the checked listeners call.
func clusters(in *Input) (all []Finding) {
	seen := make(map[string]bool)
	check := func(by string, call envoydump.Call) {
		name := call.Envoy.Cluster
		switch c := in.Clusters[name]; {
		case name == "":
			in.NotRead("the service that the %s calls", by)
		case seen[name]:
		case c == nil:
			out := found{where: "cluster " + name}
			out.add(NoCluster, notAsked, "Name the cluster of rls in the filter, or add the cluster.", "Envoy has no such cluster, and the %s calls it.", by)
			all = append(all, out.all...)
		default:
			out := &called{Cluster: c, found: found{where: "cluster " + name}, by: by}
			if in.Live != nil && in.Live.Hosts != nil {
				out.hosts = append([]envoydump.Host{}, in.Live.Hosts[name]...)
			}
			if c.TransportSocket != nil {
				out.tls, _ = c.TransportSocket.Config.Message.(*envoydump.UpstreamTLS)
			}
			for _, check := range []func(*Input, *called){protocol, secure, bounds, endpoints, certificates, calls} {
				check(in, out)
			}
			all = append(all, out.all...)
		}
		seen[name] = true
	}
	for _, m := range in.Managers {
		for _, f := range m.Limits {
			check(f.of(m), f.Service.Call)
		}
		for _, f := range m.Authorizations {
			check(f.of(m), f.Call)
		}
	}
	return all
}

// options are the protocols of the cluster. Nil: HTTP/1.1, or those of the field HTTP2.
func (c *called) options() *envoydump.HTTPOptions {
	for _, options := range c.Options {
		if o, ok := options.Message.(*envoydump.HTTPOptions); ok {
			return o
		}
	}
	return nil
}

// protocol: gRPC needs HTTP/2.
func protocol(in *Input, c *called) {
	o := c.options()
	switch {
	case c.HTTP2 != nil, o != nil && (o.Auto != nil || o.Explicit != nil && o.Explicit.HTTP1 == nil):
	case o != nil && o.Downstream != nil:
		in.NotRead("the protocol of %s, which follows that of the client", c.where)
	default:
		c.add(ClusterHTTP1, notAsked, "Add http2_protocol_options to explicit_http_config.", "The cluster has HTTP/1.1, and gRPC needs HTTP/2: every call fails.")
	}
}

// secure compares TLS on both sides.
func secure(in *Input, c *called) {
	if c.TransportSocket != nil && c.tls == nil && !strings.HasSuffix(c.TransportSocket.Config.Type, "RawBuffer") || len(c.SocketMatches) > 0 {
		in.NotRead("transport socket of %s", c.where)
		return
	}
	socket := slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return h.Address.Pipe.Path != "" }) // without TLS
	if s := in.Service.Settings; s != nil && !socket && !c.answered() && s.GRPC.TLS.On() != (c.tls != nil) {
		if c.tls != nil {
			c.add(TLSMismatch, notAsked, "Remove the transport_socket, or set grpc.tls in rls.", "Envoy calls rls over TLS, and rls expects plain text.")
		} else {
			c.add(TLSMismatch, notAsked, "Add a transport_socket with TLS to the cluster.", "Envoy calls rls in plain text, and rls expects TLS.")
		}
	}
	if c.tls != nil && !c.tls.Verifies() {
		c.add(TLSNotVerified, "", "Add a validation_context with trusted_ca and a name.", "Envoy does not verify the certificate of rls: any server at this address may answer.")
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
func bounds(_ *Input, c *called) {
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
		c.add(BreakerDefault, fmt.Sprintf("requests beyond %d calls at a time", requests), "Set max_requests: 16384 in circuit_breakers.",
			"At most %d calls may be under way; Envoy's default is %d. If rls is slow for a moment, Envoy asks it about no further request.", requests, defaultBound)
	}
	streams := c.HTTP2
	if o := c.options(); o != nil && o.Explicit != nil {
		streams = o.Explicit.HTTP2
	}
	if streams != nil && streams.Streams != nil {
		if most := uint64(*streams.Streams) * connections; most < fewCalls {
			c.add(CallsQueue, "requests whose call waits too long", "Remove max_concurrent_streams.", "At most %d calls may be under way on all connections. Others wait, and may time out.", most)
		}
	}
	if c.Outliers != nil {
		c.add(OutlierDetection, "requests while rls is ejected", "Remove outlier_detection. Health checks find an instance that is gone.", "Outlier detection may eject rls after a few calls that time out.")
	}
}
