package redisstore

import (
	"sync"
	"sync/atomic"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

// A message is a group on its way to a node and back. The caller and the sender share it.
// Either may be done first: state says which. The one that is done last frees it.
type message struct {
	// The request. The caller writes it before the sender gets the message.
	group    script.Group
	tag      string        // on a cluster
	deadline int64         // of the local clock, 0: none
	patient  bool          // the deadline is the store's timeout, not an earlier one
	pauser   window.Pauser // lets the caller wait with others; nil: it waits itself

	// The result. The sender writes it before it sends to done.
	reply string // the answers to its checks
	clock int64  // the server's clock when it decided, in microseconds
	err   error
	again bool // it was sent a second time, because the first call did nothing
	batch int  // how many messages the call of the script had
	state atomic.Int32
	done  chan struct{}
}

// States of a message.
const (
	queued int32 = iota
	sent
	answered // the result is in done
	left     // the caller has gone
)

var messages = sync.Pool{New: func() any {
	return &message{group: script.Group{Priority: window.PriorityLow}, done: make(chan struct{}, 1)}
}}

// Priority, Searches and Restores implement [queue.Message].
func (m *message) Priority() window.Priority { return m.group.Priority }
func (m *message) Searches() int             { return m.group.Searches }
func (m *message) Restores() bool            { return m.group.Flags&script.Restores != 0 }

func newMessage() *message { return messages.Get().(*message) }

// free empties the message and returns it to the pool.
func (m *message) free() {
	m.group.Reset()
	m.tag, m.deadline, m.patient, m.pauser = "", 0, false, nil
	m.reply, m.clock, m.err, m.again, m.batch = "", 0, nil, false, 0
	m.state.Store(queued)
	messages.Put(m)
}

// begin marks the message as sent. It returns false if the caller has left; the sender must
// then free the message.
func (m *message) begin() bool { return m.state.CompareAndSwap(queued, sent) }

// finish hands the message back to its caller. If the caller has left, it frees it.
func (m *message) finish(reply string, clock int64, err error) {
	m.reply, m.clock, m.err = reply, clock, err
	if m.state.CompareAndSwap(sent, answered) {
		m.done <- struct{}{}
		return
	}
	m.free()
}

// leave marks that the caller waits no longer. It returns false if the answer has come after
// all.
func (m *message) leave() bool {
	if m.state.CompareAndSwap(queued, left) || m.state.CompareAndSwap(sent, left) {
		return true
	}
	<-m.done
	return false
}

// KeyName returns the name in Redis of a log, as [Options.Prefix] begins it.
func KeyName(prefix string, id window.LogID) string { return script.KeyName(prefix, id) }

// ParseKeyName is the reverse of [KeyName] with an empty prefix. It returns false if name is
// not the name of a log.
func ParseKeyName(name string) (id window.LogID, ok bool) { return script.ParseKeyName(name) }
