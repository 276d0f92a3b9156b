package unary

import (
	"net"
	"sync"
	"time"
)

const (
	// flushAt is how many bytes the reader lets gather before it writes them, although
	// more answers could follow at once.
	flushAt = 32 << 10
	// maxOutput is how many bytes may wait to be sent before nothing more is read.
	maxOutput = 256 << 10
)

// output is what is to be sent: a buffer that frames are appended to, and one that a
// goroutine is writing. It is part of [locked].
type output struct {
	to      net.Conn // the socket, or TLS on it
	buf     []byte
	memory  *[]byte // of buf, to be given back
	writing bool    // a goroutine is writing, without the lock
	since   time.Duration
	ended   bool // this side of the connection is closed
	err     error
	drained sync.Cond // signals that buf was taken, or that err is set
}

// buffers keep the memory of outputs that are empty.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// Write implements io.Writer for the Framer.
func (o *output) Write(p []byte) (int, error) {
	if o.memory == nil {
		o.memory = buffers.Get().(*[]byte)
		o.buf = (*o.memory)[:0]
	}
	o.buf = append(o.buf, p...)
	return len(p), nil
}

// fail ends all writing.
func (o *output) fail(err error) {
	if o.err == nil {
		o.err = err
	}
	o.drained.Broadcast()
}

// write checks what the Framer returns. The Framer writes into memory, so an error
// means that the server has made an invalid frame.
func (*locked) write(err error) {
	if err != nil {
		panic("unary: " + err.Error())
	}
}

// flush writes what is to be sent. If another goroutine is writing, flush leaves the
// bytes to that one. It releases the lock while it writes.
func (l *locked) flush() {
	o := &l.out
	if o.ended {
		// The client reads nothing more, and to write would make the socket drop what it
		// has not delivered yet.
		o.buf = o.buf[:0]
		return
	}
	if o.writing || len(o.buf) == 0 || o.err != nil {
		l.closeWrite()
		return
	}
	o.writing = true
	for len(o.buf) > 0 && o.err == nil {
		b, memory := o.buf, o.memory
		o.buf, o.memory = nil, nil
		o.since = l.conn.server.now()
		to := o.to
		l.mu.Unlock()
		_, err := to.Write(b)
		if cap(b) <= maxOutput {
			*memory = b[:0]
			buffers.Put(memory)
		}
		l.mu.Lock()
		if err != nil {
			o.fail(err)
		}
		o.drained.Broadcast()
	}
	o.writing = false
	l.closeWrite()
}

// waitForRoom waits, without the lock, while too much is to be sent. A client that does
// not read is not read from either.
func (l *locked) waitForRoom() {
	for l.out.writing && len(l.out.buf) > maxOutput && l.out.err == nil {
		l.out.drained.Wait()
	}
}

// closeWrite closes this side of the connection once the last answer is sent, so that
// the client closes its own. It releases the lock meanwhile.
func (l *locked) closeWrite() {
	o := &l.out
	if l.life.phase < leaving || o.ended || o.writing || len(o.buf) > 0 || len(l.streams) > 0 {
		return
	}
	o.ended, o.since = true, time.Since(l.conn.server.start)
	o.writing = true // TLS writes an alert
	to := o.to
	l.mu.Unlock()
	half, ok := to.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		_ = l.conn.raw.Close()
	}
	l.mu.Lock()
	o.writing = false
}
