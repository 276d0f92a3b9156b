package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// An op is one call of an instance, and its answer.
type op struct {
	caller   string
	keys     []*key // the first is the caller's own
	cost     uint64
	attempt  string // its idempotency key
	refund   bool   // it gives the cost back
	stream   window.StreamID
	ending   string // it is the end of its stream, which has ended so
	paid     uint64 // what the stream has cost, of a budget
	instance *instance
	// begin and end are when the instance got the call and had an answer.
	begin, end time.Duration
	left       time.Duration // when Envoy gave up; 0: it did not

	answer     answer
	byStore    []bool // for each key: the store has decided
	limit      uint64 // of a key with tiers: by which it was decided
	retryAfter time.Duration
	repeated   bool // it was free, because its attempt has been charged
	err        error
	lost       bool // the instance was killed before it answered
}

type answer int

const (
	allowed answer = iota
	denied
	failed
)

func (o *op) String() string {
	text := fmt.Sprintf("%s asks %s for %d of %s", o.caller, o.instance.name, o.cost, o.keys[0].name)
	if o.ending != "" {
		text = fmt.Sprintf("%s tells %s the end of its stream of %s", o.caller, o.instance.name, o.keys[0].name)
	}
	if o.refund {
		text = fmt.Sprintf("%s gives %s back %d of %s", o.caller, o.instance.name, o.cost, o.keys[0].name)
	}
	if o.stream != 0 {
		text += fmt.Sprintf(", stream %d", o.stream)
	}
	if o.ending != "" && o.keys[0].Hold > 0 {
		text += fmt.Sprintf(", which has cost %d", o.paid)
	}
	for _, k := range o.keys[1:] {
		text += " and " + k.name
	}
	if o.attempt != "" {
		text += ", attempt " + o.attempt
	}
	switch o.answer {
	case allowed:
		text += ": allowed"
	case denied:
		text += ": denied"
		if o.retryAfter > 0 {
			text += fmt.Sprintf(", retry after %v", o.retryAfter)
		}
	default:
		reasons := strings.Split(o.err.Error(), "\n")
		slices.Sort(reasons) // of several scopes
		text += ": no decision, " + strings.Join(reasons, "; ")
	}
	for i, by := range o.byStore {
		if !by {
			text += fmt.Sprintf(", %s without the store", o.keys[i].name)
		}
	}
	if o.left > 0 {
		text += fmt.Sprintf(", too late for Envoy, which left at %v", o.left)
	}
	return fmt.Sprintf("%s (took %v)", text, o.end-o.begin)
}

// A caller sends the requests of one client through Envoy.
type caller struct {
	w    *world
	name string
	r    *rand.Rand
	key  *key
	seq  int
}

// run sends requests until the plan's end.
func (c *caller) run() {
	k := c.key
	for {
		c.sleep(time.Duration(c.r.ExpFloat64() * float64(k.Think)))
		if c.w.now() >= c.w.plan.Length {
			return
		}
		cost := 1 + c.r.Uint64N(k.Costs)
		c.seq++
		switch {
		case k.Limit.Policy == window.InFlight, k.Hold > 0:
			c.stream(cost)
		case k.Once:
			c.attempt(cost)
		default:
			o := c.ask(cost, "")
			if k.Patient && o.answer == denied && o.retryAfter > 0 && o.retryAfter < c.w.plan.Length {
				c.sleep(o.retryAfter)
				if c.w.now() < c.w.plan.Length {
					c.ask(o.cost, "")
				}
			}
			if k.Refunds && o.answer == allowed && o.byStore[0] && c.r.IntN(2) == 0 {
				c.sleep(time.Duration(c.r.IntN(20_000)) * time.Microsecond)
				back := c.begin(1+c.r.Uint64N(o.cost), "")
				back.refund = true
				c.w.send(back)
			}
		}
	}
}

// attempt sends a request, and again with the same key if it has no answer, or for no reason.
func (c *caller) attempt(cost uint64) {
	id := fmt.Sprintf("%s-%d", c.name, c.seq)
	for range 1 + rules.DefaultOnceRetries {
		o := c.ask(cost, id)
		if o.answer != failed && o.left == 0 && c.r.IntN(4) > 0 {
			return
		}
		c.sleep(time.Duration(c.r.IntN(3000)) * time.Microsecond)
	}
}

