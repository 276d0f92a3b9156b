package settings

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// compare checks compare.
func (l *settingsLoader) compare() {
	s, d := &l.settings.Compare, Default().Compare
	l.clientTLS("compare.tls", s.TLS)
	if s.Address == "" {
		for _, other := range []struct {
			path  string
			given bool
		}{
			{"compare.share", s.Share != d.Share},
			{"compare.timeout", s.Timeout != d.Timeout},
			{"compare.max_in_flight", s.MaxInFlight != d.MaxInFlight},
			{"compare.tls.enabled", s.TLS.Enabled},
		} {
			if other.given {
				l.problem(other.path, "nothing is compared: compare.address is not set")
			}
		}
		return
	}
	if message := Address(s.Address).check(false); message != "" {
		l.problem("compare.address", "%s", message)
		return
	}
	host, port, _ := net.SplitHostPort(s.Address)
	switch {
	case host == "":
		l.problem("compare.address", "%s has no host: expected host:port", strict.Quote(s.Address))
	case port == "0":
		l.problem("compare.address", "%s: the port cannot be 0", strict.Quote(s.Address))
	case slices.ContainsFunc(l.settings.GRPC.Address, func(own Address) bool { return isOwn(own, host, port) }):
		l.problem("compare.address", "%s is an address of grpc.address: rls would compare with itself", strict.Quote(s.Address))
	}
	if s.Share == 0 {
		l.problem("compare.share", "a share of 0%% compares nothing: set a larger one, or remove compare.address")
	}
}

// isOwn reports whether host:port leads to a listener of this process, as far as the texts
// tell.
func isOwn(own Address, host, port string) bool {
	ownHost, ownPort, err := net.SplitHostPort(string(own))
	if err != nil || ownPort != port {
		return false // a unix socket, or another port
	}
	here := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || strings.EqualFold(host, "localhost") || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
	}
	return strings.EqualFold(ownHost, host) || here(ownHost) && here(host)
}
