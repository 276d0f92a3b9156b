package stack

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/slidegate/slidegate/test/process"
)

// DialRaw opens a TCP connection that is closed when the test ends, or after process.Patience.
func DialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Send writes bytes to a server as they are. It returns the answer, and the bytes of the
// answer.
func Send(t *testing.T, addr, request string) (Answer, string) {
	t.Helper()
	conn := DialRaw(t, addr)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		t.Fatalf("%q: %v after %q", request, err, raw.String())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}, raw.String()
}

// Get11 is the text of a request with the given lines as its header.
func Get11(path string, lines ...string) string {
	lines = append([]string{"GET " + path + " HTTP/1.1", "Host: api.example", "Connection: close"}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// Get2 returns the header fields of a GET request over HTTP/2, with more fields
// given as name, value, name, value.
func Get2(path string, more ...string) []hpack.HeaderField {
	return append([]hpack.HeaderField{
		{Name: ":method", Value: http.MethodGet},
		{Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "api.example"},
		{Name: ":path", Value: path},
	}, pairs2(more)...)
}

// pairs2 returns fields given as name, value, name, value.
func pairs2(pairs []string) (fields []hpack.HeaderField) {
	for i := 0; i < len(pairs); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return fields
}

// Send2 sends a request over a new HTTP/2 connection and returns the answer. It changes
// no byte of the fields, unlike net/http. If there are trailers, given as name, value,
// name, value, it is a POST request of one byte. If the server resets the stream or
// closes the connection instead of answering, the status is 0.
func Send2(t *testing.T, addr string, fields []hpack.HeaderField, trailers ...string) Answer {
	t.Helper()
	conn, framer := Open2(t, addr, fields, trailers...)
	defer conn.Close()
	return Read2(t, framer)
}

// Open2 is Send2 without waiting for the answer, which Read2 returns. The caller closes
// the connection.
func Open2(t *testing.T, addr string, fields []hpack.HeaderField, trailers ...string) (net.Conn, *http2.Framer) {
	t.Helper()
	conn := DialRaw(t, addr)
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	encoder := hpack.NewEncoder(&block)
	headers := func(end bool, fields ...hpack.HeaderField) error {
		block.Reset()
		for _, f := range fields {
			if err := encoder.WriteField(f); err != nil {
				return err
			}
		}
		return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	}
	err := framer.WriteSettings()
	if len(trailers) == 0 {
		err = errors.Join(err, headers(true, fields...))
	} else {
		fields[0].Value = http.MethodPost
		err = errors.Join(err, headers(false, fields...), framer.WriteData(1, false, []byte("x")), headers(true, pairs2(trailers)...))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	return conn, framer
}

// Read2 reads frames until stream 1 ends.
func Read2(t *testing.T, framer *http2.Framer) Answer {
	t.Helper()
	got := Answer{Header: make(http.Header)}
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
				got.Status, _ = strconv.Atoi(status)
			}
			for _, f := range frame.RegularFields() {
				got.Header.Add(f.Name, f.Value)
			}
		case *http2.DataFrame:
			got.Body += string(frame.Data())
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return got
		}
		if frame.Header().StreamID == 1 && frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return got
		}
	}
}
