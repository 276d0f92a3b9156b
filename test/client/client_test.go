package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/client"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// serve starts rls behind Envoy, with one limit for each API key, such as "window: 1h, requests: 1".
func serve(t *testing.T, limit string, env map[string]string) *stack.Stack {
	t.Helper()
	return stack.Setup{Rules: "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, " + limit + "}\n", Env: env}.Start(t)
}

// A sender sends requests and records what a server answers to each of the clients.
type sender struct {
	base http.RoundTripper
	// change, if set, changes the header of every response.
	change func(http.Header)
	// together, if set, is how many requests wait for each other, before the first is sent.
	together int
	complete chan struct{} // closed when they have arrived

	mu     sync.Mutex
	sent   []time.Time
	denied map[string]int // by the header X-Client
}

const xClient = "X-Client"

// newSender returns one with a connection for each of n clients.
func newSender(t *testing.T, n int) *sender {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(base.CloseIdleConnections)
	return &sender{base: base, complete: make(chan struct{}), denied: make(map[string]int)}
}

func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.sent = append(s.sent, time.Now())
	if len(s.sent) == s.together {
		close(s.complete)
	}
	early := len(s.sent) <= s.together
	s.mu.Unlock()
	if early {
		<-s.complete
	}
	resp, err := s.base.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if s.change != nil {
		s.change(resp.Header)
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.denied[req.Header.Get(xClient)]++
	}
	return resp, nil
}

// fullest returns how many requests were sent within one interval of the given length, from a
// time on.
func (s *sender) fullest(from time.Time, length time.Duration) int {
	times := slices.DeleteFunc(slices.SortedFunc(slices.Values(s.sent), time.Time.Compare), func(at time.Time) bool { return at.Before(from) })
	most, first := 0, 0
	for i, at := range times {
		for at.Sub(times[first]) >= length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// wantOnce fails the test if a client was denied more than once, or none was denied.
func (s *sender) wantOnce(t *testing.T) {
	t.Helper()
	if len(s.denied) == 0 {
		t.Error("no client was denied, so the test proves nothing")
	}
	for name, times := range s.denied {
		if times > 1 {
			t.Errorf("client %s was denied %d times, want once at most", name, times)
		}
	}
}

// pass sends a request that must pass, as the named client.
func pass(ctx context.Context, c *http.Client, url, name string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("x-api-key", "k")
	req.Header.Set(xClient, name)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("client %s: got %d", name, resp.StatusCode)
	}
	return nil
}

// TestFiftyClients: 50 clients of one program, who share a limit and a Transport with Pace, ask
// for more than the limit at once. All of their requests pass. No client is denied more than
// once. When the limit is free again they do not come back together: a tenth of a window gets
// fewer than half of them.
func TestFiftyClients(t *testing.T) {
	const n, each, limit, window = 50, 2, 45, 10 * time.Second
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := serve(t, fmt.Sprintf("window: %v, requests: %d", window, limit), settings)
		sender := newSender(t, n)
		sender.together = n // an answer before the last one would pace it, and the limit denied none
		c := &http.Client{Transport: &client.Transport{Base: sender, Pace: time.Minute}}
		begin := time.Now()
		process.Concurrently(t, n, func(i int) error {
			for range each {
				if err := pass(t.Context(), c, s.Envoy.URL(), fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		})
		sender.wantOnce(t)
		if crowd := sender.fullest(begin.Add(window/2), window/10); crowd >= n/2 {
			t.Errorf("%d requests in a tenth of a window, want fewer than %d", crowd, n/2)
		}
		if got := len(s.App.Received()); got != n*each {
			t.Errorf("the application got %d requests, want %d", got, n*each)
		}
		s.WantAllDecided()
	})
}

// TestClientReadsEveryStyle: the client finds the wait in the headers of each style, without
// Retry-After too.
func TestClientReadsEveryStyle(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"ratelimit", "draft03", "x-ratelimit", "x-ratelimit-epoch", "reference"} {
		s := serve(t, "window: 1h, requests: 1", map[string]string{stack.EnvStyles: style})
		for _, without := range []bool{false, true} {
			sender := newSender(t, 1)
			sender.change = func(h http.Header) {
				if without {
					h.Del("Retry-After")
				}
			}
			c := &http.Client{Transport: &client.Transport{Base: sender}}
			err := pass(t.Context(), c, s.Envoy.URL(), "c")
			if !without && err == nil {
				err = pass(t.Context(), c, s.Envoy.URL(), "c")
			}
			var wait *client.WaitError
			// 6 minutes are the random part. A minute is more than the test takes.
			if !errors.As(err, &wait) || wait.StatusCode != http.StatusTooManyRequests || wait.Wait < 59*time.Minute || wait.Wait > 66*time.Minute+time.Second {
				t.Errorf("%s, without Retry-After %v: got %v, want a wait of about an hour", style, without, err)
			}
		}
	}
}

// TestClientStopsAboveTheLimit: no wait helps a request whose cost is above the limit, so the
// client returns the response.
func TestClientStopsAboveTheLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, "window: 1m, requests: 5, cost: 10", nil)
	sender := newSender(t, 1)
	err := pass(t.Context(), &http.Client{Transport: &client.Transport{Base: sender}}, s.Envoy.URL(), "c")
	if err == nil || err.Error() != "client c: got 429" || sender.denied["c"] != 1 {
		t.Errorf("got %v after %d denials", err, sender.denied["c"])
	}
}
