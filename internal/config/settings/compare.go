package settings

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

func (l *settingsLoader) compare() {
	s := &l.settings.Compare
	if s.Address == "" {
		if s.Fraction != 1 {
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
	case slices.ContainsFunc(l.settings.GRPC.Address, func(a Address) bool { return isListener(a, host, port) }):
		l.problem("compare.address", "%s is an address of grpc.address: rls would charge each compared request twice", strict.Quote(s.Address))
	}
	if s.Fraction == 0 {
		l.problem("compare.share", "0%% compares nothing: set a larger percentage, or remove compare.address")
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

// isListener reports whether host:port leads to a listener of this process, by the texts alone.
func isListener(a Address, host, port string) bool {
	listenHost, listenPort, err := net.SplitHostPort(string(a))
	if err != nil || listenPort != port {
		return false // a unix socket, or another port
	}
	here := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || strings.EqualFold(host, "localhost") || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
	}
	return strings.EqualFold(listenHost, host) || here(listenHost) && here(host)
}
