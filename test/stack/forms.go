package stack

import (
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// RouteForm returns the changes of EdgeConfig or OneHopConfig that give the last route a form.
func RouteForm(config, form string) map[string]string {
	if config == OneHopConfig {
		return map[string]string{`                      descriptors: "api_key;remote_address"`: `                      descriptors: "form=` + form + `;api_key;remote_address"`}
	}
	const rest = "                    - actions:\n                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}\n                    - actions:\n                      - remote_address: {}\n\n          http_filters:\n"
	return map[string]string{rest: "                    - actions:\n                      - generic_key: {descriptor_key: form, descriptor_value: " + form + "}\n" + rest}
}

// NewGRPCApplication serves the health service of gRPC until the test ends. It returns host:port.
func NewGRPCApplication(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := grpc.NewServer()
	healthv1.RegisterHealthServer(app, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- app.Serve(listener) }()
	t.Cleanup(func() {
		app.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
