package simulate

import (
	"slices"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// The promises of docs/guarantees.md, word for word. TestWords compares them with the page.
const (
	promiseNeverMore = "Never more than the limit. A limit of 100 per minute means: in any 60 seconds at most 100 requests of a key pass, for all instances on one Redis together."
	promiseOnceMore  = "While Redis fails, a key gets its limit at most once more in a window, and once more for each instance that starts meanwhile."
	promiseRetry     = "Retry-After is long enough. After it the same request passes, unless other requests took the quota."
	promiseFree      = "A denied request uses no quota."
	promiseAll       = "All limits or none. If one limit of a request denies, no limit of it is charged."
	promiseLate      = "Charged once, and in time. A call that may have run is not sent again. Redis refuses late calls."
	promiseInTime    = "Envoy gets an answer in time. If Redis does not answer within 15 ms (store.timeout), each instance enforces its part of the limit: limit ÷ instances."
	promiseEach      = "Each policy keeps its bound. token_bucket admits burst + rate × t in any time t. fixed and calendar admit up to twice the limit around a boundary, sliding_counter less than twice the limit."
	promiseInFlight  = "in_flight never has more than max active requests; a request that never ends is released after hold."
	promiseOnce      = "A retry with an idempotency key is charged once, under a rule with charge_once."
	promiseBudget    = "A budget is not exceeded, whatever ends a request."
	promiseTier      = "A tier change takes effect at the next request after the customer source has reported it. The usage of the key stays."
	promiseKnown     = "Known customers keep their tier while the customer database fails, for a day (tiers.cache.stale)."
	promiseShare     = "Two customers never share a limit per key."
	promiseRestart   = "A restart loses no call. On SIGTERM an instance answers everything for 5 s (drain.delay), then finishes calls in flight for up to 10 s (drain.timeout)."
	promiseExact     = "Limits are exact again within a second after Redis is back."
)

// atRest checks what the servers have when nothing is under way. The caller holds mu.
func (w *world) atRest() {
	for _, k := range w.keys {
		s := w.historyOf(k)
		switch {
		case k.redis == "" || k.Limit.Window != total:
		case k.Hold > 0:
			w.budgetAtRest(s, k)
		case k.Limit.Policy == window.InFlight:
			w.heldAtRest(s, k)
		default:
			w.usedAtRest(s, k)
		}
	}
}

// usedAtRest checks what a log has that counts all of the run.
func (w *world) usedAtRest(s *server, k *key) {
	used := s.used(k)
	least, most := w.charges(s, k)
	w.note("%s is at rest: %s has used %d of %d", s.name, k.name, used, k.Limit.Hits)
	switch {
	case used < least:
		w.breaks(promiseNeverMore, "%s has used %d, and requests of %d passed", k.name, used, least)
	case used > most && k.Once:
		w.breaks(promiseOnce, "%s has used %d, and attempts of at most %d were charged", k.name, used, most)
	case used > most && k.Joins >= 0 || used > most && slices.ContainsFunc(w.keys, func(other *key) bool { return other.Joins == k.Number }):
		w.breaks(promiseAll, "%s has used %d, and requests of at most %d were charged", k.name, used, most)
	case used > most:
		w.breaks(promiseFree, "%s has used %d, and requests of at most %d were charged", k.name, used, most)
	}
}

// budgetAtRest checks what a budget has when all streams have ended: what they have cost. A reservation whose
// end was lost counts with the estimate.
func (w *world) budgetAtRest(s *server, k *key) {
	spent, reserved := s.used(k), s.reserved(k)
	w.note("%s is at rest: of %d of %s are %d spent and %d reserved", s.name, k.Limit.Hits, k.name, spent, reserved)
	paid := make(map[window.StreamID]uint64) // of the streams that have ended
	for _, o := range w.ops {
		if o.ending != "" {
			paid[o.stream] = o.paid
		}
	}
	open := false
	least, most := uint64(0), uint64(0)
	for _, o := range w.ops {
		switch {
		case o.keys[0] != k || o.ending != "" || o.answer == denied && o.byStore[0]:
		case o.answer == allowed && o.byStore[0]:
			cost, ended := paid[o.stream]
			if !ended {
				cost, open = o.cost, true // the estimate
			}
			least += cost
			most += o.cost
		default:
			most += o.cost
		}
	}
	switch whole := len(w.plan.Faults) == 0; {
	case len(w.losses(s)) > 0:
	case spent+reserved < least, spent+reserved > most:
		w.breaks(promiseBudget, "%d of %s are spent and %d reserved, and streams cost %d to %d", spent, k.name, reserved, least, most)
	case whole && (spent+reserved != least || reserved != 0 && !open):
		w.breaks(promiseBudget, "%d of %s are spent and %d reserved, and all streams cost %d", spent, k.name, reserved, least)
	}
}

// charges returns how much the calls of a key have charged at least, and at most.
func (w *world) charges(s *server, k *key) (least, most uint64) {
	given, certain := uint64(0), uint64(0) // back
	attempts := make(map[string]bool)
	passed := make(map[string]bool)
	for _, o := range w.ops {
		at := slices.Index(o.keys, k)
		if at < 0 || k.reset(o) {
			continue
		}
		one := o.attempt != "" && attempts[o.attempt]
		if o.refund {
			given += o.cost
			if o.answer == allowed && o.byStore[at] && !s.lost(k, o) {
				certain += o.cost
			}
			continue
		}
		charged := (o.answer == allowed || o.answer == denied && k.Always) && o.byStore[at]
		maybe := charged || !o.byStore[at] || o.answer == failed || // it may have been charged, and the answer was lost
			len(o.keys) > 1 && len(w.plan.Faults) > 0 // "If a server fails in between, its charge stays until it expires."
		if maybe && (!one || len(s.losses) > 0) {
			most += o.cost
			attempts[o.attempt] = true
		}
		if charged && !s.lost(k, o) && !k.mayBeReset(o) && (o.attempt == "" || !passed[o.attempt] && !w.charged(s, k, o)) {
			least += o.cost
			passed[o.attempt] = true
		}
	}
	if k.Lease.Length > 0 && len(w.plan.Faults) > 0 {
		most = k.Limit.Hits // what could not be given back stays until it expires
	}
	least, most = least-min(least, given), most-certain
	if k.Always {
		least, most = min(least, k.Limit.Hits), min(most, 2*k.Limit.Hits)
	}
	return least, most
}

// charged reports whether an earlier call of the same attempt may have been charged, by what was lost
// since then.
func (w *world) charged(s *server, k *key, o *op) bool {
	return slices.ContainsFunc(w.ops, func(e *op) bool { return e.attempt == o.attempt && s.lost(k, e) })
}

// reset reports whether a reset has certainly removed what a call charged, and mayBeReset whether it
// may have.
func (k *key) reset(o *op) bool {
	return slices.ContainsFunc(k.resets, func(r reset) bool { return !r.failed && o.end < r.begun })
}

func (k *key) mayBeReset(o *op) bool {
	return slices.ContainsFunc(k.resets, func(r reset) bool { return o.begin <= r.at })
}

// heldAtRest checks that no stream holds anything after its end.
func (w *world) heldAtRest(s *server, k *key) {
	contents, err := packed.Decode([]byte(s.data.values[k.redis].text))
	if err != nil || k.Limit.Window != total {
		return
	}
	if w.plan.Cluster && len(w.losses(s)) > 0 {
		return // in which logs a stream holds something is on another server
	}
	for _, h := range contents.Holds {
		if h.Cost == 0 {
			continue
		}
		for _, o := range w.ops {
			if o.stream != h.Stream || o.ending == "" || s.lost(k, o) {
				continue
			}
			// An end that could not be reported is reported later. Then the instance may have stopped, or
			// the server lost it.
			later := o.instance.stopped || slices.ContainsFunc(s.losses, func(l loss) bool { return l.at >= o.begin })
			if !later || !w.plan.troubled(k.Server, o) {
				w.breaks(promiseInFlight, "at rest the stream %d holds %d of %s: %v", h.Stream, h.Cost, k.name, o)
			}
		}
	}
}

// lost reports whether the server may have lost what a call has charged. What a lease has charged
// ahead is spent until the lease is over.
func (s *server) lost(k *key, o *op) bool {
	return slices.ContainsFunc(s.losses, func(l loss) bool { return o.begin <= l.at+k.Lease.Length && o.end >= l.from })
}

// judge checks the history.
func (w *world) judge() {
	slices.SortFunc(w.ops, func(a, b *op) int { return int(a.begin - b.begin) })
	for _, k := range w.keys {
		var of []*op
		for _, o := range w.ops {
			if slices.Contains(o.keys, k) {
				of = append(of, o)
			}
		}
		switch k.Limit.Policy {
		case window.InFlight:
			w.judgeActive(k, of)
		case window.Sliding:
			if k.Hold == 0 && !k.Refunds { // judgeHistory has refunds
				w.judgeWindows(k, of)
			}
		default:
			w.judgeWindows(k, of)
		}
		w.judgeRetries(k, of)
		w.judgeTiers(k, of)
		w.judgeHistory(k, of)
	}
	w.judgeTimes()
	w.judgeRecovery()
	w.judgeNames()
	w.judgeRestarts()
}

// judgeNames checks that no two keys have one log.
func (w *world) judgeNames() {
	of := make(map[string]*key)
	for _, k := range w.keys {
		if other := of[k.redis]; k.redis != "" && other != nil {
			w.breaks(promiseShare, "%s and %s have the log %s", k.name, other.name, k.redis)
		}
		of[k.redis] = k
	}
}

// judgeRestarts checks that an instance that stops in order decides what Envoy has sent it. The end of a stream
// is reported later if the store does not answer.
func (w *world) judgeRestarts() {
	for _, o := range w.ops {
		if o.instance.stopped && !o.instance.gone && o.answer == failed && o.left == 0 && o.ending == "" {
			w.breaks(promiseRestart, "%v", o)
		}
	}
}

// judgeRecovery checks that no call is decided without the store long after the faults. A call that took as
// long as the store may take met messages that were slow by themselves.
func (w *world) judgeRecovery() {
	for _, o := range w.ops {
		for i, k := range o.keys {
			if i < len(o.byStore) && !o.byStore[i] && o.ending == "" && o.limit != unknownHits && o.end-o.begin < storeTimeout && !w.plan.troubled(k.Server, o) {
				w.breaks(promiseExact, "%v: %v", o.begin, o)
			}
		}
	}
}

// troubled reports whether there is a fault when a call is made, or was a second before, on its way to a
// server.
func (p *plan) troubled(server int, o *op) bool {
	for _, f := range p.Faults {
		over := f.At + f.For + time.Second
		if f.Kind == faultCrash {
			over += 1500 * time.Millisecond // until it has stopped
		}
		if f.Kind != faultCustomers && f.At <= o.end && o.begin <= over && (f.Who == server || f.Kind == faultCrash || f.Kind == faultPause || p.Cluster) {
			return true
		}
	}
	return false
}

// admitted returns the cost that a call has admitted, by the store or without it.
func (o *op) admitted(k *key, byStore bool) uint64 {
	if o.answer != allowed || o.lost || o.refund || o.ending != "" || o.repeated || o.byStore[slices.Index(o.keys, k)] != byStore {
		return 0
	}
	return o.cost
}

// judgeWindows checks that no window admits too much. A call has been charged at a moment between its
// begin and its end. So what certainly was in a window is what began and ended in it.
func (w *world) judgeWindows(k *key, all []*op) {
	s := w.historyOf(k)
	// Of a server that has lost data, each part of the history counts by itself. So it does for leases if
	// the clock was set forward: what was charged ahead is spent later by that clock.
	type change struct {
		begin, end time.Duration
		behind     time.Duration // by which a window is shorter afterwards
	}
	var changes []change
	for _, l := range s.losses {
		changes = append(changes, change{begin: l.at, end: l.at})
	}
	for _, c := range s.clocks[1:] {
		if k.Lease.Length > 0 {
			changes = append(changes, change{begin: c.since, end: c.since})
		}
	}
	for _, r := range k.resets {
		changes = append(changes, change{begin: r.begun, end: r.at}) // a moment in between
	}
	for _, o := range k.owners[1:] {
		// The log may expire before a clock that is behind has caught up, and later by as much too early.
		before, _ := s.clockOf(o.since - 1)
		if behind := before - o.since - o.server.offsetAt(o.since); behind >= 0 {
			changes = append(changes, change{o.since, o.since, behind})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.begin - b.begin) })
	promise := promiseEach
	if k.Limit.Policy == window.Sliding {
		promise = promiseNeverMore
	}
	bound := k.bound()
	from, behind := time.Duration(0), time.Duration(0)
	for _, c := range append(changes, change{begin: w.plan.Length + quiet}) {
		until := c.begin
		w.judgePart(k, all, from, until, func(o *op) (time.Duration, time.Duration, uint64) {
			begin, end := s.clocksOf(o.begin, o.end)
			return begin, end, o.admitted(k, true)
		}, func(t time.Duration) uint64 { return bound(t + behind) }, promise)
		w.judgePeriods(k, all, from, until)
		from = max(from, c.end+k.Lease.Length) // a lease from before the loss is spent until then
		behind = max(behind, c.behind)
	}
	// What all instances admit without the store: the limit, or one request for each instance.
	extra := max(k.Limit.Hits, uint64(w.plan.Instances)*k.Costs) * uint64(1+len(w.started))
	w.judgePart(k, all, 0, w.plan.Length+quiet, func(o *op) (time.Duration, time.Duration, uint64) {
		return o.begin, o.end, o.admitted(k, false)
	}, func(t time.Duration) uint64 { return max(bound(t), extra*uint64(1+t/k.Limit.Window)) + bound(t) }, promiseOnceMore)
}

