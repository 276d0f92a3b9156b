package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

// TestPingsWhileAnAnswerFlows sends a PING with every part of an answer, as grpc-go's
// client does to measure bandwidth. The server must not close the connection for that.
func TestPingsWhileAnAnswerFlows(t *testing.T) {
	const window, pings = 1000, 20
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			start(t, l, name, options{}, func(s grpc.ServiceRegistrar) { testv1.RegisterTestServiceServer(s, interop.NewTestServer()) })

			nc, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			// The end of a test that hangs.
			if err := nc.SetDeadline(time.Now().Add(interopTimeout)); err != nil {
				t.Fatal(err)
			}
			request, err := proto.Marshal(&testv1.SimpleRequest{ResponseSize: window * pings})
			if err != nil {
				t.Fatal(err)
			}
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			for _, f := range [][2]string{
				{":method", "POST"},
				{":scheme", "http"},
				{":path", testv1.TestService_UnaryCall_FullMethodName},
				{":authority", "test"},
				{"content-type", "application/grpc"},
				{"te", "trailers"},
			} {
				if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
					t.Fatal(err)
				}
			}
			framer := http2.NewFramer(nc, nc)
			if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(
				framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
				framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
				framer.WriteData(1, true, append([]byte{0, 0, 0, 0, byte(len(request))}, request...)),
			); err != nil {
				t.Fatal(err)
			}
			for {
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				switch f := frame.(type) {
				case *http2.GoAwayFrame:
					t.Fatalf("the server says GOAWAY: %v, %q", f.ErrCode, f.DebugData())
				case *http2.DataFrame:
					if err := errors.Join(framer.WritePing(false, [8]byte{}), framer.WriteWindowUpdate(1, window)); err != nil {
						t.Fatal(err)
					}
				case *http2.HeadersFrame:
					if f.StreamEnded() {
						return
					}
				}
			}
		})
	}
}
