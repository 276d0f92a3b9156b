package envoycheck

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

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

// process checks the admin port, and whether Envoy runs the newest configuration.
func (in *input) process() {
	if in.service.Settings == nil {
		in.notRead("settings of rls: give --config, and addresses, TLS and authorization are compared, too")
	}
	if ip, err := netip.ParseAddr(in.Admin.Socket.Address); err == nil && !ip.IsLoopback() {
		in.report(adminExposed, "admin port "+text(in.Admin), "The admin port is open to other machines. Each can switch limits off, stop Envoy and read its secrets.")
	}
	for _, name := range slices.Sorted(maps.Keys(in.Rejected)) {
		in.report(listenerRejected, "listener "+name, "Envoy has rejected the last version of the listener and runs an older one: %s", in.Rejected[name])
	}
	seen := make(map[string]bool)
	for _, m := range in.managers {
		if name := m.RDS.Name; name != "" && !seen[name] && in.Live != nil {
			seen[name] = true
			in.rejectedRoutes(name, m)
		}
	}
}

// rejectedRoutes looks at the counters of a route configuration. They do not say which update came last.
func (in *input) rejectedRoutes(name string, m *manager) {
	of := ".rds." + strings.ReplaceAll(name, ":", "_") + ".update_"
	var rejected, accepted uint64
	for name, n := range in.Live.Stats {
		switch {
		case strings.HasSuffix(name, of+"rejected"):
			rejected += n
		case strings.HasSuffix(name, of+"success"):
			accepted += n
		}
	}
	if rejected == 0 {
		return
	}
	f := in.report(routesRejected, "routes "+name+" of "+m.where, "Envoy has rejected %d updates of these routes and accepted %d. It may run an older version.", rejected, accepted)
	if rejected < accepted {
		f.Severity = Warning
	}
}
