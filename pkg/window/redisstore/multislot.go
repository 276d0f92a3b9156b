package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/queue"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// A participant is one store of a request whose checks are on several slots or in several stores.
type participant struct {
	store    *Store
	ctx      context.Context //nolint:containedctx // of the caller
	ended    uint32          // of the messages
	deadline int64           // of the local clock; 0: none
	priority window.Priority // of the request
	err      error           // why the store does not decide
}

// A subRequest is one check of a request whose checks are on several slots or in several stores.
type subRequest struct {
	from     *participant
	check    *window.Check
	decision *window.Decision
	charge   charge
	of       *window.Decision // it asks for the present state of a log, for this decision
}

// A charge is what a sub-request has recorded in its log.
type charge struct {
	log  string // its name
	cost uint64 // zero: nothing is recorded
	// slot is the time of the slot of a sliding log, in its unit.
	slot int64
	// periodEnd is when the period of another policy ends in which the cost counts, by the server's
	// clock in microseconds; 0: there is no such period.
	periodEnd int64
}

// reservation returns the charge of a sliding log as [Store.Return] takes it.
func (p *subRequest) reservation() window.Reservation {
	return window.Reservation{Log: p.charge.log, Window: p.check.Limit.Window, Instant: p.charge.slot, Cost: p.charge.cost}
}

// charged notes what the allowed check has charged in a log at a server's clock. made says that its
// stream holds the cost since now.
func (p *subRequest) charged(log string, clock int64, made bool) {
	reset := clock + p.decision.ResetAfter.Microseconds()
	p.charge = charge{log: log, cost: p.check.Cost}
	if p.check.Budget != nil {
		if !made {
			p.charge.cost = 0
		}
		return // log is the name of the holds
	}
	switch p.check.Limit.Policy {
	case window.Sliding:
		p.charge.slot = reserved(log, p.check, p.decision, clock).Instant
	case window.Fixed, window.Calendar:
		p.charge.periodEnd = reset
	case window.SlidingCounter:
		p.charge.periodEnd = reset - p.check.Limit.Window.Microseconds() // it counts in the next window too
	case window.InFlight:
		if !made {
			p.charge.cost = 0 // an earlier request of the stream holds it
		}
	default:
	}
}

// takeMultiSlot decides a request whose logs are on several slots. It charges every check by
// itself, in all slots at once. If a check denies the request, it takes back the charges. If pauser is
// not nil, it pauses instead of waiting.
func (s *Store) takeMultiSlot(ctx context.Context, pauser window.Pauser, deadline int64, ended uint32, checks []window.Check, decisions []window.Decision) error {
	one := participant{store: s, ctx: ctx, ended: ended, deadline: deadline}
	p := newMultiSlotCall(checks, decisions, func(*window.Check) *participant { return &one })
	p.pauser = pauser
	p.decide(ctx, []*participant{&one})
	return one.err
}

// A multiSlotCall is a request that is decided check by check.
type multiSlotCall struct {
	pauser    window.Pauser    // of the only participant; nil: it waits
	rounds    [3][]*subRequest // refunds, checks of mode Always, and the others: a store decides in this order
	verdict   window.Verdict
	denied    bool // a check denies the group whatever the others say
	folded    []window.Decision
	answer    []int // see window.Fold
	decisions []window.Decision
}

// newMultiSlotCall returns the call for a request. of returns the participant of a check. The
// sub-requests have no idempotency records: if another one denied the request, its repeat would be
// free without a charge.
func newMultiSlotCall(checks []window.Check, decisions []window.Decision, of func(*window.Check) *participant) *multiSlotCall {
	folded, answer := window.Fold(checks)
	if answer == nil {
		folded = slices.Clone(checks) // charges are taken back after the caller has got its checks back
	}
	p := &multiSlotCall{folded: decisions, answer: answer, decisions: decisions}
	priority := window.PriorityLow
	for i := range folded {
		priority = max(priority, folded[i].Priority)
	}
	if answer != nil {
		p.folded = make([]window.Decision, len(folded))
	}
	for i := range folded {
		c := &folded[i]
		c.Once = window.Once{}
		if d, ok := window.WithoutLog(c); ok {
			p.folded[i] = d
			p.judge(c, &d)
			continue
		}
		round := 2
		switch c.Mode {
		case window.Refund:
			round = 0
		case window.Always:
			round = 1
		}
		s := of(c)
		s.priority = priority
		p.rounds[round] = append(p.rounds[round], &subRequest{from: s, check: c, decision: &p.folded[i]})
	}
	return p
}

