// Package peer is a client of gRPC over HTTP/2 with control over single frames. It can send
// half of a call, reset streams, close its connection during calls, or read with a tiny
// window. Programs that load or measure a server use it. Flush sends the frames, so several
// leave in one write.
//
// A Peer is for one goroutine, and reads only while it waits for an answer. A Caller
// is a client for benchmarks: it allocates nothing for a call. The tests of
// internal/edge/unary have another client, which sees every frame and breaks rules that this one
// keeps.
package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// prefixSize is the number of bytes before a message: whether it is compressed, and its
// length.
const prefixSize = 5

// Frame returns a message as gRPC sends it, not compressed.
func Frame(message []byte) []byte {
	n := len(message)
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// Peer is the client's end of one connection.
type Peer struct {
	conn   net.Conn
	framer *http2.Framer // reads from conn, writes to out
	out    bytes.Buffer
	fields *hpack.Encoder
	block  bytes.Buffer
	next   uint32 // the stream to open

	answers map[uint32]*Answer // by stream, until they are asked for or the stream is reset
	gone    error              // GOAWAY, if it came
}

// An Answer is the response on one stream.
type Answer struct {
	// Message is the first message, nil if there was no message.
	Message []byte
	// Status is grpc-status and Text grpc-message. A missing one is empty.
	Status, Text string
	// Reset is why the server has reset the stream, if WasReset.
	Reset    http2.ErrCode
	WasReset bool

	body  []byte
	ended bool
}

// New sends the preface and settings over conn, which it owns from then on. window
// is the size of each stream's window, zero that of the protocol.
func New(conn net.Conn, window uint32) (*Peer, error) {
	p := &Peer{conn: conn, next: 1, answers: make(map[uint32]*Answer)}
	p.framer = http2.NewFramer(&p.out, conn)
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.fields = hpack.NewEncoder(&p.block)
	p.out.WriteString(http2.ClientPreface)
	settings := []http2.Setting{{ID: http2.SettingEnablePush, Val: 0}}
	if window > 0 {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	return p, errors.Join(p.framer.WriteSettings(settings...), p.Flush())
}

// Open opens a stream with the headers of a call and returns its number.
func (p *Peer) Open(method string) (stream uint32, err error) {
	stream = p.next
	p.next += 2
	p.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "peer"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		if err := p.fields.WriteField(f); err != nil {
			return 0, err
		}
	}
	p.answers[stream] = new(Answer)
	return stream, p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block.Bytes(), EndHeaders: true})
}

// Send sends bytes of a message on a stream in one frame. It ignores the windows of the
// server, which accepts frames of at least 16 kB. last ends the stream.
func (p *Peer) Send(stream uint32, data []byte, last bool) error {
	return p.framer.WriteData(stream, last, data)
}

// Call opens a stream with a whole call.
func (p *Peer) Call(method string, message []byte) (stream uint32, err error) {
	if stream, err = p.Open(method); err != nil {
		return 0, err
	}
	return stream, p.Send(stream, Frame(message), true)
}

// Reset resets a stream. Answer must not be called for it.
func (p *Peer) Reset(stream uint32) error {
	delete(p.answers, stream)
	return p.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
}

// Flush sends all frames that wait.
func (p *Peer) Flush() error {
	_, err := p.conn.Write(p.out.Bytes())
	p.out.Reset()
	return err
}

// Answer waits for the end of a stream.
func (p *Peer) Answer(stream uint32) (*Answer, error) {
	a := p.answers[stream]
	if a == nil {
		return nil, fmt.Errorf("peer: stream %d was not opened, or its answer was taken", stream)
	}
	for !a.ended {
		if err := p.Flush(); err != nil {
			return nil, err
		}
		if err := p.read(); err != nil {
			return nil, errors.Join(err, p.gone)
		}
	}
	delete(p.answers, stream)
	return a, a.unpack()
}

// Gone reports whether the server has sent GOAWAY, as far as has been read.
func (p *Peer) Gone() bool { return p.gone != nil }

// Settle waits until the server has handled all that was sent.
func (p *Peer) Settle() error {
	data := [8]byte{'s', 'e', 't', 't', 'l', 'e'}
	if err := errors.Join(p.framer.WritePing(false, data), p.Flush()); err != nil {
		return err
	}
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return errors.Join(err, p.gone)
		}
		if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() && ping.Data == data {
			return p.Flush()
		}
		if err := p.take(f); err != nil {
			return err
		}
	}
}

func (p *Peer) read() error {
	f, err := p.framer.ReadFrame()
	if err != nil {
		return err
	}
	return p.take(f)
}

// take records a frame, and answers it if the protocol requires an answer.
func (p *Peer) take(f http2.Frame) error {
	a := p.answers[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return p.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return p.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		p.gone = fmt.Errorf("peer: the server sent GOAWAY: %v %q", f.ErrCode, f.DebugData())
	case *http2.RSTStreamFrame:
		if a != nil {
			a.Reset, a.WasReset, a.ended = f.ErrCode, true, true
		}
	case *http2.MetaHeadersFrame:
		if a == nil {
			return nil
		}
		for _, field := range f.Fields {
			switch field.Name {
			case "grpc-status":
				a.Status = field.Value
			case "grpc-message":
				a.Text = field.Value
			}
		}
		a.ended = a.ended || f.StreamEnded()
	case *http2.DataFrame:
		if a != nil {
			a.body = append(a.body, f.Data()...)
			a.ended = a.ended || f.StreamEnded()
		}
		return p.permit(f)
	}
	return nil
}

// permit opens the windows by the size of a frame.
func (p *Peer) permit(f *http2.DataFrame) error {
	if f.Length == 0 {
		return nil
	}
	err := p.framer.WriteWindowUpdate(0, f.Length)
	if !f.StreamEnded() {
		err = errors.Join(err, p.framer.WriteWindowUpdate(f.StreamID, f.Length))
	}
	return err
}

// unpack takes the message out of the body.
func (a *Answer) unpack() error {
	if len(a.body) == 0 {
		return nil
	}
	if len(a.body) < prefixSize {
		return io.ErrUnexpectedEOF
	}
	n := int(a.body[1])<<24 | int(a.body[2])<<16 | int(a.body[3])<<8 | int(a.body[4])
	if a.body[0] != 0 || len(a.body) != prefixSize+n {
		return fmt.Errorf("peer: %d bytes of body are not one message of %d bytes that is not compressed", len(a.body), n)
	}
	a.Message = a.body[prefixSize:]
	return nil
}

// Close sends GOAWAY and closes the connection.
func (p *Peer) Close() error {
	return errors.Join(p.framer.WriteGoAway(0, http2.ErrCodeNo, nil), p.Flush(), p.conn.Close())
}