// judgePeriods checks between two moments that no window of a fixed limit, and no period of a calendar, admits more
// than the limit. A call was certainly in a period if it began and ended there by the server's clock.
func (w *world) judgePeriods(k *key, all []*op, from, until time.Duration) {
	if k.Limit.Policy != window.Fixed && k.Limit.Policy != window.Calendar {
		return
	}
	s := w.historyOf(k)
	since := time.Duration(w.begun.UnixNano())
	sums := make(map[time.Duration]uint64)
	for _, o := range all {
		earliest, latest := s.clocksOf(o.begin, o.end)
		period := (since + earliest) / k.Limit.Window
		if o.begin < from || o.end > until || period != (since+latest)/k.Limit.Window {
			continue
		}
		if sums[period] += o.admitted(k, true); sums[period] > k.Limit.Hits {
			w.breaks(promiseEach, "%s: %d pass in the period that begins at %v, with a limit of %d", k.name, sums[period], period*k.Limit.Window-since, k.Limit.Hits)
			return
		}
	}
}

// bound returns how much the limit of a key admits in a time.
func (k *key) bound() func(t time.Duration) uint64 {
	l := k.Limit
	switch l.Policy {
	case window.TokenBucket:
		return func(t time.Duration) uint64 { return l.Hits + uint64(t)*uint64(l.Rate)/uint64(l.Window) + 1 }
	case window.Fixed, window.Calendar:
		return func(t time.Duration) uint64 { return l.Hits * uint64(2+t/l.Window) }
	case window.SlidingCounter:
		return func(t time.Duration) uint64 { return 2*l.Hits*uint64(1+t/l.Window) - 1 }
	default:
		return func(t time.Duration) uint64 { return l.Hits * uint64(1+(t+time.Microsecond)/l.Window) }
	}
}

