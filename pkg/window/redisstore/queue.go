package redisstore

import (
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

// A queue has the messages that wait for a node, the oldest of the highest priority first. The
// zero value is an empty queue. It is not safe for concurrent use.
type queue struct {
	of    [window.PriorityHigh - window.PriorityLow + 1][]*message // by priority, the lowest first
	count int
}

// push adds a message. If more than most messages wait then, which zero allows, it removes the
// newest of the lowest priority and returns it, which may be m. It never removes a message that
// gives hits back.
func (q *queue) push(m *message, most int) (removed *message) {
	of := &q.of[m.group.Priority-window.PriorityLow]
	*of = append(*of, m)
	q.count++
	if most == 0 || q.count <= most {
		return nil
	}
	for i := range q.of {
		of := &q.of[i]
		if last := len(*of) - 1; last >= 0 && (*of)[last].group.Flags&script.Restores == 0 {
			removed = (*of)[last]
			(*of)[last] = nil
			*of = (*of)[:last]
			q.count--
			return removed
		}
	}
	return nil
}

// take moves the first messages into batch, and returns how many. They fit into one call of the
// script: it has at most maxShared checks, or one message.
func (q *queue) take(batch []*message) (count int) {
	checks := 0
	for i := len(q.of) - 1; i >= 0; i-- {
		of := q.of[i]
		taken := 0
		for taken < len(of) && count < len(batch) {
			checks += len(of[taken].group.Keys)
			if checks > maxShared && count > 0 {
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
