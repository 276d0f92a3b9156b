package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// start starts the server on a free port and returns its address.
func start(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = newServer()
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// h2c returns a client that uses HTTP/2 without TLS from the first byte, as Envoy does.
func h2c(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func do(t *testing.T, client *http.Client, method, url, body string, header http.Header) (*http.Response, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the answer: %v", method, url, err)
	}
	return response, got
}

func TestEcho(t *testing.T) {
	address := start(t)
	for _, tc := range []struct {
		protocol string
		client   *http.Client
	}{
		{"HTTP/1.1", http.DefaultClient},
		{"HTTP/2.0", h2c(t)},
	} {
		t.Run(tc.protocol, func(t *testing.T) {
			header := http.Header{"X-Api-Key": {"one", "two"}}
			response, body := do(t, tc.client, http.MethodPost, "http://"+address+"//a/../b?c=d", "body", header)
			if got, want := response.Header.Get("Content-Type"), "application/json"; got != want {
				t.Errorf("content type: got %q, want %q", got, want)
			}
			var got received
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if got.Method != http.MethodPost || got.Path != "//a/../b?c=d" || got.Host != address || got.Protocol != tc.protocol {
				t.Errorf("got %+v", got)
			}
			if keys := got.Headers["X-Api-Key"]; len(keys) != 2 || keys[0] != "one" || keys[1] != "two" {
				t.Errorf("x-api-key: got %q, want both values", keys)
			}
		})
	}
}

func TestGRPC(t *testing.T) {
	header := http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}}
	response, body := do(t, h2c(t), http.MethodPost, "http://"+start(t)+"/a.Service/Call", "\x00\x00\x00\x00\x00", header)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/grpc" {
		t.Errorf("got %s, %v", response.Status, response.Header)
	}
	if !bytes.Equal(body, make([]byte, 5)) {
		t.Errorf("body: got %x, want one empty message", body)
	}
	if got := response.Trailer.Get("Grpc-Status"); got != "0" {
		t.Errorf("grpc-status: got %q, want 0", got)
	}
}

func TestHealthcheck(t *testing.T) {
	address := start(t)
	if err := run([]string{"-listen", address, "-healthcheck"}, io.Discard); err != nil {
		t.Errorf("a running server: %v", err)
	}
	// Find a port without a server.
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := listener.Addr().String()
	_ = listener.Close()
	if err := run([]string{"-listen", gone, "-healthcheck"}, io.Discard); err == nil {
		t.Error("no server: got no error")
	}
}
