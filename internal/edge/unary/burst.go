package unary

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/edge/coroutine"
	"github.com/slidegate/slidegate/pkg/window"
)

// handOver is how long the goroutine that reads waits for the calls of a burst, or up to twice that.
// Then another one reads on, so that a slow store holds up neither PINGs nor later calls.
const handOver = time.Millisecond

// A burst is the calls of a connection that pause until the goroutine that reads has no more whole
// frames. Then that goroutine waits for all of them at once.
type burst struct {
	conn   *conn
	paused []*paused
	state  atomic.Int32
	since  atomic.Int64 // when the wait began, from the start of the server
}

// States of a burst.
const (
	gathering  int32 = iota
	settling         // the goroutine that reads waits for it
	handedOver       // another goroutine reads on
)

// A paused is a call in a coroutine, and its context. The context has a [window.Pauser], and no timer:
// a call that pauses ends before its deadline.
type paused struct {
	context.Context
	call     Call
	stream   *stream
	deadline time.Time
	routine  *coroutine.Coroutine
	until    window.Flusher // what the call waits for

	answer  []byte
	decided bool
	err     error
}

// Deadline and Value implement context.Context.
func (p *paused) Deadline() (time.Time, bool) { return p.deadline, !p.deadline.IsZero() }

func (p *paused) Value(key any) any {
	if key == (window.PauserKey{}) {
		return p.routine
	}
	return p.Context.Value(key)
}

// Run implements [coroutine.Job].
func (p *paused) Run(c *coroutine.Coroutine) {
	p.answer, p.decided, p.err = p.stream.method.handler(p, window.NoWait, &p.call, append(c.Memory[:0], 0, 0, 0, 0, 0))
}

// pause asks the Handler of a call in a coroutine. If the call pauses, it is a part of the
// burst.
func (r *reader) pause(st *stream, call *Call) {
	p := &paused{Context: r.ctx, call: *call, stream: st, deadline: st.request.deadline, routine: r.server.routines.Get()}
	r.handOff(st)
	b := r.handling.burst
	if b == nil {
		b = &burst{conn: r.conn}
		r.handling.burst = b
	}
	p.until = p.routine.Start(p)
	if pauses := p.until != nil; st.method.pauses.Load() != pauses {
		st.method.pauses.Store(pauses)
	}
	if p.until != nil {
		b.paused = append(b.paused, p)
	} else {
		b.end(p)
	}
}

// end answers a call whose Handler has returned, or lets another goroutine wait for the Handler.
func (b *burst) end(p *paused) {
	c := b.conn
	if p.err == nil && !p.decided {
		c.spawn(p.stream, p.deadline, waiting(p.stream.method.handler, &p.call))
	} else {
		c.handled(p.stream, result(p.answer, p.err), b)
	}
	if p.answer != nil && cap(p.answer) <= maxAnswerKept {
		p.routine.Memory = p.answer
	}
	c.server.routines.Put(p.routine)
}

// settle waits until all calls are answered.
func (b *burst) settle() {
	defer func() {
		for _, p := range b.paused { // only if a bug panics
			p.routine.Stop()
		}
	}()
	for len(b.paused) > 0 {
		b.part()
		slices.SortStableFunc(b.paused, sooner) // each may still wait until its deadline
		b.paused[0].until.Flush()
		since := time.Now()
		for i := 0; i < len(b.paused); {
			p := b.paused[i]
			if p.until = p.routine.Next(); p.until != nil {
				i++
				continue
			}
			b.end(p)
			b.paused = slices.Delete(b.paused, i, i+1)
			now := time.Now()
			if now.Sub(since) > handOver {
				b.conn.flush() // the next one may take as long
			}
			since = now
		}
	}
}

// sooner orders calls by their deadlines. Calls without come last.
func sooner(a, b *paused) int {
	if a.deadline.IsZero() || b.deadline.IsZero() {
		return cmp.Compare(b.deadline.Unix(), a.deadline.Unix())
	}
	return a.deadline.Compare(b.deadline)
}

// part lets the calls that wait for another Flusher than the first one does go on apart: a store that is
// far away, or hangs, does not delay the answers of another.
func (b *burst) part() {
	var others []*paused
	first := b.paused[0].until
	b.paused = slices.DeleteFunc(b.paused, func(p *paused) bool {
		other := p.until != first
		if other {
			others = append(others, p)
		}
		return other
	})
	if len(others) > 0 {
		(&burst{conn: b.conn, paused: others}).settleApart()
	}
}

// settle waits for the calls of the burst. It reports whether another goroutine reads on meanwhile:
// the caller must not use r any more then.
func (r *reader) settle() (handed bool) {
	b, s := r.handling.burst, r.server
	r.handling.burst = nil
	r.flush()
	s.gone.Add(1) // for the other goroutine
	b.since.Store(int64(time.Since(s.start)))
	b.state.Store(settling)
	r.handling.watch.over(r, b)
	b.settle()
	if !b.state.CompareAndSwap(settling, gathering) {
		b.conn.flush()
		return true
	}
	s.gone.Done()
	r.handling.burst = b
	return false
}

// A watch lets another goroutine read on while a burst takes long. Its timer is not stopped when a
// burst was quick, and not set again while it runs: that would wake a thread for every burst.
type watch struct {
	timer *time.Timer // nil: no burst has waited yet
	runs  atomic.Bool
	burst atomic.Pointer[burst]
}

// over watches the burst for which the goroutine that reads begins to wait.
func (w *watch) over(r *reader, b *burst) {
	w.burst.Store(b)
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Hour, func() { w.check(r) })
	}
	if !w.runs.Swap(true) {
		w.timer.Reset(handOver)
	}
}

// check hands over the reading if the burst takes long.
func (w *watch) check(r *reader) {
	w.runs.Store(false)
	b := w.burst.Load()
	if b.state.Load() != settling {
		return
	}
	if left := handOver - (time.Since(r.server.start) - time.Duration(b.since.Load())); left > 0 {
		if !w.runs.Swap(true) {
			w.timer.Reset(left)
		}
	} else if b.state.CompareAndSwap(settling, handedOver) {
		r.serve(nil)
	}
}

// settleApart is settle for a goroutine that cannot wait.
func (r *reader) settleApart() {
	if b := r.handling.burst; b != nil && len(b.paused) > 0 {
		r.handling.burst = nil
		b.settleApart()
	}
}

// settleApart is settle on another goroutine.
func (b *burst) settleApart() {
	b.state.Store(handedOver)
	b.conn.server.gone.Add(1) // the connection still counts
	go func() {
		defer b.conn.server.gone.Done()
		defer b.conn.recovered()
		b.settle()
		b.conn.flush()
	}()
}
