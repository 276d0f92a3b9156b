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
func certificates(in *Input, c *called) {
	if in.Live == nil || c.tls == nil {
		return
	}
	files, discovered := c.tls.Files()
	for _, cert := range in.Live.Certificates {
		if cert.Days < soon && (discovered || slices.Contains(files, cert.Path)) {
			c.add(CertificateExpires, "every request after that day, if failure_mode_deny is off", "Renew the certificate. Envoy reads the file again only at its start, or with SDS.",
				"The certificate %s expires in %d days. Then every call to rls fails.", cert.Path, cert.Days)
		}
	}
}

// process checks the admin port, and whether Envoy runs the newest configuration.
func process(in *Input) []Finding {
	if in.Service.Settings == nil {
		in.NotRead("settings of rls: give --config, and addresses, TLS and authorization are compared, too")
	}
	out := &found{where: "admin port " + text(in.Admin)}
	if ip, err := netip.ParseAddr(in.Admin.Socket.Address); err == nil && !ip.IsLoopback() {
		out.add(AdminExposed, "", "Open it on 127.0.0.1 only.", "The admin port is open to other machines. Each can switch limits off, stop Envoy and read its secrets.")
	}
	for _, name := range slices.Sorted(maps.Keys(in.Rejected)) {
		out.where = "listener " + name
		out.add(ListenerRejected, "what the old version lets pass", "Repair what the message names.", "Envoy has rejected the last version of the listener and runs an older one: %s", in.Rejected[name])
	}
	seen := make(map[string]bool)
	for _, m := range in.Managers {
		if name := m.RDS.Name; name != "" && !seen[name] && in.Live != nil {
			out.where, seen[name] = "routes "+name+" of "+m.Where, true
			in.rejectedRoutes(name, out)
		}
	}
	return out.all
}

// rejectedRoutes looks at the counters of a route configuration. They do not say which update came last.
func (in *Input) rejectedRoutes(name string, out *found) {
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
	f := out.add(RoutesRejected, "what the old version lets pass", "Look at Envoy's log for the reason.", "Envoy has rejected %d updates of these routes and accepted %d. It may run an older version.", rejected, accepted)
	if rejected < accepted {
		f.Severity = Warning
	}
}
