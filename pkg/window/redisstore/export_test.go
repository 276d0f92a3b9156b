package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// WithoutExpiry returns a log as the memory store has it.
var WithoutExpiry = withoutExpiry

// SetInstances sets the number of instances that share the logs.
func (s *Store) SetInstances(n int) { s.seen.number.Store(int64(n)) }

// MaxRequests is how many requests one call of the script decides at most.
const MaxRequests = maxRequests

// A Request is what one call of [Store.Take] decides.
type Request struct {
	Checks    []window.Check
	Decisions []window.Decision // as long as Checks; filled in
}

// TakeAll decides requests with one call of the script, in order: a later request counts
// what an earlier one has charged. [Store.Take] shares calls of the script only between
// requests that wait at the same time. On a cluster all logs must be on one slot.
//
// An error may be that of one request only.
func (s *Store) TakeAll(ctx context.Context, requests []Request) error {
	var batch []*message
	for _, r := range requests {
		if err := window.Validate(r.Checks, r.Decisions); err != nil {
			return err
		}
		m := newMessage()
		m.group.AddAll(s.opts.Prefix, r.Checks, r.Decisions)
		if len(m.group.Keys) == 0 {
			m.group.Fill()
			m.free()
			continue
		}
		m.deadline, m.patient = s.deadline(ctx)
		m.route()
		batch = append(batch, m)
	}
	if len(batch) == 0 {
		return nil
	}
	n, err := s.nodeFor(ctx, batch[0].group.Keys[0], batch[0].deadline)
	if err != nil {
		return err
	}
	waiting := append([]*message(nil), batch...) // send changes batch
	s.background(func() { n.send(batch) })
	var errs []error
	for _, m := range waiting {
		err := s.wait(ctx, m)
		if err == nil {
			err = m.group.Answer(m.reply, s.opts.Corrupt)
			m.free()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// timeStatement is the one line of a script that reads the clock.
const timeStatement = "local time = redis.call('TIME')\n"

// withClock returns the script with another source of the time: an expression of
// Lua that tells it in microseconds.
func withClock(t testing.TB, expression string) script.Script {
	t.Helper()
	return withTime(t, script.Take.Text, expression)
}

// latestClock is where a script bounds the clocks of values.
const latestClock = "clock < 2 ^ 52 - 86400000000 and clock + 86400000000 or 2 ^ 52"

// withTime is withClock for any script. It does not bound how far a value's clock is ahead, because
// package window does not: there a clock may be set back by years.
func withTime(t testing.TB, text, expression string) script.Script {
	t.Helper()
	if got := strings.Count(text, "'TIME'"); got != 1 {
		t.Fatalf("the script asks for the time in %d places, want 1", got)
	}
	if got := strings.Count(text, timeStatement); got != 1 {
		t.Fatalf("the script has the statement %q %d times, want once", timeStatement, got)
	}
	text = strings.Replace(text, latestClock, "2 ^ 52", 1)
	return script.New(strings.Replace(text, timeStatement, fmt.Sprintf("local time = {0, %s}\n", expression), 1))
}

// NewWithClock returns a store that runs the same script, except that it reads
// the time, in microseconds, from the key clockKey.
func NewWithClock(t testing.TB, client Client, o Options, clockKey string) *Store {
	t.Helper()
	s := New(client, o)
	clock := fmt.Sprintf("redis.call('GET', '%s')", clockKey)
	s.scripts.take = withTime(t, script.Take.Text, clock)
	s.scripts.takeBack = withTime(t, script.TakeBack.Text, clock)
	s.scripts.logs = withTime(t, script.Logs.Text, clock)
	s.scripts.ends = withTime(t, script.Streams.Text, clock)
	return s
}

// A Pending is a check of a request on several slots. It is decided, and another slot may still deny
// the request.
type Pending struct{ of *multiSlotCall }

// TakePending decides a check as one of several.
func (s *Store) TakePending(t testing.TB, c window.Check) (*Pending, window.Decision) {
	t.Helper()
	one := &participant{store: s, ctx: t.Context()}
	p := newMultiSlotCall([]window.Check{c}, make([]window.Decision, 1), func(*window.Check) *participant { return one })
	if p.ask([]*participant{one}, p.rounds[2]); one.err != nil {
		t.Fatalf("%+v: %v", c, one.err)
	}
	return &Pending{p}, p.decisions[0]
}

// Deny takes back what the check has recorded. It returns the decision as it is then.
func (p *Pending) Deny() window.Decision {
	p.of.settle(context.Background(), serverclock.Now()+int64(time.Minute))
	return p.of.decisions[0]
}

// CountEvery is [Store.Count] with the time between heartbeats, and the time after which the number falls.
func (s *Store) CountEvery(ctx context.Context, every, falls time.Duration, counted func(before, now int, err error)) error {
	return s.countEvery(ctx, every, falls, counted)
}

// BeatScriptAt returns the script of a heartbeat with another source of the second.
func BeatScriptAt(t testing.TB, expression string) string {
	t.Helper()
	if strings.Count(script.Instances.Text, timeStatement) != 1 {
		t.Fatalf("the script has not one statement %q", timeStatement)
	}
	return strings.Replace(script.Instances.Text, timeStatement, fmt.Sprintf("local time = {%s}\n", expression), 1)
}
