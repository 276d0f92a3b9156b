// Command demo shows why the window slides. "make demo" runs it:
//
//	go -C bench run ./demo -rls ../bin/rls -envoy ENVOY [-svg FILE]
//
// It starts rls with a limit of 10 requests a second for an API key, a small
// upstream, and a real Envoy with envoy/ratelimit.yaml in front of both. Then it
// sends 20 requests around a full second: 10 shortly before it and 10 shortly
// after. A fixed-window counter, which lives in this program and nowhere else,
// sees the same requests at the same moments.
//
// It fails unless rls admits exactly 10 of the 20, and the request that comes
// back after Retry-After.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/slidegate/slidegate/bench/internal/program"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
)

// limit is how many requests a second the API key has.
const limit = 10

const apiKey = "demo"

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

func main() { program.Main("demo", run) }

func run(ctx context.Context, args []string, out, _ io.Writer) error {
	flags := program.NewFlags("demo")
	var o options
	flags.RLS(&o.rls)
	flags.StringVar(&o.envoy, "envoy", "", "the `binary` of Envoy")
	flags.StringVar(&o.svg, "svg", "", "write a drawing of the burst to this `file`")
	flags.StringVar(&o.policies, "policies", "", "only write a drawing of all policies to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.policies != "" {
		drawing, err := policiesDrawing(ctx)
		if err != nil {
			return err
		}
		return os.WriteFile(o.policies, []byte(drawing), 0o644)
	}
	return process.Run(ctx, func(t process.TB) {
		if err := show(t, o, out); err != nil {
			t.Fatalf("%w", err)
		}
	})
}

// options are the flags.
type options struct{ rls, envoy, svg, policies string }

// show sends the burst and writes the answers.
func show(t process.TB, o options, out io.Writer) error {
	ctx := t.Context()
	rls := edge.StartRLS(t, edge.RLSOptions{
		Binary: o.rls, Rules: rules, Tiers: tiers,
		Env: map[string]string{"SLIDEGATE_HEADERS_STYLES": "ratelimit"},
	})
	const name = "Through Envoy"
	url := throughEnvoy(t, rls, o.envoy)
	fmt.Fprintf(out, "%s. Limit: %d requests a second for each API key.\n\n", name, limit)

	b, err := straddle(ctx, url)
	if err != nil {
		return err
	}
	writeTable(out, b)
	fmt.Fprintln(out)
	writeTimeLine(out, b)
	fmt.Fprintf(out, "\n%s\n", b.summary())
	if o.svg != "" {
		if err := os.WriteFile(o.svg, []byte(drawing(b, name)), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "Drawn to %s.\n", o.svg)
	}
	if n := b.admitted(slidegate); n != limit {
		return fmt.Errorf("slidegate admitted %d of %d requests within %v, want exactly %d", n, len(b.requests), b.length(), limit)
	}
	return comeBack(ctx, out, url, b)
}

// throughEnvoy starts an upstream, and Envoy in front of it and rls. It returns the URL of Envoy.
func throughEnvoy(t process.TB, rls *edge.RLSServer, envoy string) string {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
	t.Cleanup(upstream.Close)
	e := edge.Envoy(t, edge.EnvoyOptions{
		Binary: envoy, Config: traffic.EnvoyConfig, Upstream: upstream.Listener.Addr().String(), RLS: rls.GRPC(),
		// On a busy machine an answer may take longer than the 50 ms after which Envoy
		// lets a request pass. The demo shows the limit.
		Replace: map[string]string{"timeout: 0.05s": "timeout: 5s"},
	})
	return e.URL() + "/"
}

// comeBack repeats the last denied request after its Retry-After.
func comeBack(ctx context.Context, out io.Writer, url string, b *burst) error {
	last := b.lastDenied()
	if last == nil {
		return errors.New("no request was denied")
	}
	wait := last.RetryAfter
	if err := sleepUntil(ctx, last.Received.Add(wait)); err != nil {
		return err
	}
	a, err := send(ctx, url, apiKey)
	if err != nil {
		return err
	}
	if !a.Allowed {
		return fmt.Errorf("the request that came back after Retry-After (%v) was denied", wait)
	}
	fmt.Fprintf(out, "The last denied request came back %v later, as Retry-After said: admitted.\n", wait)
	return nil
}
