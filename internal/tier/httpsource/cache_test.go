package httpsource

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slidegate/slidegate/internal/tier"
)

// pipes is a network in memory, so that the clock of a synctest bubble works.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

// A saying is the present answer of an endpoint.
type saying struct {
	status                  int // zero: 200, or 304 if the tag is known
	cacheControl, tag, body string
}

// TestCache proves how Cache-Control and ETag change the questions of a cache. Its ttl is
// a minute, and ten seconds for unknown keys.
func TestCache(t *testing.T) {
	const (
		pro  = `{"subject":"acme","tier":"pro"}`
		free = `{"subject":"acme","tier":"free"}`
		none = `{"subject":null}`
	)
	type step struct {
		after time.Duration
		says  saying
		want  string   // the tier; empty: the key is unknown
		stale bool     // the answer is stale
		asked []string // If-None-Match of each question
		sent  int      // how many answers had a body
	}
	for name, steps := range map[string][]step{
		"a tag": {
			{0, saying{tag: `"1"`, body: pro}, "pro", false, []string{""}, 1},
			{2 * time.Minute, saying{tag: `"1"`, body: pro}, "pro", false, []string{`"1"`}, 0},
			{30 * time.Second, saying{tag: `"2"`, body: free}, "pro", false, nil, 0},
			{time.Minute, saying{tag: `"2"`, body: free}, "free", false, []string{`"1"`}, 1},
			{2 * time.Minute, saying{tag: `"2"`, body: free}, "free", false, []string{`"2"`}, 0},
			{2 * time.Minute, saying{tag: `"3"`, body: none}, "", false, []string{`"2"`}, 1},
			{12 * time.Second, saying{tag: `"3"`, body: none}, "", false, []string{`"3"`}, 0},
			{12 * time.Second, saying{body: pro}, "pro", false, []string{`"3"`}, 1},
			{2 * time.Minute, saying{body: pro}, "pro", false, []string{""}, 1},
		},
		"a shorter time": {
			{0, saying{cacheControl: "max-age=10", tag: `"1"`, body: pro}, "pro", false, []string{""}, 1},
			{5 * time.Second, saying{cacheControl: "max-age=10", tag: `"1"`, body: pro}, "pro", false, nil, 0},
			// A 304 with a longer max-age changes it.
			{6 * time.Second, saying{cacheControl: "max-age=40", tag: `"1"`, body: pro}, "pro", false, []string{`"1"`}, 0},
			{20 * time.Second, saying{tag: `"1"`, body: pro}, "pro", false, nil, 0},
			// A 304 without Cache-Control keeps it.
			{21 * time.Second, saying{tag: `"1"`, body: pro}, "pro", false, []string{`"1"`}, 0},
			{20 * time.Second, saying{tag: `"1"`, body: pro}, "pro", false, nil, 0},
			{21 * time.Second, saying{tag: `"1"`, body: pro}, "pro", false, []string{`"1"`}, 0},
		},
		"a longer time": {
			{0, saying{cacheControl: "max-age=3600", body: pro}, "pro", false, []string{""}, 1},
			{40 * time.Second, saying{body: free}, "pro", false, nil, 0},
			{27 * time.Second, saying{body: free}, "free", false, []string{""}, 1},
		},
		"ahead of its end": {
			{0, saying{cacheControl: "max-age=10", body: pro}, "pro", false, []string{""}, 1},
			{8500 * time.Millisecond, saying{cacheControl: "max-age=10", body: free}, "pro", false, []string{""}, 1},
			{0, saying{cacheControl: "max-age=10", body: free}, "free", false, nil, 0},
		},
		"no time": {
			{0, saying{cacheControl: "no-store", tag: `"1"`, body: pro}, "pro", false, []string{""}, 1},
			{0, saying{cacheControl: "max-age=0", tag: `"1"`, body: pro}, "pro", false, []string{`"1"`}, 0},
			{0, saying{cacheControl: "no-cache", tag: `"2"`, body: free}, "free", false, []string{`"1"`}, 1},
			// The record is a stale answer if the endpoint fails.
			{time.Minute, saying{status: http.StatusBadGateway, body: "<html>"}, "free", true, []string{`"2"`}, 1},
			{0, saying{cacheControl: "no-cache", tag: `"2"`, body: free}, "free", false, []string{`"2"`}, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now saying
				var asked []string
				sent := 0
				network := pipes{make(chan net.Conn), make(chan struct{})}
				server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked = append(asked, r.Header.Get("If-None-Match"))
					h := w.Header()
					h.Set("Content-Type", "application/json")
					h.Set("Cache-Control", now.cacheControl)
					if now.cacheControl == "" {
						h.Del("Cache-Control")
					}
					if now.tag != "" {
						h.Set("ETag", now.tag)
					}
					switch {
					case now.status != 0:
						w.WriteHeader(now.status)
					case now.tag != "" && r.Header.Get("If-None-Match") == now.tag:
						w.WriteHeader(http.StatusNotModified)
						return
					}
					sent++
					_, _ = io.WriteString(w, now.body)
				})}
				go func() { _ = server.Serve(network) }() // it always returns an error
				source := newSource(t, Options{URL: parsed("http://customers.internal/tiers"), Timeout: time.Second})
				source.transport.DialContext = network.dial
				cache, err := tier.NewCache(tier.CacheOptions{
					Source: source, Timeout: time.Second, Subjects: 100, Unknown: 100,
					TTL: time.Minute, UnknownTTL: 10 * time.Second, Stale: time.Hour, Failures: 5, Retry: time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				for i, s := range steps {
					time.Sleep(s.after)
					now, asked, sent = s.says, nil, 0
					a, _ := cache.Resolve(t.Context(), tier.Key{Digest: digest}, time.Second)
					synctest.Wait() // for a question in the background
					got := ""
					if a.Subject != nil {
						got = a.Subject.Tier
					}
					if got != s.want || a.Stale != s.stale || a.Unavailable {
						t.Errorf("step %d: %q, %+v; want %q, stale %v", i, got, a, s.want, s.stale)
					}
					if diff := cmp.Diff(s.asked, asked, cmpopts.EquateEmpty()); diff != "" || sent != s.sent {
						t.Errorf("step %d: %d bodies, want %d; questions (-want +got)\n%s", i, sent, s.sent, diff)
					}
				}
				if err := cache.Close(); err != nil {
					t.Error(err)
				}
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
