// Command pages serves the console without a service behind it, for people who change its pages
// and for tests in a browser. Each state has a port of its own:
//
//	go run ./test/pages -port 6080
//
// serves the states usual, empty, degraded, huge, hostile and several on the ports 6080 to 6085.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/test/consoletest"
)

func main() {
	port := flag.Int("port", 6080, "the port of the first state; 0 chooses free ports")
	flag.Parse()
	if err := serve(*port); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func serve(port int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var g run.Group
	g.Add(func() error { <-ctx.Done(); return nil }, func(error) { stop() })
	fmt.Printf("tokens: %s (reads), %s (acts)\n", consoletest.ReadToken, consoletest.ActToken)
	for i, state := range consoletest.States {
		number := 0
		if port != 0 {
			number = port + i
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
		if err != nil {
			return err
		}
		c := consoletest.New(consoletest.Options{State: state})
		mux := http.NewServeMux()
		mux.Handle("/", admin.Handler(admin.Pages{Metrics: prometheus.NewRegistry(), Active: c.Active, Access: c.Access, Console: c}))
		server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: mux}
		fmt.Printf("%-9s http://%s/\n", state, l.Addr())
		g.Add(func() error { return server.Serve(l) }, func(error) { _ = server.Close() })
	}
	return g.Run()
}
