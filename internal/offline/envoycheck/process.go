package envoycheck

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// soon is in how many days the end of a certificate is worth a warning.
const soon = 14

// certificates checks how long the certificates are valid with which Envoy calls rls.
func certificates(in *Input, c *called) (all []Finding) {
	if in.Live == nil || c.tls == nil {
		return nil
	}
	files := c.tls.Files()
	for _, cert := range in.Live.Certificates {
		if slices.Contains(files, cert.Path) && cert.Days < soon {
			all = append(all, Finding{
				Code: CertificateExpires, Where: c.where(), Passes: "every request after that day, if failure_mode_deny is off", Fix: "Renew the certificate. Envoy reads the file again only at its start, or with SDS.",
				Message: fmt.Sprintf("The certificate %s expires in %d days. Then every call to rls fails.", cert.Path, cert.Days),
			})
		}
	}
	return all
}

// process checks the admin port, and whether Envoy runs the newest configuration.
func process(in *Input) (all []Finding) {
	if ip, err := netip.ParseAddr(in.Admin.Socket.Address); err == nil && !ip.IsLoopback() {
		all = append(all, Finding{
			Code: AdminExposed, Where: "admin port " + text(in.Admin), Fix: "Open it on 127.0.0.1 only.",
			Message: "The admin port is open to other machines. Each can switch limits off, stop Envoy and read its secrets.",
		})
	}
	for _, name := range slices.Sorted(maps.Keys(in.Rejected)) {
		all = append(all, Finding{
			Code: ListenerRejected, Where: "listener " + name, Passes: "what the old version lets pass", Fix: "Repair what the message names.",
			Message: "Envoy has rejected the last version of the listener and runs an older one: " + in.Rejected[name],
		})
	}
	if in.Live == nil {
		return all
	}
	seen := make(map[string]bool)
	for _, m := range in.Managers {
		if m.RDS.Name != "" && !seen[m.RDS.Name] {
			all = append(all, in.rejectedRoutes(m)...)
			seen[m.RDS.Name] = true
		}
	}
	return all
}

// rejectedRoutes looks at the counters of a route configuration. They do not say which update came last.
func (in *Input) rejectedRoutes(m *Manager) []Finding {
	of := ".rds." + strings.ReplaceAll(m.RDS.Name, ":", "_") + ".update_"
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
		return nil
	}
	f := Finding{
		Code: RoutesRejected, Where: "routes " + m.RDS.Name + " of " + m.Where, Passes: "what the old version lets pass", Fix: "Look at Envoy's log for the reason.",
		Message: fmt.Sprintf("Envoy has rejected %d updates of these routes and accepted %d. It may run an older version.", rejected, accepted),
	}
	if rejected < accepted {
		f.Severity = Warning
	}
	return []Finding{f}
}
