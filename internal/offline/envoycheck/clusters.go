package envoycheck

import (
	"fmt"
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
	by    string
	hosts []envoydump.Host // nil: unknown
	tls   *envoydump.UpstreamTLS
}

func (c *called) where() string { return "cluster " + c.Name }

// callees returns the clusters that the filters of the checked listeners call. Those that Envoy does not
// have are findings.
func (in *Input) callees() (all []*called, missing []Finding) {
	seen := make(map[string]bool)
	add := func(by string, call envoydump.Call) {
		name := call.Envoy.Cluster
		if name == "" {
			in.NotRead("the service that %s calls", by)
			return
		}
		if seen[name] {
			return
		}
		seen[name] = true
		if c := in.Clusters[name]; c != nil {
			all = append(all, in.called(c, by))
			return
		}
		missing = append(missing, Finding{
			Code: NoCluster, Where: "cluster " + name, Passes: noLimit, Fix: "Name the cluster of rls in the filter, or add the cluster.",
			Message: fmt.Sprintf("Envoy has no such cluster, and the %s calls it.", by),
		})
	}
	for _, m := range in.Managers {
		for _, f := range m.Limits {
			add(f.of(m), f.Service.Call)
		}
		for _, f := range m.Authorizations {
			add(f.of(m), f.Call)
		}
	}
	return all, missing
}

func (in *Input) called(c *envoydump.Cluster, by string) *called {
	out := &called{Cluster: c, by: by}
	if in.Live != nil {
		out.hosts = append([]envoydump.Host{}, in.Live.Hosts[c.Name]...)
	}
	if c.TransportSocket != nil {
		out.tls, _ = c.TransportSocket.Config.Message.(*envoydump.UpstreamTLS)
	}
	return out
}

// clusters checks the clusters of rls.
func clusters(in *Input) []Finding {
	callees, all := in.callees()
	for _, c := range callees {
		for _, check := range []func(*Input, *called) []Finding{protocol, secure, bounds, endpoints, certificates, counters} {
			all = append(all, check(in, c)...)
		}
	}
	return all
}

// protocol: gRPC needs HTTP/2.
func protocol(in *Input, c *called) []Finding {
	options, _ := c.options()
	switch {
	case c.HTTP2 != nil, options != nil && (options.Auto != nil || options.Explicit != nil && options.Explicit.HTTP1 == nil):
		return nil
	case options != nil && options.Downstream != nil:
		in.NotRead("the protocol of %s, which follows that of the client", c.where())
		return nil
	}
	return []Finding{{
		Code: ClusterHTTP1, Where: c.where(), Passes: noLimit, Fix: "Add http2_protocol_options to explicit_http_config.",
		Message: "The cluster has HTTP/1.1, and gRPC needs HTTP/2: every call fails.",
	}}
}

func (c *called) options() (*envoydump.HTTPOptions, bool) {
	for _, any := range c.Options {
		if o, ok := any.Message.(*envoydump.HTTPOptions); ok {
			return o, true
		}
	}
	return nil, false
}

// secure compares TLS on both sides.
func secure(in *Input, c *called) (all []Finding) {
	if c.TransportSocket != nil && c.tls == nil && !strings.HasSuffix(c.TransportSocket.Config.Type, "RawBuffer") || len(c.SocketMatches) > 0 {
		in.NotRead("transport socket of %s", c.where())
		return nil
	}
	if s := in.Service.Settings; s != nil && !c.answered() && !c.socket() && s.GRPC.TLS.On() != (c.tls != nil) {
		f := Finding{Code: TLSMismatch, Where: c.where(), Passes: noLimit, Message: "Envoy calls rls in plain text, and rls expects TLS.", Fix: "Add a transport_socket with TLS to the cluster."}
		if c.tls != nil {
			f.Message, f.Fix = "Envoy calls rls over TLS, and rls expects plain text.", "Remove the transport_socket, or set grpc.tls in rls."
		}
		all = append(all, f)
	}
	if t := c.tls; t != nil && t.Common.Validation == nil && t.Common.Combined == nil && t.Common.SDS == nil {
		all = append(all, Finding{
			Code: TLSNotVerified, Where: c.where(), Fix: "Add a validation_context with trusted_ca and a name.",
			Message: "Envoy does not verify the certificate of rls: any server at this address may answer.",
		})
	}
	return all
}

// answered reports whether rls has answered a call.
func (c *called) answered() bool {
	return slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return h.Stat("rq_success") > 0 })
}

// socket reports whether Envoy calls a unix socket.
func (c *called) socket() bool {
	return slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return h.Address.Pipe.Path != "" })
}

// fewCalls is how many calls at a time a busy Envoy may need.
const fewCalls = 100

