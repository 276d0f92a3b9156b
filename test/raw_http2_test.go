package test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// get2 returns the header fields of a GET request over HTTP/2, with more fields
// given as name, value, name, value.
func get2(path string, more ...string) []hpack.HeaderField {
	fields := []hpack.HeaderField{
		{Name: ":method", Value: http.MethodGet},
		{Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "api.example"},
		{Name: ":path", Value: path},
	}
	for i := 0; i < len(more); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	return fields
}

// send2 sends a request without a body over a new HTTP/2 connection and returns the
// answer. It changes no byte of the fields, unlike net/http. If the server resets the
// stream or closes the connection instead of answering, the status is 0.
func send2(t *testing.T, addr string, fields []hpack.HeaderField) answer {
	t.Helper()
	conn, framer := open2(t, addr, fields)
	defer conn.Close()
	return read2(t, framer)
}

// open2 is send2 without waiting for the answer, which read2 returns. The caller closes
// the connection.
func open2(t *testing.T, addr string, fields []hpack.HeaderField) (net.Conn, *http2.Framer) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	return conn, framer
}

// post2 sends a POST request of one byte, with the given fields in its trailers, over a
// new HTTP/2 connection and returns the answer. fields are what get2 returns.
func post2(t *testing.T, addr string, fields []hpack.HeaderField, trailers ...string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	encoder := hpack.NewEncoder(&block)
	write := func(f hpack.HeaderField) {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	write(hpack.HeaderField{Name: ":method", Value: http.MethodPost})
	for _, f := range fields[1:] {
		write(f)
	}
	first := bytes.Clone(block.Bytes())
	block.Reset()
	for i := 0; i < len(trailers); i += 2 {
		write(hpack.HeaderField{Name: trailers[i], Value: trailers[i+1]})
	}
	if err := errors.Join(
		framer.WriteSettings(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: true}),
		framer.WriteData(1, false, []byte("x")),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	return read2(t, framer)
}

// read2 reads frames until stream 1 ends.
func read2(t *testing.T, framer *http2.Framer) answer {
	t.Helper()
	got := answer{header: make(http.Header)}
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); status != "" {
				got.status, _ = strconv.Atoi(status)
			}
			for _, f := range frame.RegularFields() {
				got.header.Add(f.Name, f.Value)
			}
		case *http2.DataFrame:
			got.body += string(frame.Data())
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return got
		}
		if frame.Header().StreamID == 1 && frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return got
		}
	}
}
