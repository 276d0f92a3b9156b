package envoycheck

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// few of a thousand calls may fail: an instance that restarts is no fault.
const few = 10

// since says that requests passed because rls was not asked, or did not answer.
func (f *Finding) since(n uint64) *Finding {
	f.Passes = fmt.Sprintf("%d requests since Envoy has started, if failure_mode_deny is off", n)
	return f
}

// calls says what has happened to the calls of a cluster.
func (in *input) calls(c *called) {
	if in.Live == nil {
		return
	}
	count := func(names ...string) (n uint64) {
		for _, name := range names {
			n += in.Live.Stats["cluster."+c.Name+"."+name]
		}
		return n
	}
	if n := count("upstream_rq_active_overflow", "upstream_rq_pending_overflow"); n > 0 {
		in.report(breakerFull, c.where, "Envoy did not ask rls about %d requests, because so many calls were under way.", n).since(n)
	}
	if n, total := count("upstream_rq_timeout"), count("upstream_rq_total"); n*1000 > total*few {
		in.report(callsTimeOut, c.where, "%d of %d calls have timed out.", n, total).since(n)
	}
	broken := func(n uint64, format, of string) {
		if n > 0 {
			in.broken = append(in.broken, fmt.Sprintf(format, n, of))
		}
	}
	for _, h := range c.hosts {
		broken(h.Stat("cx_connect_fail"), "%d connections to %s have failed", text(h.Address))
	}
	broken(count("upstream_cx_protocol_error"), "on %d connections of %s the other side does not have HTTP/2", c.where)
	broken(count("ssl.connection_error", "ssl.fail_verify_error", "ssl.fail_verify_san"), "%d TLS handshakes of %s have failed", c.where)
}

// answered compares what the ratelimit filters of all listeners have got from rls, and what rls counts. It
// runs after clusters.
func (in *input) answered() {
	if in.Live == nil {
		return
	}
	const where = "calls to rls"
	n := make(map[string]uint64)
	for name, count := range in.Live.Stats {
		if _, rest, ok := strings.Cut(name, ".ratelimit."); ok && strings.HasPrefix(name, "cluster.") {
			n[rest[strings.LastIndexByte(rest, '.')+1:]] += count // behind a stat_prefix
		}
	}
	answered, failed := n["ok"]+n["over_limit"], n["error"]
	if failed*1000 > answered*few {
		why := ""
		if len(in.broken) > 0 {
			why = " Of the reasons Envoy counts: " + strings.Join(in.broken, ", ") + "."
		}
		f := in.report(noAnswers, where, "%d calls had no answer of rls, and %d had one.%s", failed, answered, why).since(failed)
		if answered > 0 {
			f.Severity = Warning
		}
	}
	if in.options.Complete && in.service.Denied > 0 && n["over_limit"] == 0 {
		in.report(denialsUnseen, where, "This rls has denied %d requests, and this Envoy has seen no denial.", in.service.Denied)
	}
}

var (
	numerator   = regexp.MustCompile(`"numerator"\s+value\s*\{\s*number_value:\s*(\d+)`)
	denominator = regexp.MustCompile(`"denominator"\s+value\s*\{\s*string_value:\s*"(\w+)"`)
)

// fraction returns the value of a runtime key that is a fraction, which Envoy writes as the text of a message.
func (in *input) fraction(key string) (n float64, of string, ok bool) {
	if in.Live == nil || !strings.HasPrefix(in.Live.Runtime[key], "goo.gle/") && !strings.HasPrefix(in.Live.Runtime[key], "fields") {
		return 0, "", false
	}
	if found := numerator.FindStringSubmatch(in.Live.Runtime[key]); found != nil {
		n, _ = strconv.ParseFloat(found[1], 64) // digits
	}
	if found := denominator.FindStringSubmatch(in.Live.Runtime[key]); found != nil {
		of = found[1]
	}
	return n, of, true
}

// runtime returns the value of a runtime key that is a number.
func (in *input) runtime(key string) (n uint64, ok bool) {
	if in.Live == nil || in.Live.Runtime[key] == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(in.Live.Runtime[key], 10, 64)
	if err != nil {
		in.notRead("the runtime key %s: %s is no number", key, in.Live.Runtime[key])
	}
	return n, err == nil
}

// proven returns what is known of the routes, as a sentence.
func (in *input) proven() string {
	limited, hidden := 0, 0
	listeners := make(map[string]bool)
	for _, r := range in.routes {
		switch {
		case slices.ContainsFunc(r.sends, func(s *sent) bool { return !s.limit.AtEnd && s.limits() }):
			limited++
			listeners[r.manager.listener.Name] = true
		case r.manager.oneHop() && r.context()["domain"]:
			hidden++
		}
	}
	var out []string
	if limited > 0 || hidden == 0 {
		out = append(out, fmt.Sprintf("%s of %s send descriptors that rules of this rls limit.", count(limited, "route"), count(len(listeners), "listener")))
	}
	if hidden > 0 {
		out = append(out, fmt.Sprintf("%s name a domain for the authorization; Envoy hides which, and the descriptors too.", count(hidden, "route")))
	}
	return strings.Join(out, " ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
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
