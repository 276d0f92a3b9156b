package envoycheck

import (
	"fmt"
	"strings"
)

// few of a thousand calls may fail: an instance that restarts is no fault.
const few = 10

// since is what passed because rls was not asked, or did not answer.
func since(n uint64) string {
	return fmt.Sprintf("%d requests since Envoy has started, if failure_mode_deny is off", n)
}

// calls says what has happened to the calls of a cluster.
func calls(in *Input, c *called) {
	if in.Live == nil {
		return
	}
	count := func(name string) uint64 { return in.Live.Stats["cluster."+c.Name+"."+name] }
	if n := count("upstream_rq_active_overflow") + count("upstream_rq_pending_overflow"); n > 0 {
		c.add(BreakerFull, since(n), "Raise max_requests and max_pending_requests in circuit_breakers, and find out why rls was slow.",
			"Envoy did not ask rls about %d requests, because so many calls were under way.", n)
	}
	total := count("upstream_rq_total")
	if n := count("upstream_rq_timeout"); n*1000 > total*few {
		c.add(CallsTimeOut, since(n), "Look at the log of rls, at its CPU, and at the times of its store.", "%d of %d calls have timed out.", n, total)
	}
	for _, h := range c.hosts {
		if n := h.Stat("cx_connect_fail"); n > 0 {
			in.broken = append(in.broken, fmt.Sprintf("%d connections to %s have failed", n, text(h.Address)))
		}
	}
	if n := count("upstream_cx_protocol_error"); n > 0 {
		in.broken = append(in.broken, fmt.Sprintf("on %d connections of %s the other side does not have HTTP/2", n, c.where))
	}
	if n := count("ssl.connection_error") + count("ssl.fail_verify_error") + count("ssl.fail_verify_san"); n > 0 {
		in.broken = append(in.broken, fmt.Sprintf("%d TLS handshakes of %s have failed", n, c.where))
	}
}

// answers counts what the ratelimit filters of all listeners have got from rls.
func (in *Input) answers() (answered, denied, failed uint64) {
	for name, n := range in.Live.Stats {
		_, rest, ok := strings.Cut(name, ".ratelimit.")
		if !ok || !strings.HasPrefix(name, "cluster.") {
			continue
		}
		switch rest[strings.LastIndexByte(rest, '.')+1:] { // behind a stat_prefix
		case "over_limit":
			denied += n
			answered += n
		case "ok":
			answered += n
		case "error":
			failed += n
		}
	}
	return answered, denied, failed
}

// answered compares the counters of Envoy with each other and with those of rls. It runs after
// clusters.
func answered(in *Input) []Finding {
	if in.Live == nil {
		return nil
	}
	out := &found{where: "calls to rls"}
	answered, denied, failed := in.answers()
	if failed*1000 > answered*few {
		why := ""
		if len(in.broken) > 0 {
			why = " Of the reasons Envoy counts: " + strings.Join(in.broken, ", ") + "."
		}
		f := out.add(NoAnswers, since(failed), "Look at the cluster of rls, at the log of rls, and at the network between.", "%d calls had no answer of rls, and %d had one.%s", failed, answered, why)
		if answered > 0 {
			f.Severity = Warning
		}
	}
	if n := in.Service.Denied; in.Options.Complete && n > 0 && denied == 0 {
		out.add(DenialsUnseen, "", "Find out which other Envoy calls this rls, or why its answers come too late.", "This rls has denied %d requests, and this Envoy has seen no denial.", n)
	}
	return out.all
}
