package unary

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// handOver is how long the goroutine that reads waits for the calls of a burst. Then another one
	// reads on, so that a slow store holds up neither PINGs nor later calls.
	handOver = time.Millisecond
	// maxRoutines is how many idle routines a server keeps.
	maxRoutines = 256
)

// A burst is the calls of a connection that pause until the goroutine that reads has no more whole
// frames. Then that goroutine waits for all of them at once.
type burst struct {
	conn   *conn
	paused []*paused
	state  atomic.Int32
	timer  *time.Timer // nil until the first wait
}

// States of a burst.
const (
	gathering  int32 = iota
	settling         // the goroutine that reads waits for it
	handedOver       // another goroutine reads on
)

// A paused is a call in a routine, and its context. The context has a [window.Pauser], and no timer: a
// call that pauses ends before its deadline.
type paused struct {
	context.Context
	call     Call
	stream   *stream
	deadline time.Time
	routine  *routine
	until    window.Flusher // what the call waits for
}

// Deadline and Value implement context.Context.
func (p *paused) Deadline() (time.Time, bool) { return p.deadline, !p.deadline.IsZero() }
func (p *paused) Value(key any) any {
	if key == (window.PauserKey{}) {
		return p.routine
	}
	return p.Context.Value(key)
}

// A routine is a coroutine that handles one call after another. It runs only while the goroutine of
// its caller stands still in next.
type routine struct {
	next  func() (window.Flusher, bool) // runs until the call pauses, or until it is handled: then it returns nil
	stop  func()
	yield func(window.Flusher) bool

	paused  *paused
	answer  []byte
	decided bool
	err     error
}

func newRoutine() *routine {
	t := new(routine)
	t.next, t.stop = iter.Pull(func(yield func(window.Flusher) bool) {
		t.yield = yield
		for more := true; more; more = yield(nil) {
			p := t.paused
			t.answer, t.decided, t.err = p.stream.method.handler(p, window.NoWait, &p.call, append(t.answer[:0], 0, 0, 0, 0, 0))
		}
	})
	return t
}

// Pause implements window.Pauser.
func (t *routine) Pause(until window.Flusher) error {
	if !t.yield(until) {
		return errors.New("the server has given the call up")
	}
	return nil
}

// routines are the idle ones of a server.
type routines struct {
	mu   sync.Mutex
	idle []*routine
}

func (s *routines) get() *routine {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		t := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return t
	}
	return newRoutine()
}

// put keeps a routine whose call has ended.
func (s *routines) put(t *routine) {
	t.paused, t.err = nil, nil
	if cap(t.answer) > maxAnswerKept {
		t.answer = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) < maxRoutines {
		s.idle = append(s.idle, t)
	} else {
		t.stop()
	}
}

// close ends all idle routines.
func (s *routines) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.idle {
		t.stop()
	}
	s.idle = nil
}

// pause asks the Handler of a call once more, in a routine. If the call pauses, it is a part of the
// burst.
func (r *reader) pause(st *stream, call *Call) {
	p := &paused{Context: r.ctx, call: *call, stream: st, deadline: st.request.deadline, routine: r.server.routines.get()}
	p.routine.paused = p
	r.handOff(st)
	b := r.handling.burst
	if b == nil {
		b = &burst{conn: r.conn}
		r.handling.burst = b
	}
	if b.resume(p) {
		b.paused = append(b.paused, p)
	}
}

// resume lets the Handler of a call go on. It reports whether the call has paused. Otherwise it is
// answered, or another goroutine waits for the Handler.
func (b *burst) resume(p *paused) (again bool) {
	t, c := p.routine, b.conn
	if p.until, _ = t.next(); p.until != nil {
		return true
	}
	if t.err == nil && !t.decided {
		c.spawn(p.stream, p.deadline, waiting(p.stream.method.handler, &p.call))
	} else {
		c.handled(p.stream, result(t.answer, t.err), b)
	}
	c.server.routines.put(t)
	return false
}

// settle waits until all calls are answered.
func (b *burst) settle() {
	defer func() {
		for _, p := range b.paused { // only if a bug panics
			p.routine.stop()
		}
	}()
	for len(b.paused) > 0 {
		b.flush()
		for i := 0; i < len(b.paused); {
			if b.resume(b.paused[i]) {
				i++
			} else {
				b.paused = slices.Delete(b.paused, i, i+1)
			}
		}
	}
}

// flush flushes all that the calls wait for.
func (b *burst) flush() {
	var all sync.WaitGroup
	for i, p := range b.paused {
		if !slices.ContainsFunc(b.paused[:i], func(o *paused) bool { return o.until == p.until }) && i > 0 {
			all.Go(p.until.Flush)
		}
	}
	b.paused[0].until.Flush()
	all.Wait()
}

// settle waits for the calls of the burst. It reports whether another goroutine reads on meanwhile:
// the caller must not use r any more then.
func (r *reader) settle() (handed bool) {
	b, s := r.handling.burst, r.server
	r.handling.burst = nil
	r.flush()
	s.gone.Add(1) // for the other goroutine
	b.state.Store(settling)
	if b.timer == nil {
		b.timer = time.AfterFunc(handOver, func() {
			if b.state.CompareAndSwap(settling, handedOver) {
				r.serve(nil)
			}
		})
	} else {
		b.timer.Reset(handOver)
	}
	b.settle()
	if !b.state.CompareAndSwap(settling, gathering) {
		b.conn.flush()
		return true
	}
	b.timer.Stop()
	s.gone.Done()
	r.handling.burst = b
	return false
}

// settleApart is settle for a goroutine that cannot wait.
func (r *reader) settleApart() {
	b := r.handling.burst
	if b == nil || len(b.paused) == 0 {
		return
	}
	r.handling.burst = nil
	b.state.Store(handedOver)
	b.conn.server.gone.Add(1) // the connection still counts
	go func() {
		defer b.conn.server.gone.Done()
		defer b.conn.recovered()
		b.settle()
		b.conn.flush()
	}()
}
