package serving

import (
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// TestPings pings an idle connection more often than every ten seconds. grpc-go's own client
// would wait. So this test writes the frames itself.
func TestPings(t *testing.T) {
	t.Parallel()
	rls := stack.Setup{Rules: stack.PerKey}.Serve(t)
	if got := pings(t, rls, 10, 20*time.Millisecond); got == "" {
		t.Error("ten pings: got no GOAWAY, want one")
	}
}

// pings sends n pings, each a gap after the answer to the one before. It returns the
// debug data of a GOAWAY, if there is one.
func pings(t *testing.T, rls *edge.RLSServer, n int, gap time.Duration) string {
	t.Helper()
	conn, err := rls.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := framer.WritePing(false, [8]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatalf("ping %d: %v", i+1, err)
			}
			switch frame := frame.(type) {
			case *http2.PingFrame:
				answered = frame.IsAck()
			case *http2.GoAwayFrame:
				return string(frame.DebugData())
			}
		}
		// The gap is what the test is about.
		process.WaitUntil(time.Now().Add(gap))
	}
	return ""
}