// bounds checks how many calls may be under way, and what takes an endpoint out.
func bounds(_ *Input, c *called) (all []Finding) {
	requests, connections := false, uint64(1024)
	for _, t := range c.Breakers.Thresholds {
		if t.Priority == "" || t.Priority == "DEFAULT" {
			requests = t.Requests != nil
			if t.Connections != nil {
				connections = uint64(*t.Connections)
			}
		}
	}
	if !requests {
		all = append(all, Finding{
			Code: BreakerDefault, Where: c.where(), Passes: "requests beyond 1024 calls at a time", Fix: "Set max_requests: 16384 in circuit_breakers.",
			Message: "At most 1024 calls may be under way, Envoy's default. If rls is slow for a moment, Envoy asks it about no further request.",
		})
	}
	streams := c.HTTP2
	if o, ok := c.options(); ok && o.Explicit != nil {
		streams = o.Explicit.HTTP2
	}
	if streams != nil && streams.Streams != nil && uint64(*streams.Streams)*connections < fewCalls {
		all = append(all, Finding{
			Code: CallsQueue, Where: c.where(), Passes: "requests whose call waits too long", Fix: "Remove max_concurrent_streams.",
			Message: fmt.Sprintf("At most %d calls may be under way on all connections. Others wait, and may time out.", uint64(*streams.Streams)*connections),
		})
	}
	if c.Outliers != nil {
		all = append(all, Finding{
			Code: OutlierDetection, Where: c.where(), Passes: "requests while rls is ejected", Fix: "Remove outlier_detection. Health checks find an instance that is gone.",
			Message: "Outlier detection may eject rls after a few calls that time out.",
		})
	}
	return all
}

// endpoints checks where Envoy calls rls, and whether it regards the endpoints as healthy.
func endpoints(in *Input, c *called) (all []Finding) {
	if c.hosts == nil {
		if c.Type != "EDS" && !slices.ContainsFunc(c.Assignment.Endpoints, hasEndpoint) {
			all = append(all, noEndpoint(c))
		}
		return all
	}
	if len(c.hosts) == 0 {
		return append(all, noEndpoint(c))
	}
	all = append(all, in.otherAddress(c)...)
	down := 0
	for _, h := range c.hosts {
		if h.Health.FailedCheck || h.Health.FailedOutlier {
			down++
		}
	}
	for _, h := range c.hosts {
		f := Finding{Code: EndpointOut, Severity: Warning, Where: c.where(), Fix: "Look at the log and the health of rls there, and at the network between."}
		switch {
		case h.Health.FailedOutlier && down == len(c.hosts) && c.LB.Panic != nil && c.LB.Panic.Value == 0:
			f.Severity, f.Passes, f.Fix = Error, noLimit, "Remove outlier_detection, or set healthy_panic_threshold above 0."
			f.Message = "Outlier detection has ejected the endpoint " + text(h.Address) + ", and healthy_panic_threshold is 0: Envoy does not call rls."
		case h.Health.FailedOutlier:
			f.Fix = "Remove outlier_detection."
			f.Message = "Outlier detection has ejected the endpoint " + text(h.Address) + "."
			if down == len(c.hosts) {
				f.Message += " Envoy calls it only because no other is left."
			}
		case h.Health.FailedCheck:
			f.Message = "The endpoint " + text(h.Address) + " does not pass its health checks."
			if down == len(c.hosts) {
				f.Severity, f.Passes = Error, noLimit
				f.Message += " No other endpoint is left."
			}
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}

func noEndpoint(c *called) Finding {
	return Finding{
		Code: NoEndpoint, Where: c.where(), Passes: noLimit, Fix: "Add the address of rls. If it is a name, check that it resolves.",
		Message: "The cluster has no endpoint, and the " + c.by + " calls it.",
	}
}

func hasEndpoint(l envoydump.Locality) bool { return len(l.LB) > 0 }

// otherAddress says so if no endpoint is an address of rls, and rls has answered no call. An address in
// front of rls may differ from its own, and then calls have answers.
func (in *Input) otherAddress(c *called) []Finding {
	if in.Service.Settings == nil || c.answered() {
		return nil
	}
	own, known := in.Service.Settings.GRPC.Address, false
	var calls, listens []string
	failed := uint64(0)
	for _, h := range c.hosts {
		calls = append(calls, text(h.Address))
		failed += h.Stat("cx_connect_fail") + h.Stat("rq_error") + h.Stat("rq_total")
		for _, address := range own {
			if reaches(h.Address, string(address)) {
				return nil
			}
		}
	}
	for _, address := range own {
		listens = append(listens, string(address))
		known = known || !strings.HasSuffix(string(address), ":0")
	}
	if !known {
		return nil
	}
	f := Finding{
		Code: OtherAddress, Where: c.where(), Passes: noLimit, Fix: "Call one of the addresses of grpc.address.",
		Message: fmt.Sprintf("Envoy calls %s, and rls listens for Envoy on %s. No call has succeeded.", strings.Join(calls, ", "), strings.Join(listens, ", ")),
	}
	if failed == 0 {
		f.Severity, f.Message = Warning, strings.TrimSuffix(f.Message, ".")+", and none has failed."
	}
	return []Finding{f}
}

// reaches reports whether an endpoint may be an address on which rls listens.
func reaches(a envoydump.Address, own string) bool {
	if path, ok := strings.CutPrefix(own, "unix://"); ok || a.Pipe.Path != "" {
		return ok && path == a.Pipe.Path
	}
	host, port, err := net.SplitHostPort(own)
	if err != nil || port != strconv.Itoa(a.Socket.Port) {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || ip.IsUnspecified() || host == a.Socket.Address
}

// text is an address as people write it.
func text(a envoydump.Address) string {
	if a.Pipe.Path != "" {
		return a.Pipe.Path
	}
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(a.Socket.Port))
}