// stream begins a stream, and ends it later. One client in five leaves before there is an answer.
func (c *caller) stream(cost uint64) {
	o := c.begin(cost, "")
	o.stream = window.StreamID(c.w.number(c.name, c.seq) | 1)
	ending, paid := "completed", uint64(0)
	if c.r.IntN(5) == 0 {
		done := make(chan struct{})
		go func() {
			c.w.send(o)
			close(done)
		}()
		c.sleep(time.Duration(c.r.IntN(2000)) * time.Microsecond)
		defer func() { <-done }()
	} else {
		c.w.send(o)
		if o.answer == denied {
			ending = "request_rate_limited"
		}
		if o.answer == allowed && c.key.Hold > 0 {
			paid = c.r.Uint64N(cost + 1)
		}
		c.sleep(time.Duration(c.r.ExpFloat64() * float64(60*time.Millisecond)))
	}
	if c.key.Limit.Window != total && c.r.IntN(10) == 0 || c.key.Hold == time.Second && c.r.IntN(10) == 0 {
		return // nothing reports its end
	}
	end := c.begin(0, "")
	end.stream, end.ending, end.paid = o.stream, ending, paid
	c.w.send(end)
}

// sleep waits, and some nanoseconds of the caller's own, so that no two things happen at once.
func (c *caller) sleep(d time.Duration) { time.Sleep(d + time.Duration(c.r.IntN(1000))) }

// ask sends a request to an instance.
func (c *caller) ask(cost uint64, attempt string) *op {
	o := c.begin(cost, attempt)
	c.w.send(o)
	return o
}

// begin makes a request, and chooses an instance for it.
func (c *caller) begin(cost uint64, attempt string) *op {
	w := c.w
	o := &op{caller: c.name, keys: []*key{c.key}, cost: cost, attempt: attempt}
	if c.key.Joins >= 0 {
		o.keys = append(o.keys, w.keys[c.key.Joins])
	}
	c.sleep(60*time.Microsecond + time.Duration(c.r.IntN(100_000)))
	first := c.r.IntN(len(w.instances))
	for o.instance == nil {
		w.mu.Lock()
		for try := range w.instances {
			if in := w.instances[(first+try)%len(w.instances)]; in != nil && in.frozen <= w.now() {
				o.instance = in
				break
			}
		}
		w.mu.Unlock()
		if o.instance == nil { // Envoy finds none, and the client tries again
			c.sleep(20 * time.Millisecond)
		}
	}
	return o
}

// send sends a request, as Envoy does: it gives up after some time.
func (w *world) send(o *op) {
	ctx, cancel := context.WithTimeout(context.Background(), envoyTimeout)
	defer cancel()
	o.decide(ctx, w)
	if ctx.Err() != nil {
		o.left = o.begin + envoyTimeout
	}
}

// request returns the request of an op.
func (o *op) request() decide.Request {
	req := decide.Request{Domain: domain}
	if o.keys[0].Once {
		req.Domain = onceDomain
	}
	if req.Stream, req.Ending = o.stream, o.ending; o.ending != "" {
		if k := o.keys[0]; k.Hold > 0 {
			entries := descriptors.Descriptor{{Key: k.name, Value: k.value()}}
			req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: entries, Cost: o.paid})
		}
		req.Descriptors = append(req.Descriptors, identity.EndOfStream())
		return req
	}
	for _, k := range o.keys {
		d := decide.Descriptor{Entries: descriptors.Descriptor{{Key: k.name, Value: k.value()}}, Cost: o.cost, Refund: o.refund}
		if o.attempt != "" {
			d.Entries = append(d.Entries, descriptors.Entry{Key: onceEntry, Value: o.attempt})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// decide lets the instance decide the call.
func (o *op) decide(ctx context.Context, w *world) {
	w.mu.Lock()
	o.begin = w.now()
	for _, k := range o.keys {
		k.open++
	}
	w.mu.Unlock()
	var call decide.Call
	in := o.instance
	in.decider.Begin(&call, o.request())
	first := ctx
	if w.plan.Pauses {
		first = context.WithValue(ctx, window.PauserKey{}, in.pauses)
	}
	decided, err := call.Decide(first, false)
	if !decided {
		_, err = call.Decide(ctx, true)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o.end, o.err, o.lost = w.now(), err, in.gone
	w.decisions++
	if k := o.keys[0]; k.Hold > 0 && o.ending == "" {
		defer func() {
			if o.answer == failed || o.answer == allowed && !o.byStore[0] {
				k.owed += o.cost
			}
		}()
	}
	w.ops = append(w.ops, o)
	o.byStore = make([]bool, len(o.keys))
	for i, k := range o.keys {
		k.open--
		if checks := call.Checks(); i < len(checks) && o.ending == "" {
			k.learn(&checks[i])
		}
	}
	if err != nil {
		o.answer = failed
		return
	}
	v := call.Verdict()
	if !v.Allowed {
		o.answer = denied
	}
	for i := range v.Limits {
		o.byStore[i] = v.Limits[i].DecidedBy == verdict.ByStore
	}
	if o.keys[0].Tiers && len(v.Limits) > 0 {
		o.limit = v.Limits[0].Limit.Hits
		o.byStore[0] = o.byStore[0] && o.limit > unknownHits // an unknown customer has another log
	}
	if v.Decisive >= 0 {
		d := &v.Limits[v.Decisive].Decision
		o.retryAfter, o.repeated = d.RetryAfter, d.Repeated
	}
}
