// Package queue has the queue of the messages that wait for a server of Redis.
package queue

import "github.com/slidegate/slidegate/pkg/window"

// A Message waits in a [Queue].
type Message interface {
	Priority() window.Priority
	Searches() int // an estimate of how often the server searches logs for it
	// Restores reports whether the message gives hits back: the queue never removes it.
	Restores() bool
}

// A Queue has messages, the oldest of the highest priority first. The zero value is an empty queue. It
// is not safe for concurrent use.
type Queue[M Message] struct {
	of    [window.PriorityHigh - window.PriorityLow + 1][]M // by priority, the lowest first
	count int
}

// Len returns how many messages wait.
func (q *Queue[M]) Len() int { return q.count }

// Push adds a message. If more than most messages wait then, which zero allows, it removes the
// newest of the lowest priority and returns it, which may be m. Otherwise removed is the zero value.
func (q *Queue[M]) Push(m M, most int) (removed M) {
	of := &q.of[m.Priority()-window.PriorityLow]
	*of = append(*of, m)
	q.count++
	if most == 0 || q.count <= most {
		return removed
	}
	for i := range q.of {
		of := &q.of[i]
		if last := len(*of) - 1; last >= 0 && !(*of)[last].Restores() {
			removed, (*of)[last] = (*of)[last], removed
			*of = (*of)[:last]
			q.count--
			return removed
		}
	}
	return removed
}

// Take moves the first messages into batch, and returns how many. They need at most so many searches
// together, or there is one message.
func (q *Queue[M]) Take(batch []M, most int) (count int) {
	searches := 0
	for i := len(q.of) - 1; i >= 0; i-- {
		of := q.of[i]
		taken := 0
		for taken < len(of) && count < len(batch) {
			searches += of[taken].Searches()
			if searches > most && count > 0 {
				break
			}
			batch[count] = of[taken]
			count, taken = count+1, taken+1
		}
		left := copy(of, of[taken:])
		clear(of[left:])
		q.of[i] = of[:left]
		if left > 0 {
			break // no message goes before one of a higher priority
		}
	}
	q.count -= count
	return count
}

// Empty is what calls pause for that have nothing to send, so that others on their goroutine go on.
var Empty window.Flusher = new(empty)

type empty struct{ _ byte } // of a size, so that Empty has an address of its own

// Flush implements [window.Flusher].
func (*empty) Flush() {}
