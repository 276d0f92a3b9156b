package unary

import "golang.org/x/net/http2"

// The bound on answers that wait for the windows of their clients, of all connections together.
const (
	// maxWaiting is how many bytes they take at most.
	maxWaiting = 64 << 20
	// waitingCost is what each of them takes in addition to its message: its stream, and its entries in maps.
	waitingCost = 512
)

// keepWaiting counts an answer that begins to wait. If all connections hold too much then, the one
// that holds the most is ended.
func (l *locked) keepWaiting(st *stream, message []byte) {
	st.waits = int64(cap(message) + waitingCost)
	l.conn.waiting.Add(st.waits)
	s := l.conn.server
	if s.waiting.Add(st.waits) > maxWaiting && s.relieving.CompareAndSwap(false, true) {
		go s.relieve() // it needs locks of other connections
	}
}

// endWaiting counts that an answer waits no longer, if it did.
func (l *locked) endWaiting(st *stream) {
	if st.waits > 0 {
		l.conn.waiting.Add(-st.waits)
		l.conn.server.waiting.Add(-st.waits)
		st.waits = 0
	}
}

// dropWaiting releases all answers of a connection that has ended.
func (l *locked) dropWaiting() {
	clear(l.streams)
	l.flow.blocked = nil
	l.conn.server.waiting.Add(-l.conn.waiting.Swap(0))
}

// relieve ends the connections that hold the most of waiting answers, until few enough wait.
func (s *Server) relieve() {
	defer s.relieving.Store(false)
	for s.waiting.Load() > maxWaiting {
		var most *conn
		s.mu.Lock()
		for c := range s.conns {
			if most == nil || c.waiting.Load() > most.waiting.Load() {
				most = c
			}
		}
		s.mu.Unlock()
		if most == nil || most.waiting.Load() == 0 {
			return
		}
		most.calm()
	}
}

// calm ends a connection whose client leaves too many answers waiting.
func (c *conn) calm() {
	l := c.shared.lock()
	defer l.unlock()
	if !l.life.hungUp && l.life.phase != failed {
		l.enter(failed)
		c.server.o.Meters.GoAway(reasonSlow)
		l.write(l.framer.WriteGoAway(l.lastID, http2.ErrCodeEnhanceYourCalm, []byte("too many answers wait for the client's windows")))
		go c.flush() // it may block; check closes the connection then
	}
	l.dropWaiting()
}
