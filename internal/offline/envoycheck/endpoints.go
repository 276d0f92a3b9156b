package envoycheck

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// endpoints checks where Envoy calls rls, and whether it regards the endpoints as healthy.
func endpoints(in *Input, c *called) {
	known := c.hosts != nil
	if known && len(c.hosts) == 0 || !known && c.Type != "EDS" && !slices.ContainsFunc(c.Assignment.Endpoints, func(l envoydump.Locality) bool { return len(l.LB) > 0 }) {
		c.add(NoEndpoint, notAsked, "Add the address of rls. If it is a name, check that it resolves.", "The cluster has no endpoint, and the %s calls it.", c.by)
		return
	}
	otherAddress(in, c)
	allOut := !slices.ContainsFunc(c.hosts, func(h envoydump.Host) bool { return !h.Out() })
	for _, h := range c.hosts {
		at := text(h.Address)
		switch {
		case !h.Out():
		case !h.Health.FailedOutlier && allOut:
			c.add(EndpointOut, notAsked, "Look at the log and the health of rls there, and at the network between.", "The endpoint %s does not pass its health checks. No other endpoint is left.", at).Severity = Error
		case !h.Health.FailedOutlier:
			c.add(EndpointOut, "", "Look at the log and the health of rls there, and at the network between.", "The endpoint %s does not pass its health checks.", at).Severity = Warning
		case allOut && c.LB.Panic != nil && c.LB.Panic.Value == 0:
			c.add(EndpointOut, notAsked, "Remove outlier_detection, or set healthy_panic_threshold above 0.",
				"Outlier detection has ejected the endpoint %s, and healthy_panic_threshold is 0: Envoy does not call rls.", at)
		case allOut:
			c.add(EndpointOut, "", "Remove outlier_detection.", "Outlier detection has ejected the endpoint %s. Envoy calls it only because no other is left.", at).Severity = Warning
		default:
			c.add(EndpointOut, "", "Remove outlier_detection.", "Outlier detection has ejected the endpoint %s.", at).Severity = Warning
		}
	}
}

// otherAddress says so if no endpoint is an address of rls, and rls has answered no call. A proxy in
// front of rls may have another address, and then calls have answers.
func otherAddress(in *Input, c *called) {
	if in.Service.Settings == nil || c.answered() || len(c.hosts) == 0 {
		return
	}
	var called, listens []string
	failed := false
	for _, a := range in.Service.Settings.GRPC.Address {
		if strings.HasSuffix(string(a), ":0") {
			return // any port
		}
		listens = append(listens, string(a))
	}
	for _, h := range c.hosts {
		if slices.ContainsFunc(listens, func(a string) bool { return reaches(h.Address, a) }) {
			return
		}
		called = append(called, text(h.Address))
		failed = failed || h.Stat("cx_connect_fail")+h.Stat("rq_total") > 0
	}
	f := c.add(OtherAddress, notAsked, "Call one of the addresses of grpc.address.", "Envoy calls %s, and rls listens for Envoy on %s. No call has succeeded.", strings.Join(called, ", "), strings.Join(listens, ", "))
	if !failed {
		f.Severity = Warning // nothing was tried
	}
}

// reaches reports whether an endpoint may be an address on which rls listens.
func reaches(a envoydump.Address, listens string) bool {
	if path, ok := strings.CutPrefix(listens, "unix://"); ok || a.Pipe.Path != "" {
		return ok && path == a.Pipe.Path
	}
	host, port, err := net.SplitHostPort(listens)
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