// judgePart checks the calls that began and ended between two moments: what certainly was in any time
// is not above the bound.
func (w *world) judgePart(k *key, all []*op, from, until time.Duration, of func(*op) (begin, end time.Duration, cost uint64), bound func(time.Duration) uint64, promise string) {
	type admission struct {
		begin, end time.Duration
		cost       uint64
	}
	var part []admission
	for _, o := range all {
		if o.begin < from || o.end > until {
			continue
		}
		if begin, end, cost := of(o); cost > 0 {
			part = append(part, admission{begin, end, cost})
		}
	}
	// Their ends are nearly in the order of their begins.
	slices.SortFunc(part, func(a, b admission) int { return int(a.end - b.end) })
	least := slices.Clone(part) // the earliest begin from here on
	for i := len(part) - 2; i >= 0; i-- {
		least[i].begin = min(least[i].begin, least[i+1].begin)
	}
	for i, first := range part {
		sum := uint64(0)
		for j, a := range part[i:] {
			if a.begin >= first.begin {
				sum += a.cost
			}
			took := a.end - first.begin
			if sum > bound(took) {
				w.breaks(promise, "%s: %d pass in the %v from %v on, with a limit of %d each %v", k.name, sum, took, first.begin, k.Limit.Hits, k.Limit.Window)
				return
			}
			if took > 3*k.Limit.Window || j > 5000 {
				break
			}
		}
	}
}

