package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// asCalls listens in front of a server and changes each request to a gRPC call: a POST, with an
// empty message if it has no body. h2spec sends GET without a body, as to a web server. Such
// requests end before there is any flow to control. All other frames pass unchanged, in both
// directions.
func asCalls(t *testing.T, dial func() (net.Conn, error)) string {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go translate(client, dial)
		}
	}()
	return l.Addr().String()
}

// translate serves one connection until one side closes it.
func translate(client net.Conn, dial func() (net.Conn, error)) {
	defer client.Close()
	upstream, err := dial()
	if err != nil {
		return // the case gets no answer and fails
	}
	defer upstream.Close()
	go func() {
		// The server has closed the connection, or the client.
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}()
	if _, err := io.CopyN(upstream, client, int64(len(http2.ClientPreface))); err != nil {
		return
	}

	decoder := hpack.NewDecoder(4096, nil)
	var head [9]byte
	for {
		if _, err := io.ReadFull(client, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(binary.BigEndian.Uint32(head[:])>>8))
		if _, err := io.ReadFull(client, payload); err != nil {
			return
		}
		out := append(head[:len(head):len(head)], payload...)
		if http2.FrameType(head[3]) == http2.FrameHeaders {
			if out, err = call(decoder, http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:]), payload); err != nil {
				return
			}
		}
		if _, err := upstream.Write(out); err != nil {
			return
		}
	}
}

// call returns the frames of a call for those of a request.
func call(decoder *hpack.Decoder, flags http2.Flags, stream uint32, block []byte) ([]byte, error) {
	fields, err := decoder.DecodeFull(block)
	if err != nil {
		return nil, err
	}
	var header, out bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	encoder.SetMaxDynamicTableSize(0) // each block stands for itself
	for _, f := range append(fields, hpack.HeaderField{Name: "content-type", Value: "application/grpc"}, hpack.HeaderField{Name: "te", Value: "trailers"}) {
		if f.Name == ":method" {
			f.Value = "POST"
		}
		if err := encoder.WriteField(f); err != nil {
			return nil, err
		}
	}
	framer := http2.NewFramer(&out, nil)
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true}); err != nil {
		return nil, err
	}
	if flags.Has(http2.FlagHeadersEndStream) {
		if err := framer.WriteData(stream, true, make([]byte, 5)); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