// judge adds the decision on a check to the verdict.
func (p *multiSlotCall) judge(c *window.Check, d *window.Decision) {
	p.verdict.Add(c.Mode, d.Allowed)
	p.denied = p.denied || !d.Allowed && (c.Mode == window.Enforce || c.Mode == window.Always)
}

// decide asks all participants at once, round by round. It takes back what the participants have charged that
// fail. If the request is denied, it takes back what the others have charged, and waits for that
// as long as ctx allows. If a participant has failed and no other check denies the request, the charges
// stay: see giveBack.
func (p *multiSlotCall) decide(ctx context.Context, participants []*participant) {
	failed := false
	for _, round := range p.rounds {
		p.ask(participants, round)
		for _, one := range round {
			if one.from.err == nil {
				p.judge(one.check, one.decision)
			}
		}
	}
	for _, one := range slices.Concat(p.rounds[:]...) {
		if one.from.err != nil {
			failed = true
			// The failed checks may have been charged too, but only known charges can be
			// taken back.
			one.abandon()
		}
	}
	if p.denied || !failed && !p.verdict.Allowed() {
		until := serverclock.Now()
		for _, s := range participants {
			if s.deadline == 0 {
				until = serverclock.Now() + int64(longest)
			}
			until = max(until, s.deadline)
		}
		p.settle(ctx, until)
	}
	p.look(participants, p.rounds[0], slices.Concat(p.rounds[1], p.rounds[2]))
	p.look(participants, p.rounds[1], p.rounds[2])
	p.finish()
}

// giveBack takes back what the participants have charged that have decided.
func (p *multiSlotCall) giveBack(ctx context.Context) {
	until := serverclock.Now() + int64(takeBackTimeout)
	if d, ok := ctx.Deadline(); ok {
		left := serverclock.At(d) - serverclock.Now()
		until = min(until, serverclock.Now()+left-max(int64(answerTime), left/answerPart))
	}
	p.settle(ctx, until)
	p.finish()
}

// finish fills in the decisions of checks that were folded.
func (p *multiSlotCall) finish() {
	for i, j := range p.answer {
		p.decisions[i] = p.folded[j]
	}
}

// look updates the decisions of a round of which a later round has asked the same log. Decisions
// describe the logs after the call.
func (p *multiSlotCall) look(participants []*participant, round []*subRequest, after []*subRequest) {
	var again []*subRequest
	for _, one := range round {
		if one.from.err != nil {
			continue
		}
		for _, later := range after {
			switch d := one.decision; {
			case later.check.Log() != one.check.Log():
			case later.check.Limit == one.check.Limit:
				l := later.decision
				d.Remaining, d.UnitAfter, d.ResetAfter = l.Remaining, l.UnitAfter, l.ResetAfter
			default:
				// Under another limit, the log has to be asked again.
				quotaCheck := *one.check
				quotaCheck.Mode, quotaCheck.Cost = window.Refund, 0
				again = append(again, &subRequest{from: one.from, check: &quotaCheck, decision: new(window.Decision), of: d})
			}
		}
	}
	if len(again) == 0 {
		return
	}
	p.ask(participants, again)
	for _, one := range again {
		if l := one.decision; one.from.err == nil {
			one.of.Remaining, one.of.UnitAfter, one.of.ResetAfter = l.Remaining, l.UnitAfter, l.ResetAfter
		}
	}
	for _, one := range again {
		one.from.err = nil // the request is decided without the quota check
	}
}