// judgeActive checks how many requests of a key were active at the same time. A request is certainly
// active from the answer to its begin until its end is reported, or its hold is over.
func (w *world) judgeActive(k *key, all []*op) {
	s := w.historyOf(k)
	type change struct {
		at   time.Duration
		cost int64
	}
	ends := make(map[window.StreamID]time.Duration)
	for _, o := range all {
		if o.ending != "" {
			ends[o.stream] = o.begin
		}
	}
	parts := append(slices.Clone(s.losses), loss{at: w.plan.Length + quiet})
	from := time.Duration(0)
	for _, l := range parts {
		var changes []change
		for _, o := range all {
			cost := o.admitted(k, true)
			end, ok := ends[o.stream]
			if !ok {
				end = w.plan.Length + quiet
			}
			if o.ending != "" || o.repeated || cost == 0 || o.begin < from || o.end > l.at {
				continue
			}
			_, begins := s.clockOf(o.end)
			over, _ := s.clockOf(min(end, l.at))
			held, _ := s.clockOf(o.begin)
			over = min(over, held+k.Limit.Window)
			if begins < over {
				changes = append(changes, change{begins, int64(cost)}, change{over, -int64(cost)})
			}
		}
		slices.SortFunc(changes, func(a, b change) int {
			if a.at != b.at {
				return int(a.at - b.at)
			}
			return int(a.cost - b.cost)
		})
		active := int64(0)
		for _, c := range changes {
			if active += c.cost; active > int64(k.Limit.Hits) {
				w.breaks(promiseInFlight, "%s: %d are active at %v of its server's clock, with a limit of %d", k.name, active, c.at, k.Limit.Hits)
				break
			}
		}
		from = l.at
	}
}

