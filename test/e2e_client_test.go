package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pkgclient "github.com/slidegate/slidegate/client"
	"github.com/slidegate/slidegate/test/process"
)

// A sender sends requests and records what a server answers to each of the clients.
type sender struct {
	base http.RoundTripper
	// change, if set, changes the header of every response.
	change func(http.Header)

	mu     sync.Mutex
	sent   []time.Time
	denied map[string]int // by the header X-Client
}

const xClient = "X-Client"

// newSender returns one with a connection for each of n clients.
func newSender(t process.TB, n int) *sender {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(base.CloseIdleConnections)
	return &sender{base: base, denied: make(map[string]int)}
}

func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.sent = append(s.sent, time.Now())
	s.mu.Unlock()
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

// limitOf returns rules with one limit for each API key.
func limitOf(requests int, window time.Duration) string {
	return fmt.Sprintf("domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: %v, requests: %d}\n", window, requests)
}

// TestFiftyClients: 50 clients of one program, who share a limit and a Transport with Pace, ask
// for more than the limit at once. All of their requests pass. No client is denied more than
// once. When the limit is free again they do not come back together: a tenth of a window gets
// fewer than half of them.
func TestFiftyClients(t *testing.T) {
	const n, each, limit, window = 50, 2, 45, 6 * time.Second
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: limitOf(limit, window), env: settings}.start(t)
		sender := newSender(t, n)
		c := &http.Client{Transport: &pkgclient.Transport{Base: sender, Pace: time.Minute}}
		begin := time.Now()
		concurrently(t, n, func(i int) error {
			for range each {
				if err := pass(t.Context(), c, s.envoy.URL(), fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		})
		sender.wantOnce(t)
		if crowd := sender.fullest(begin.Add(window/2), window/10); crowd >= n/2 {
			t.Errorf("%d requests in a tenth of a window, want fewer than %d", crowd, n/2)
		}
		if got := len(s.app.received()); got != n*each {
			t.Errorf("the application got %d requests, want %d", got, n*each)
		}
		s.wantAllDecided()
	})
}

// TestClientReadsEveryStyle: the client finds the wait in the headers of each style, without
// Retry-After too.
func TestClientReadsEveryStyle(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"ratelimit", "draft03", "x-ratelimit", "x-ratelimit-epoch", "reference"} {
		s := setup{rules: limitOf(1, time.Hour), env: map[string]string{envStyles: style}}.start(t)
		for _, without := range []bool{false, true} {
			sender := newSender(t, 1)
			sender.change = func(h http.Header) {
				if without {
					h.Del("Retry-After")
				}
			}
			c := &http.Client{Transport: &pkgclient.Transport{Base: sender}}
			err := pass(t.Context(), c, s.envoy.URL(), "c")
			if !without && err == nil {
				err = pass(t.Context(), c, s.envoy.URL(), "c")
			}
			var wait *pkgclient.WaitError
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
	s := setup{rules: "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1m, requests: 5, cost: 10}\n"}.start(t)
	sender := newSender(t, 1)
	err := pass(t.Context(), &http.Client{Transport: &pkgclient.Transport{Base: sender}}, s.envoy.URL(), "c")
	if err == nil || err.Error() != "client c: got 429" || sender.denied["c"] != 1 {
		t.Errorf("got %v after %d denials", err, sender.denied["c"])
	}
}

// TestClientRecipes runs the recipes of docs/clients.md: one in a shell, one in Python. Each
// waits as it is told, and passes. Each gives up at once if the wait is too long.
func TestClientRecipes(t *testing.T) {
	t.Parallel()
	for _, recipe := range []struct {
		name, hint string
		command    func(url string) []string
		tooLong    int // the exit code
	}{
		{"curl", "apt-get install curl", func(url string) []string { return []string{"../docs/examples/get.sh", url, "-H", "x-api-key: k"} }, 75},
		{"python3", "apt-get install python3", func(url string) []string { return []string{"python3", "../docs/examples/get.py", url, "k"} }, 1},
	} {
		t.Run(recipe.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(recipe.name); err != nil {
				process.Missing(t, recipe.name, recipe.hint)
			}
			start := func(command []string) (string, string, int) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
				cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
				var stdout, stderr strings.Builder
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
					t.Fatal(err)
				}
				return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
			}
			whole := recipe.command("URL")
			if out, errs, code := start(whole[:slices.Index(whole, "URL")]); out != "" || !strings.Contains(errs, "usage: ") || strings.Count(errs, "\n") != 1 || code == 0 {
				t.Errorf("without a URL: got %q, %q and code %d", out, errs, code)
			}
			run := func(s *stack) (string, string, int) { return start(recipe.command(s.envoy.URL() + "/")) }
			passes := func(s *stack) {
				t.Helper()
				if out, errs, code := run(s); out != appBody || errs != "" || code != 0 {
					t.Errorf("got %q, %q and code %d, want %q", out, errs, code, appBody)
				}
			}
			short := setup{rules: limitOf(1, 3*time.Second)}.start(t)
			for range 2 {
				passes(short)
			}
			if short.stat("cluster.upstream.ratelimit.over_limit") == 0 {
				t.Error("no request was denied")
			}
			long := setup{rules: limitOf(1, time.Hour)}.start(t)
			passes(long)
			if out, errs, code := run(long); out != "" || !strings.Contains(errs, "too long to wait") || code != recipe.tooLong {
				t.Errorf("too long: got %q, %q and code %d, want %d", out, errs, code, recipe.tooLong)
			}
			if n := long.stat("cluster.upstream.ratelimit.over_limit"); n != 1 {
				t.Errorf("too long: denied %d times, want once", n)
			}
			above := setup{rules: "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {window: 1m, requests: 5, cost: 10}\n"}.start(t)
			if _, errs, code := run(above); !strings.Contains(errs, "429") || code == 0 {
				t.Errorf("cost above the limit: got %q and code %d", errs, code)
			}
			if n := above.stat("cluster.upstream.ratelimit.over_limit"); n != 1 {
				t.Errorf("cost above the limit: denied %d times, want once", n)
			}
		})
	}
}

// TestShellRecipeReadsDates answers docs/examples/get.sh with dates in Retry-After, by the clock of
// the server.
func TestShellRecipeReadsDates(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]int{
		"Thu, 29 Feb 2024 00:00:00 GMT": 0, "Sun, 06 Nov 1994 08:49:37 GMT": 0, "Fri, 01 Mar 2024 00:00:00 GMT": 75, "Fri, 31 Dec 9999 23:59:59 GMT": 75,
		"soon": 22, "Thu, 29 Xyz 2024 00:00:00 GMT": 22, "-5": 22,
	} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 {
					w.Header().Set("Date", "Wed, 28 Feb 2024 23:59:59 GMT")
					w.Header().Set("Retry-After", after)
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			defer s.Close()
			cmd := exec.CommandContext(t.Context(), "sh", "../docs/examples/get.sh", s.URL)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
				t.Errorf("got %v %s, want exit code %d", err, out, want)
			}
		})
	}
}
