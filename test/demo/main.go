// Command demo shows why the window slides. "make demo" runs it:
//
//	go run ./test/demo -rls bin/rls [-envoy ENVOY] [-svg FILE]
//
// It starts rls with a limit of 10 requests a second for an API key, a small
// upstream, and a real Envoy with envoy/ratelimit.yaml in front of both. Then it
// sends 20 requests around a full second: 10 shortly before it and 10 shortly
// after. A fixed-window counter, which lives in this program and nowhere else,
// sees the same requests at the same moments. Without an Envoy it asks rls
// itself, over HTTP, and says so.
//
// It fails unless rls admits exactly 10 of the 20, and the request that comes
// back after Retry-After.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/test/servers"
)

// limit is how many requests a second the API key has.
const limit = 10

const (
	apiKey      = "demo"
	envoyConfig = "envoy/ratelimit.yaml"
)

var rules = fmt.Sprintf(`
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: second, requests_per_unit: %d}
`, limit)

const tiers = `
tiers: [demo]
default: demo
subjects:
  - {id: demo, keys: [{plain: ` + apiKey + `}]}
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	binary := flags.String("rls", "bin/rls", "the `binary` of the service")
	envoy := flags.String("envoy", "", "the `binary` of Envoy; rls is asked without one if it is not there")
	svg := flags.String("svg", "", "write a drawing of the burst to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := exec.LookPath(*binary); err != nil {
		return fmt.Errorf("-rls: %w: build it with make build", err)
	}
	rls, err := servers.StartRLS(servers.RLSOptions{
		Binary: *binary, Rules: rules, Tiers: tiers,
		Env: map[string]string{"SLIDEGATE_HEADERS_STYLES": "ratelimit"},
	})
	if err != nil {
		return err
	}
	defer rls.Close()
	way, stop, err := ask(ctx, rls, *envoy)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "%s%s. Limit: %d requests a second for each API key.\n\n", way.name, way.note, limit)

	b, err := straddle(ctx, way)
	if err != nil {
		return err
	}
	writeTable(out, b)
	fmt.Fprintln(out)
	writeTimeLine(out, b)
	fmt.Fprintf(out, "\n%s\n", b.summary())
	if *svg != "" {
		if err := os.WriteFile(*svg, []byte(drawing(b, way.name)), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "Drawn to %s.\n", *svg)
	}
	if n := b.admitted(slidegate); n != limit {
		return fmt.Errorf("slidegate admitted %d of %d requests within %v, want exactly %d", n, len(b.requests), b.length(), limit)
	}
	return comeBack(ctx, out, way, b)
}

// A way is how a request reaches rls.
type way struct {
	name    string
	note    string // what there is to say about it
	request func(ctx context.Context, key string) (*http.Request, error)
}

// ask returns the way through Envoy, or without one the direct way. Calling stop
// ends what was started for it.
func ask(ctx context.Context, rls *servers.RLSServer, envoy string) (w way, stop func(), err error) {
	path, err := exec.LookPath(envoy)
	if err != nil {
		return direct(rls), func() {}, nil
	}
	upstream, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return w, nil, err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }),
		ReadHeaderTimeout: time.Second,
	}
	go func() { _ = server.Serve(upstream) }() // ends with Close
	e, err := servers.StartEnvoy(servers.EnvoyOptions{
		Binary: path, Config: envoyConfig, Upstream: upstream.Addr().String(), RLS: rls.GRPC(),
		// On a busy machine an answer may take longer than the 50 ms after which
		// Envoy lets a request pass. What is shown here is the limit.
		Replace: map[string]string{"timeout: 0.05s": "timeout: 5s"},
	})
	if err != nil {
		_ = server.Close()
		return w, nil, err
	}
	stop = func() {
		e.Stop()
		_ = server.Close()
	}
	return way{
		name: "Through Envoy",
		request: func(ctx context.Context, key string) (*http.Request, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL()+"/", http.NoBody)
			if err == nil && key != "" {
				r.Header.Set("x-api-key", key)
			}
			return r, err
		},
	}, stop, nil
}

// direct asks rls what Envoy would ask.
func direct(rls *servers.RLSServer) way {
	return way{
		name: "Without Envoy",
		note: ", which is not there (make demo gets it): rls is asked directly",
		request: func(ctx context.Context, key string) (*http.Request, error) {
			entry := `{"key":"api_key","value":"` + key + `"}`
			if key == "" {
				entry = `{"key":"nobody","value":"x"}` // no rule limits it
			}
			return http.NewRequestWithContext(ctx, http.MethodPost, rls.HTTP()+"/json",
				strings.NewReader(`{"domain":"edge","descriptors":[{"entries":[`+entry+`]}]}`))
		},
	}
}

// comeBack repeats the last denied request after its Retry-After.
func comeBack(ctx context.Context, out io.Writer, w way, b *burst) error {
	last := b.lastDenied()
	if last == nil {
		return errors.New("no request was denied")
	}
	wait := time.Duration(last.retryAfter) * time.Second
	if err := sleepUntil(ctx, last.answered.Add(wait)); err != nil {
		return err
	}
	a, err := send(ctx, w, apiKey)
	if err != nil {
		return err
	}
	if !a.allowed {
		return fmt.Errorf("the request that came back after Retry-After (%v) was denied", wait)
	}
	fmt.Fprintf(out, "The last denied request came back %v later, as Retry-After said: admitted.\n", wait)
	return nil
}
