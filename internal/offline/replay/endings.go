package replay

import (
	"container/heap"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// endings are the requests whose end is still to come.
type endings struct {
	open     ends
	duration int // the index of the duration in the values of a record
	// unknown counts the requests whose end matters and is not known.
	unknown Unreported
	last    uint64 // the request that was counted last
}

// maxEnds bounds the requests whose end is still to come. Above it, the earliest ends come early.
const maxEnds = 1 << 18

// end decides the questions that Envoy asks at the ends of requests up to a time.
func (e *Engine) end(ctx context.Context, until time.Duration) error {
	for len(e.endings.open) > 0 && (e.endings.open[0].at <= until || len(e.endings.open) > maxEnds) {
		end := heap.Pop(&e.endings.open).(*pending)
		if err := end.decider.ended(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

// later keeps what Envoy asks when a request has ended, for a decider.
func (e *Engine) later(r *accesslog.Record, q *Question, d *decider) {
	after, ok := lasted(&r.Values[e.endings.duration])
	if !ok && e.endings.last != e.number {
		e.endings.last = e.number
		e.endings.unknown.Requests++
	}
	heap.Push(&e.endings.open, &pending{at: r.At + after, number: e.number, decider: d, question: cloned(q)})
}

// lasted reads a duration in milliseconds.
func lasted(v *accesslog.Value) (time.Duration, bool) {
	const most = float64(1 << 32)
	if v.State != accesslog.Present {
		return 0, false
	}
	ms, err := strconv.ParseFloat(string(v.Text), 64)
	if err != nil || !(ms >= 0 && ms < most) {
		return 0, false
	}
	return time.Duration(ms * float64(time.Millisecond)), true
}

// cloned copies a question, whose texts belong to the describer.
func cloned(q *Question) Question {
	c := Question{Domain: strings.Clone(q.Domain), Subject: strings.Clone(q.Subject), AtEnd: true, Descriptors: slices.Clone(q.Descriptors)}
	for i := range c.Descriptors {
		d := &c.Descriptors[i]
		d.Entries = slices.Clone(d.Entries)
		for j := range d.Entries {
			d.Entries[j].Key, d.Entries[j].Value = strings.Clone(d.Entries[j].Key), strings.Clone(d.Entries[j].Value)
		}
	}
	return c
}

// A pending is a question that Envoy asks at the end of a request.
type pending struct {
	at       time.Duration
	number   uint64 // of the request
	decider  *decider
	question Question
}

// ends is a heap of them, the earliest first; see [heap.Interface].
type ends []*pending

func (h ends) Len() int { return len(h) }

func (h ends) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h ends) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}

func (h *ends) Push(p any) { *h = append(*h, p.(*pending)) }

func (h *ends) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

// unreported returns the duration if the logs lack it.
func (e *endings) unreported() (all []Unreported) {
	if e.unknown.Requests > 0 {
		one := e.unknown
		one.Attribute, one.Location = accesslog.Duration, "a limit in flight or a cost at the end"
		one.Effect = "The requests counted as ended when they began. To record it, add " + accesslog.Duration.String() + " to the log format."
		all = append(all, one)
	}
	return all
}