// judgeRetries checks that a caller that waits as long as it is told passes, if it is alone.
func (w *world) judgeRetries(k *key, all []*op) {
	if !k.Patient {
		return
	}
	s := w.historyOf(k)
	for i, o := range all[:max(len(all)-1, 0)] {
		next := all[i+1]
		if o.answer != denied || !o.byStore[0] || o.retryAfter == 0 || next.cost != o.cost || next.answer != denied || !next.byStore[0] || next.begin < o.end+o.retryAfter {
			continue
		}
		since := o.begin
		if o.begin == o.end {
			since -= time.Second // from memory
		}
		if s.clockSetBack(since, next.end) || tookElsewhere(all[:i], o.instance, since) {
			continue
		}
		w.breaks(promiseRetry, "%v\n  %v", o, next)
	}
}

// tookElsewhere reports whether a request has passed since a moment at another instance than the given one.
func tookElsewhere(before []*op, here *instance, since time.Duration) bool {
	return slices.ContainsFunc(before, func(p *op) bool {
		return p.answer == allowed && p.cost > 0 && p.instance != here && p.begin > since
	})
}

// clockSetBack reports whether the server's clock was set back between two moments.
func (s *server) clockSetBack(from, to time.Duration) bool {
	for i, c := range s.clocks[1:] {
		if c.since >= from && c.since <= to && c.offset < s.clocks[i].offset {
			return true
		}
	}
	return false
}

// judgeTimes checks that every call has an answer in time.
func (w *world) judgeTimes() {
	for _, o := range w.ops {
		most := storeTimeout + time.Millisecond
		if o.ending == "" && (o.stream != 0 || len(o.keys) > 1 || o.keys[0].Tiers || o.keys[0].Lease.Length > 0) {
			most = envoyTimeout // it also waits for the end of another stream, until all is taken back, for a tier, or for a lease that is denied
		}
		if o.end-o.begin > most {
			w.breaks(promiseInTime, "%v", o)
		}
	}
}
