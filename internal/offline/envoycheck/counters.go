package envoycheck

import (
	"fmt"
	"strings"
)

// few of a thousand calls may fail: an instance that restarts is no fault.
const few = 10

// counters says what has happened to the calls of a cluster.
func counters(in *Input, c *called) (all []Finding) {
	if in.Live == nil {
		return nil
	}
	count := func(name string) uint64 { return in.Live.Stats["cluster."+c.Name+"."+name] }
	total := count("upstream_rq_total")
	if n := count("upstream_rq_active_overflow") + count("upstream_rq_pending_overflow"); n > 0 {
		all = append(all, Finding{
			Code: BreakerFull, Where: c.where(), Passes: fmt.Sprintf("%d requests since Envoy has started", n), Fix: "Raise max_requests and max_pending_requests in circuit_breakers, and find out why rls was slow.",
			Message: fmt.Sprintf("Envoy did not ask rls about %d requests, because so many calls were under way.", n),
		})
	}
	if n := count("upstream_rq_timeout"); n*1000 > total*few {
		all = append(all, Finding{
			Code: CallsTimeOut, Where: c.where(), Passes: fmt.Sprintf("%d requests since Envoy has started", n), Fix: "Look at the log of rls, at its CPU, and at the times of its store.",
			Message: fmt.Sprintf("%d of %d calls have timed out.", n, total),
		})
	}
	return all
}

// answers counts what ratelimit filters have got from rls, in all listeners.
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

// answered compares the counters of Envoy with each other and with those of rls.
func answered(in *Input) (all []Finding) {
	if in.Live == nil {
		return nil
	}
	answered, denied, failed := in.answers()
	if failed*1000 > answered*few {
		f := Finding{
			Code: NoAnswers, Where: "calls to rls", Passes: fmt.Sprintf("%d requests since Envoy has started, if failure_mode_deny is off", failed), Fix: "Look at the cluster of rls, at its log, and at the network between.",
			Message: fmt.Sprintf("%d calls had no answer of rls, and %d had one.", failed, answered),
		}
		if answered > 0 {
			f.Severity = Warning
		}
		all = append(all, f)
	}
	if in.Options.Complete && in.Service.Denied > 0 && denied == 0 {
		all = append(all, Finding{
			Code: DenialsUnseen, Where: "calls to rls", Fix: "Find out which other Envoy calls this rls, or why its answers come too late.",
			Message: fmt.Sprintf("This rls has denied %d requests, and this Envoy has seen no denial.", in.Service.Denied),
		})
	}
	return all
}
