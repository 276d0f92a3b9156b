package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
)

// The sizes of frames that a Caller reads and writes by itself.
const (
	headerSize       = 9
	windowUpdateSize = headerSize + 4
)

// A Caller makes the same call many times, as fast as it can, and allocates nothing
// for it: what a benchmark counts is the server's. It looks at no answer but for
// whether there is a message in it; a Peer should have seen one before.
type Caller struct {
	conn    net.Conn
	in      *bufio.Reader
	out     []byte // a batch of calls, and then a window update
	streams []int  // the position in out of the number of each stream
	next    uint32
	batch   int

	messages, ended int // of the batch
	read            uint32
}

// NewCaller sends the preface over conn and prepares calls of a method. The Caller owns conn,
// and has batch calls in flight at a time.
func NewCaller(conn net.Conn, method string, message []byte, batch int) (*Caller, error) {
	p, err := New(conn, 0)
	if err != nil {
		return nil, err
	}
	// The first call may set header compression that later calls use. The third is like
	// all later ones.
	c := &Caller{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), batch: batch}
	var call []byte
	for range 3 {
		p.out.Reset()
		if c.next, err = p.Call(method, message); err != nil {
			return nil, err
		}
		call = append(call[:0], p.out.Bytes()...)
		if err := p.Flush(); err != nil {
			return nil, err
		}
		if a, err := p.Answer(c.next); err != nil || a.Status != "0" {
			return nil, errors.Join(fmt.Errorf("peer: the answer is %+v", a), err)
		}
	}
	if err := p.Settle(); err != nil {
		return nil, err
	}
	for range batch {
		for at := 0; at < len(call); {
			c.streams = append(c.streams, len(c.out)+at+headerSize-4)
			at += headerSize + (int(call[at])<<16 | int(call[at+1])<<8 | int(call[at+2]))
		}
		c.out = append(c.out, call...)
	}
	// The window of the connection is opened by the number of bytes that were read.
	c.out = append(c.out, 0, 0, 4, byte(http2.FrameWindowUpdate), 0, 0, 0, 0, 0, 0, 0, 0, 0)
	c.next += 2
	return c, nil
}

// Do makes a batch of calls in one write and waits for all answers.
func (c *Caller) Do() error {
	perCall := len(c.streams) / c.batch
	for i, at := range c.streams {
		binary.BigEndian.PutUint32(c.out[at:], c.next+2*uint32(i/perCall))
	}
	c.next += 2 * uint32(c.batch)
	end := len(c.out)
	if c.read == 0 { // an update by nothing is an error
		end -= windowUpdateSize
	}
	binary.BigEndian.PutUint32(c.out[len(c.out)-4:], c.read)
	c.read, c.messages, c.ended = 0, 0, 0
	if _, err := c.conn.Write(c.out[:end]); err != nil {
		return err
	}
	for c.ended < c.batch {
		if err := c.take(); err != nil {
			return err
		}
	}
	if c.messages != c.batch {
		return fmt.Errorf("peer: %d messages in %d answers", c.messages, c.batch)
	}
	return nil
}

// take reads a frame.
func (c *Caller) take() error {
	header, err := c.in.Peek(headerSize)
	if err != nil {
		return err
	}
	length := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
	kind, flags := http2.FrameType(header[3]), http2.Flags(header[4])
	switch kind {
	case http2.FrameData:
		c.messages++
		c.read += uint32(length)
	case http2.FrameHeaders:
		if flags.Has(http2.FlagHeadersEndStream) {
			c.ended++
		}
	case http2.FrameRSTStream, http2.FrameGoAway:
		return fmt.Errorf("peer: there came %v", kind)
	}
	if _, err := c.in.Discard(headerSize + length); err != nil {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	return nil
}

// Close closes the connection.
func (c *Caller) Close() error { return c.conn.Close() }
