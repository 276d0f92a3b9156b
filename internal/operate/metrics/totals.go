package metrics

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slidegate/slidegate/internal/core/decide"
)

// Totals are counts since the start of the process.
type Totals struct {
	Rules []RuleTotals
	// Degraded counts requests that were decided without the store.
	Degraded float64
	// Calls and Store are the times of calls of a gRPC method that succeeded, and of store calls.
	Calls, Store Times
}

// RuleTotals are the counts of one rule. The rule of descriptors without a rule is empty.
type RuleTotals struct {
	Domain, Rule string
	// Decisions counts every outcome, and Denials those that were denied.
	Decisions, Denials float64
	// Near counts hits near the limit, and Shadow denials that were only observed.
	Near, Shadow float64
}

// A Differ says what rules have counted since its last call. Use one goroutine at a time.
type Differ struct{ last map[meterName]RuleTotals }

// Since returns what each rule has counted since the last call. A rule that was gone meanwhile begins at zero.
func (d *Differ) Since(now []RuleTotals) []RuleTotals {
	last, since := d.last, make([]RuleTotals, len(now))
	d.last = make(map[meterName]RuleTotals, len(now))
	for i, r := range now {
		name := meterName{r.Domain, r.Rule}
		was := last[name]
		if r.Decisions < was.Decisions {
			was = RuleTotals{}
		}
		since[i] = RuleTotals{r.Domain, r.Rule, r.Decisions - was.Decisions, max(r.Denials-was.Denials, 0), max(r.Near-was.Near, 0), max(r.Shadow-was.Shadow, 0)}
		d.last[name] = r
	}
	return since
}

// Times counts calls by the bucket of their time: up to the first bound, above it up to the second
// one, and so on. The last bucket has no bound.
type Times [len(latencies) + 1]uint64

// latencies are the bounds of buckets, in seconds. A decision from memory takes about
// 10 us. By default rls waits 15 ms for the store, and Envoy 20 ms for rls.
var latencies = [...]float64{
	0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 1,
}

// Totals reads the counts into t, and reuses its memory. It gathers no registry, so a process
// with 10,000 rules can ask every few seconds. method is the gRPC method of t.Calls.
func (m *Metrics) Totals(t *Totals, method string) {
	*t = Totals{Rules: m.rules.totals(t.Rules[:0])}
	for _, c := range m.degraded {
		t.Degraded += counted(c)
	}
	t.Store.add(m.storeSeconds)
	if known, ok := m.rpcs.Load(rpc{method, "OK"}); ok {
		t.Calls.add(known)
	}
}

// totals appends the counts of all rules.
func (rs *ruleMetrics) totals(all []RuleTotals) []RuleTotals {
	rs.mu.Lock()
	meters := make([]*meter, 0, len(rs.meters))
	for _, m := range rs.meters {
		meters = append(meters, m)
	}
	rs.mu.Unlock()
	for _, m := range meters {
		r := RuleTotals{Domain: m.name.domain, Rule: m.name.rule}
		for o := range m.outcomes {
			c := m.outcomes[o].Load()
			if c == nil {
				continue
			}
			n := counted(*c)
			r.Decisions += n
			switch decide.Outcome(o) {
			case decide.OutcomeDenied, decide.OutcomeNever:
				r.Denials += n
			case decide.OutcomeShadowDenied:
				r.Shadow += n
			}
		}
		if c := m.near.Load(); c != nil {
			r.Near = counted(*c)
		}
		all = append(all, r)
	}
	return all
}

// counted returns what a counter counts.
func counted(c prometheus.Metric) float64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return m.GetCounter().GetValue()
}

// add adds the counts of a histogram with the bounds of latencies.
func (t *Times) add(o any) {
	h, ok := o.(prometheus.Metric)
	var m dto.Metric
	if !ok || h.Write(&m) != nil {
		return
	}
	before := uint64(0)
	for i, b := range m.GetHistogram().GetBucket() {
		if i < len(latencies) {
			t[i] += b.GetCumulativeCount() - before
			before = b.GetCumulativeCount()
		}
	}
	t[len(latencies)] += m.GetHistogram().GetSampleCount() - before
}

// Since returns the times of the calls that are not in before.
func (t Times) Since(before Times) Times {
	for i := range t {
		t[i] -= before[i]
	}
	return t
}

// Quantile returns the time that a fraction q of the calls did not exceed, in seconds. It is within
// one bucket. Without calls it is zero.
func (t Times) Quantile(q float64) float64 {
	all := uint64(0)
	for _, n := range t {
		all += n
	}
	if all == 0 {
		return 0
	}
	rank := max(q*float64(all), 1)
	below := uint64(0)
	for i, n := range t {
		if float64(below+n) < rank {
			below += n
			continue
		}
		if i == len(latencies) {
			return latencies[len(latencies)-1]
		}
		from := 0.0
		if i > 0 {
			from = latencies[i-1]
		}
		return from + (latencies[i]-from)*(rank-float64(below))/math.Max(float64(n), 1)
	}
	return slices.Max(latencies[:])
}
