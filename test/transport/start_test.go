package transport

import (
	"net"
	"testing"

	"google.golang.org/grpc"
)

// start serves on l with one of the servers, for the time of the test.
func start(t *testing.T, l net.Listener, name string, o options, register func(grpc.ServiceRegistrar)) {
	t.Helper()
	s := newServer(name, o)
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// listen returns a listener on a free port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
