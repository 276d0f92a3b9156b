package unary

import (
	"net"
	"sync"
	"time"
)

const (
	// flushAt is how much may be written by one answer after the other until it is
	// sent although more could follow at once.
	flushAt = 32 << 10
	// maxOutput is how much may wait to be sent until nothing more is read.
	maxOutput = 256 << 10
)

// output is what is to be sent: a buffer that frames are appended to, and one that
// is being written. mu of the connection guards it.
type output struct {
	buf     []byte
	memory  *[]byte // of buf, to be given back
	writing bool    // by some goroutine, without mu
	since   time.Duration
	written int
	ended   bool // our side is closed
	err     error
	drained sync.Cond // buf has been taken, or err is set
}

// buffers keep the memory of outputs that have nothing to say.
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

// taken returns how many bytes were written since it was asked last.
func (o *output) taken() int {
	n := o.written
	o.written = 0
	return n
}

// write is for what the Framer returns, which writes into memory: an error means
// that the server has made a frame that there is not.
func (*conn) write(err error) {
	if err != nil {
		panic("unary: " + err.Error())
	}
}

// flush writes what there is to say, unless somebody is about it: whoever that is
// takes what was added meanwhile along. mu is held, but not while it writes.
func (c *conn) flush() {
	o := &c.out
	if o.ended {
		// Nobody hears it any more, and to try would have the socket forget what it has
		// not delivered yet.
		o.buf = o.buf[:0]
		return
	}
	if o.writing || len(o.buf) == 0 || o.err != nil {
		c.finish()
		return
	}
	o.writing = true
	for len(o.buf) > 0 && o.err == nil {
		b, memory := o.buf, o.memory
		o.buf, o.memory = nil, nil
		o.since = c.server.now()
		nc := c.nc
		c.mu.Unlock()
		_, err := nc.Write(b)
		if cap(b) <= maxOutput {
			*memory = b[:0]
			buffers.Put(memory)
		}
		c.mu.Lock()
		o.written += len(b)
		if err != nil {
			o.fail(err)
		}
		o.drained.Broadcast()
	}
	o.writing = false
	c.finish()
}

// waitForRoom waits until what is to be sent is not too much, so that a client that
// does not read is not read from either. mu is held.
func (c *conn) waitForRoom() {
	for c.out.writing && len(c.out.buf) > maxOutput && c.out.err == nil {
		c.out.drained.Wait()
	}
}

// finish closes our side once the last answer is sent, and the client closes its
// own. mu is held.
func (c *conn) finish() {
	o := &c.out
	if c.phase < leaving || o.ended || o.writing || len(o.buf) > 0 || len(c.streams) > 0 {
		return
	}
	o.ended, o.since = true, time.Since(c.server.start)
	o.writing = true // TLS has something to say here
	nc := c.nc
	c.mu.Unlock()
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		_ = c.raw.Close()
	}
	c.mu.Lock()
	o.writing = false
}

var _ interface{ CloseWrite() error } = (*net.TCPConn)(nil)
