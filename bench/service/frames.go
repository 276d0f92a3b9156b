package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// A frameReader answers calls on the goroutine that reads their frames, with ordinary sockets. It
// decides nothing: it decodes each request, and encodes one answer. So it shows what Go can do
// at best. It ignores the flow control of its clients, which allow more than their answers need.
type frameReader struct {
	answer           proto.Message
	begins, ends     []byte // header blocks of an answer
	request          rlsv3.RateLimitRequest
	in               *bufio.Reader
	out              *bufio.Writer
	framer           *http2.Framer
	headers          *hpack.Decoder
	message, partial []byte
	unreturned       uint32 // bytes that no WINDOW_UPDATE has returned
}

// serveFrames serves every connection of a listener.
func serveFrames(l net.Listener, answer proto.Message) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_ = newFrameReader(conn, answer).serve() // its client notices
		}()
	}
}

func newFrameReader(conn io.ReadWriter, answer proto.Message) *frameReader {
	block := func(fields ...hpack.HeaderField) []byte {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		e.SetMaxDynamicTableSize(0) // each block stands for itself
		for _, f := range fields {
			_ = e.WriteField(f) // a buffer takes all
		}
		return b.Bytes()
	}
	r := &frameReader{
		answer: answer,
		begins: block(hpack.HeaderField{Name: ":status", Value: "200"}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"}),
		ends:   block(hpack.HeaderField{Name: "grpc-status", Value: "0"}),
		in:     bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, 64<<10),
		headers: hpack.NewDecoder(4096, func(hpack.HeaderField) {}),
	}
	r.framer = http2.NewFramer(r.out, r.in)
	r.framer.SetReuseFrames()
	return r
}

// serve answers until the connection ends. It writes when it has read all that has come.
func (r *frameReader) serve() error {
	if _, err := io.CopyN(io.Discard, r.in, int64(len(http2.ClientPreface))); err != nil {
		return err
	}
	if err := r.framer.WriteSettings(); err != nil {
		return err
	}
	for {
		if r.in.Buffered() == 0 {
			if err := r.out.Flush(); err != nil {
				return err
			}
		}
		f, err := r.framer.ReadFrame()
		if err == nil {
			err = r.take(f)
		}
		if err != nil {
			return err
		}
	}
}

func (r *frameReader) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		_, err := r.headers.Write(f.HeaderBlockFragment())
		return err
	case *http2.DataFrame:
		return r.data(f)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return r.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return r.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return io.EOF
	}
	return nil
}

// data answers a call at the end of its message. A client sends one message after the other.
func (r *frameReader) data(f *http2.DataFrame) error {
	r.unreturned += f.Length
	if r.unreturned >= 16<<10 {
		if err := r.framer.WriteWindowUpdate(0, r.unreturned); err != nil {
			return err
		}
		r.unreturned = 0
	}
	r.partial = append(r.partial, f.Data()...)
	if !f.StreamEnded() {
		return nil
	}
	if len(r.partial) < 5 {
		return errors.New("a call without a message")
	}
	err := proto.Unmarshal(r.partial[5:], &r.request)
	r.partial = r.partial[:0]
	if err != nil {
		return err
	}
	r.message, err = proto.MarshalOptions{}.MarshalAppend(append(r.message[:0], 0, 0, 0, 0, 0), r.answer)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(r.message[1:], uint32(len(r.message)-5))
	return errors.Join(
		r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: r.begins, EndHeaders: true}),
		r.framer.WriteData(f.StreamID, false, r.message),
		r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: r.ends, EndHeaders: true, EndStream: true}))
}
