package unary_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// Flags that say how FuzzConnection sends its bytes.
const (
	withoutPreface       = 1 << iota // they are all that is sent
	inParts                          // the test waits until the server is idle after each part
	slowly                           // a second passes after each part
	withoutAcknowledging             // the client acknowledges nothing and gives no window back
	draining                         // the server stops gracefully in the middle
	withoutReading                   // the client does not read

	allFlags = 1<<iota - 1
)

// FuzzConnection sends any bytes after a valid preface, or in its place. Then nothing has
// panicked, the server has sent valid HTTP/2, and nothing remains of the connection.
func FuzzConnection(f *testing.F) {
	for _, b := range seedInputs() {
		for _, m := range []byte{0, inParts, slowly | inParts | withoutAcknowledging, draining} {
			f.Add(m, b)
		}
	}
	f.Add(byte(withoutPreface), []byte(http2.ClientPreface))
	f.Add(byte(withoutPreface), []byte("GET / HTTP/1.1\r\nHost: test\r\n\r\n"))
	f.Fuzz(func(t *testing.T, flags byte, b []byte) {
		if flags > allFlags {
			t.Skip("unknown flags")
		}
		synctest.Test(t, func(t *testing.T) { sendInput(t, flags, b) })
	})
}

func sendInput(t *testing.T, flags byte, b []byte) {
	meters := newCountingMeters()
	o := limits
	o.Meters, o.Lifetime.WriteTimeout = meters, 0
	s := startServer(t, ours, o, pipes())
	m := acknowledging
	switch {
	case flags&withoutReading != 0:
		m = notReading
	case flags&withoutAcknowledging != 0:
		m = onlyReading
	}
	p := newClient(t, s.l.dial(t), m)
	p.frames(1 << 24) // the bytes may contain such a setting
	if flags&withoutPreface == 0 {
		// In the background: a client that does not read may also block the server.
		go func() { _ = p.tryToSend(func(w *frameWriter) { w.preface() }) }()
	}
	synctest.Wait() // until the server has accepted the connection
	chunks := [][]byte{b}
	if flags&inParts != 0 {
		chunks = nil
		for n := max(7, len(b)/50); len(b) > n; b = b[n:] {
			chunks = append(chunks, b[:n])
		}
		chunks = append(chunks, b)
	}
	stopped := make(chan struct{})
	if flags&draining == 0 {
		close(stopped)
	}
	for i, chunk := range chunks {
		if flags&draining != 0 && i == len(chunks)/2 {
			go func() { s.GracefulStop(); close(stopped) }()
		}
		sent := make(chan error, 1)
		go func() { sent <- p.tryToSend(func(w *frameWriter) { w.Write(chunk) }) }()
		synctest.Wait()
		if flags&slowly != 0 {
			time.Sleep(time.Second)
		}
		select {
		case err := <-sent:
			if err != nil {
				chunks = nil // the server has closed the connection
			}
		case <-time.After(time.Minute):
			// The server may stop reading only if the client does not read.
			if flags&withoutReading == 0 {
				t.Errorf("the server does not read: %v", p.describe())
			}
		}
		if chunks == nil {
			break
		}
	}
	synctest.Wait()
	p.close()
	s.openGate()
	if flags&draining != 0 && len(chunks) == 0 {
		go func() { s.GracefulStop() }()
	}
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		if flags&draining != 0 && chunks != nil {
			t.Errorf("the server does not stop: %v", p.describe())
		}
	}
	s.Stop()
	synctest.Wait()
	p.checkFaults()
	if n := s.running.Load(); n != 0 {
		t.Errorf("%d calls are still running", n)
	}
	if meters.opened != 1 || meters.closed != 1 {
		t.Errorf("%d connections were opened and %d closed", meters.opened, meters.closed)
	}
	for reason := range meters.goAways() {
		if reason == "bug" || !known(reason) {
			t.Errorf("the connection has ended for the reason %q", reason)
		}
	}
}

func known(reason string) bool {
	for _, r := range unary.Reasons {
		if r == reason {
			return true
		}
	}
	return false
}

// seedInputs are what clients send after preface and first SETTINGS.
func seedInputs() [][]byte {
	made := func(f func(w *frameWriter)) []byte {
		w := newFrameWriter()
		f(w)
		return bytes.Clone(w.Bytes())
	}
	return [][]byte{
		made(func(w *frameWriter) { w.call(1, "Ready", value("hello")) }),
		made(func(w *frameWriter) { // like a load generator
			w.update(0, 1<<30)
			must(w.fr.WriteSettingsAck())
			for id := uint32(1); id < 65; id += 2 {
				w.call(id, "Ready", value("hello"))
			}
		}),
		made(func(w *frameWriter) { // like a proxy
			must(w.fr.WriteSettingsAck())
			w.call(1, "Slow", value("hello"), "grpc-timeout: 20m", "x-request-id: 1", "x-bin: AQI")
			w.call(3, "Echo", value("hello"), "grpc-timeout: 20m", "x-request-id: 2", "x-bin: AQI")
			w.reset(1, http2.ErrCodeCancel)
			must(w.fr.WritePing(false, [8]byte{1}))
			w.call(5, "Tell", value("hello"), "grpc-encoding: identity")
			must(w.fr.WriteGoAway(0, http2.ErrCodeNo, nil))
		}),
		made(func(w *frameWriter) { // all kinds of frames
			block := w.fields(request("Set"))
			must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:10], PadLength: 3, Priority: http2.PriorityParam{StreamDep: 3, Weight: 9}}))
			must(w.fr.WriteContinuation(1, false, block[10:20]))
			must(w.fr.WriteContinuation(1, true, block[20:]))
			must(w.fr.WriteDataPadded(1, false, framed(0, value("hello"))[:4], make([]byte, 3)))
			must(w.fr.WritePriority(5, http2.PriorityParam{StreamDep: 1}))
			w.data(1, false, framed(0, value("hello"))[4:])
			w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}, http2.Setting{ID: http2.SettingHeaderTableSize}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20})
			w.headers(1, true, []hpack.HeaderField{{Name: "trailer", Value: "x"}})
			w.update(1, 5)
			w.raw(0x55, 0xff, 7, []byte("unknown"))
			w.call(3, "Bulk", value("70000"))
			w.update(0, 100_000)
			w.update(3, 100_000)
		}),
		made(func(w *frameWriter) { // calls that are refused
			w.call(1, "None", value("hello"))
			w.call(3, "Echo", value("hello"), "content-type: text/plain")
			w.call(5, "Echo", value("hello"), ":method: GET")
			w.call(7, "Echo", value("hello"), "grpc-timeout: 5x")
			w.call(9, "Echo", value("hello"), "grpc-encoding: snappy")
			w.headers(11, true, request("Echo"))
			w.headers(13, false, request("Echo"))
			w.data(13, false, []byte{0, 0, 0xff, 0, 0})
			w.call(15, "Echo", value("hello"), "grpc-encoding: gzip")
			w.headers(17, true, request("Echo", "connection: close"))
			w.call(19, "Crash", nil)
			w.call(21, "Refuse", value("5:not found"))
		}),
	}
}