// ask asks every sub-request of a round by itself, on all participants at once. If the request is already
// denied, the sub-requests are judged and not charged.
func (p *multiSlotCall) ask(participants []*participant, round []*subRequest) {
	var all sync.WaitGroup
	for i, s := range participants {
		var requests []*subRequest
		for _, one := range round {
			if one.from == s && s.err == nil {
				requests = append(requests, one)
			}
		}
		switch {
		case len(requests) == 0:
		case i == len(participants)-1:
			s.ask(requests, p.denied, p.pauser)
		default:
			all.Go(func() { s.ask(requests, p.denied, nil) })
		}
	}
	all.Wait()
}

// askable returns an error if the breaker of one of the servers is open. So the others need not
// charge and take back.
func (s *participant) askable(requests []*subRequest) error {
	if s.store.single != nil || len(requests) < 2 {
		return nil // the only server refuses the messages itself
	}
	var key []byte
	for _, p := range requests {
		key = script.AppendKey(key[:0], s.store.opts.Prefix, p.check.Log())
		n, err := s.store.nodeFor(s.ctx, string(key), s.deadline)
		if err != nil {
			return err
		}
		if n.open.Load() {
			return n.refused()
		}
	}
	return nil
}

// ask asks the servers of a participant. The sub-requests for one server share a call.
func (s *participant) ask(requests []*subRequest, denied bool, pauser window.Pauser) {
	if s.err = s.askable(requests); s.err != nil {
		return
	}
	messages, keys := s.queue(requests, denied, pauser == nil)
	if pauser != nil {
		if err := pauser.Pause(s.store.lane(s.priority, s.store.whole(s.deadline))); err != nil {
			s.err = &failure.Error{Class: failure.Gone, Err: err}
			for _, m := range messages {
				if m != nil && !m.leave() {
					m.free()
				}
			}
			return
		}
	}
	for i, m := range messages {
		if m == nil {
			continue
		}
		err := s.store.wait(s.ctx, m)
		if err == nil {
			err = s.take(requests[i], m, keys[i], denied)
		}
		if err != nil {
			s.err = err
		}
	}
}

// queue queues a message for each sub-request, and returns them with the keys as they are sent. A
// message is nil if its server is not asked. If start is false, the caller will flush the queues.
func (s *participant) queue(requests []*subRequest, denied, start bool) (messages []*message, keys []string) {
	messages, keys = make([]*message, len(requests)), make([]string, len(requests))
	to := make(map[*node][]*message, 1)
	var nodes []*node // of to, in the order of the requests
	for i, p := range requests {
		m := newMessage()
		m.group.Add(p.check, p.decision)
		if !p.check.Mode.Unconditional() {
			m.group.Flags = script.Reserves | script.Asks
		}
		m.deadline, m.group.Ended, m.group.Priority = s.deadline, s.ended, s.priority
		m.group.Pack(s.store.opts.Prefix, denied && !p.check.Mode.Unconditional())
		m.route()
		n, err := s.store.nodeFor(s.ctx, m.group.Keys[0], m.deadline)
		if err != nil {
			m.free()
			s.err = err
			continue
		}
		messages[i], keys[i] = m, m.group.Keys[0]
		if len(to[n]) == 0 {
			nodes = append(nodes, n)
		}
		to[n] = append(to[n], m)
	}
	for _, n := range nodes {
		queued := to[n]
		if err := n.queueAll(queued, start); err != nil {
			s.err = err
			for i, m := range messages {
				if slices.Contains(queued, m) {
					messages[i] = nil
					m.free()
				}
			}
		}
	}
	return messages, keys
}

// take takes the answer to a sub-request. key is the name of its log.
func (s *participant) take(p *subRequest, m *message, key string, denied bool) error {
	defer m.free()
	if err := s.store.read(s.ctx, m); err != nil {
		return err
	}
	if denied || p.check.Mode.Unconditional() || !p.decision.Allowed || p.check.Cost == 0 {
		return nil
	}
	p.charged(key, m.clock, m.group.Made())
	return nil
}

