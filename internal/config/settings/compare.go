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
	s := &l.settings.Compare
	if s.Address == "" {
		if s.Share != 1 {
			l.problem("compare.share", "nothing is compared: compare.address is not set")
		}
		return
	}
	if !l.remote("compare.address", Address(s.Address), false) {
		return
	}
	host, port, _ := net.SplitHostPort(s.Address)
	switch {
	case host == "":
		l.problem("compare.address", "%s has no host: expected host:port", strict.Quote(s.Address))
	case slices.ContainsFunc(l.settings.GRPC.Address, func(own Address) bool { return isOwn(own, host, port) }):
		l.problem("compare.address", "%s is an address of grpc.address: rls would charge each compared request twice", strict.Quote(s.Address))
	}
	if s.Share == 0 {
		l.problem("compare.share", "a share of 0%% compares nothing: set a larger one, or remove compare.address")
	}
}

// remote checks the address of another service. socket: it may be a unix socket. It reports
// whether the address is valid.
func (l *settingsLoader) remote(path string, a Address, socket bool) bool {
	message := a.check(socket)
	if message == "" && strings.HasSuffix(string(a), ":0") {
		message = strict.Quote(string(a)) + ": the port cannot be 0"
	}
	if message != "" {
		l.problem(path, "%s", message)
	}
	return message == ""
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
