// Command upstream is the application behind Envoy in the compose stack, the demo and the
// tests. It answers every request with the request's method, path and headers as JSON.
//
// HTTP/1.1 and HTTP/2 without TLS share one port. A gRPC call of any method is answered with
// an empty message and status 0, so calls through Envoy need no other service.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// maxBody bounds the part of a request's body that is read, in bytes.
const maxBody = 1 << 20

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("upstream", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "`address` to listen on")
	check := flags.Bool("healthcheck", false, "check the server at the -listen address; exit with 0 if it is healthy, else with 1")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *check {
		return probe(ctx, *listen)
	}
	return serve(ctx, *listen, out)
}

// serve answers on address until ctx ends. Then it finishes running requests. It prints the
// address that it listens on, with the chosen port if the port of address is 0.
func serve(ctx context.Context, address string, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := newServer()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(out, "upstream: listening on %s\n", listener.Addr())

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(drain)
}

func newServer() *http.Server {
	server := &http.Server{
		Handler:           http.HandlerFunc(echo),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// received is a request as it arrived here, behind Envoy.
type received struct {
	Method   string      `json:"method"`
	Path     string      `json:"path"` // with the query, as on the request line
	Protocol string      `json:"protocol"`
	Host     string      `json:"host"`
	Headers  http.Header `json:"headers"` // by canonical name
}

func echo(w http.ResponseWriter, r *http.Request) {
	// Read the whole body: an earlier answer resets an HTTP/2 stream, which is an error for the client.
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))

	// Use no ServeMux: it redirects a path such as //a/../b.
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	if isGRPC(r) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(make([]byte, 5)) // a message prefix: not compressed, length 0
		w.Header().Set("Grpc-Status", "0")
		return
	}

	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(received{
		Method:   r.Method,
		Path:     r.RequestURI,
		Protocol: r.Proto,
		Host:     r.Host,
		Headers:  r.Header,
	})
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// probe is the health check of the container, whose image has no shell and no curl.
func probe(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", request.URL, response.Status)
	}
	return nil
}