// abandon takes back the charge of a sub-request whose participant has failed, in the background.
func (p *subRequest) abandon() {
	if p.charge.cost == 0 {
		return
	}
	s := p.from.store
	s.background(func() {
		switch {
		case p.check.Budget != nil:
			_, _ = s.unreserve(p) // counted there
		case p.check.Limit.Policy == window.Sliding:
			_, _, _ = s.takeBackOf(context.Background(), p.reservation(), p.charge.cost) // counted there
		default:
			_, _ = s.restore(p) // counted there
		}
	})
}

// unreserve takes back the reservation of a sub-request, and returns what it was.
func (s *Store) unreserve(p *subRequest) (taken uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	if taken, err = s.ends.Unreserve(ctx, p.charge.log, p.check); err != nil {
		s.counts.notTakenBack.Add(p.charge.cost)
	}
	return taken, err
}

// settle takes back the charges of the participants that have decided, and updates their decisions. It
// waits for that until an instant of the local clock, and no longer than ctx allows.
func (p *multiSlotCall) settle(ctx context.Context, until int64) {
	done := make(chan func(), len(p.rounds[2])) // each updates a decision
	waiting := 0
	for _, one := range p.rounds[2] {
		if one.charge.cost == 0 || one.from.err != nil {
			continue
		}
		waiting++
		one.decision.Unsettled = true // until it is known to be taken back
		one.from.store.background(func() { done <- one.settle() })
	}
	if waiting == 0 {
		return
	}
	if p.pauser != nil && p.pauser.Pause(queue.Empty) != nil { // others begin to take back theirs
		return
	}
	timer := time.NewTimer(time.Duration(until - serverclock.Now()))
	defer timer.Stop()
	for range waiting {
		select {
		case update := <-done:
			update()
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settle takes back the charge of a sub-request, and returns the function that updates its decision.
func (p *subRequest) settle() (update func()) {
	d, s := p.decision, p.from.store
	if p.check.Budget != nil {
		taken, err := s.unreserve(p)
		return func() {
			d.Remaining, d.Reserved, d.Unsettled = d.Remaining+taken, d.Reserved-min(taken, d.Reserved), err != nil
		}
	}
	if p.check.Limit.Policy != window.Sliding {
		now, err := s.restore(p)
		if err != nil {
			return func() {}
		}
		return func() {
			d.Remaining, d.UnitAfter, d.ResetAfter, d.Unsettled = now.Remaining, now.UnitAfter, now.ResetAfter, false
		}
	}
	taken, reset, err := s.takeBackOf(context.Background(), p.reservation(), p.charge.cost)
	if err != nil || taken == 0 {
		return func() {}
	}
	return func() {
		d.Remaining += taken
		// UnitAfter was when the oldest hit expires, which is this charge if the
		// log is empty now. Otherwise it is right, or a hit of the meantime is the
		// oldest and it is too short by that time.
		d.UnitAfter, d.ResetAfter = min(d.UnitAfter, reset), reset
		d.Unsettled = taken < p.charge.cost
	}
}

// restore gives back the charge of a sub-request, whose policy is not the sliding log: at most once,
// and only if the period in which it was charged still counts. It returns how the log is then.
func (s *Store) restore(p *subRequest) (left window.Decision, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			s.counts.notTakenBack.Add(p.charge.cost)
		}
	}()
	refund := *p.check
	refund.Mode, refund.Cost = window.Refund, p.charge.cost
	m := newMessage()
	m.group.Add(&refund, &left)
	m.group.Flags, m.group.PeriodEnd, m.group.Priority = script.Restores, p.charge.periodEnd, window.PriorityHigh
	m.group.Pack(s.opts.Prefix, false)
	m.route()
	n, err := s.nodeFor(ctx, p.charge.log, serverclock.Now()+int64(takeBackTimeout))
	if err != nil {
		m.free()
		return left, err
	}
	_, err = s.ask(ctx, n, m)
	return left, err
}
