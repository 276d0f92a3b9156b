package events

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A call is what a receiver got.
type call struct{ id, at, signature, body string }

// A receiver is an HTTP server whose answers follow a script; then it answers 200.
type receiver struct {
	url    *url.URL
	mu     sync.Mutex
	script []http.HandlerFunc
	got    chan call
}

func receive(t *testing.T, script ...http.HandlerFunc) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{script: script, got: make(chan call, 2*MaxQueue), url: &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/hook", RawQuery: "token=letmein"}}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	h := req.Header
	r.mu.Lock()
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	if len(r.script) > 0 {
		answer, r.script = r.script[0], r.script[1:]
	}
	r.mu.Unlock()
	r.got <- call{h.Get("webhook-id"), h.Get("webhook-timestamp"), h.Get("webhook-signature"), string(body)}
	answer(w, req)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// counts counts results.
type counts struct {
	mu   sync.Mutex
	more sync.Cond
	of   [len(Results)]int
}

func newCounts() *counts {
	c := new(counts)
	c.more.L = &c.mu
	return c
}

func (c *counts) count(r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[r]++
	c.more.Broadcast()
}

// await waits until there are so many of a result.
func (c *counts) await(r Result, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.of[r] < n {
		c.more.Wait()
	}
}

// start runs a webhook to a receiver. stop ends it, and returns what became of the events.
func start(t *testing.T, c *counts, o WebhookOptions, events ...message) (w *Webhook, lines *observer.ObservedLogs, stop func() [len(Results)]int) {
	t.Helper()
	core, lines := observer.New(zap.InfoLevel)
	o.Count, o.Log, o.Backoff = c.count, zap.New(core), backoff.NewConstantBackOff(time.Millisecond)
	w = NewWebhook(o)
	for _, m := range events {
		w.add(m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceValue(func() [len(Results)]int {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return c.of
	})
	t.Cleanup(func() { stop() })
	return w, lines, stop
}

// TestDelivery has a receiver that hangs, fails, redirects, answers without end, and then takes the event.
func TestDelivery(t *testing.T) {
	t.Parallel()
	elsewhere := receive(t)
	hang := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	redirect := func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.url.String(), http.StatusTemporaryRedirect)
	}
	endless := func(w http.ResponseWriter, req *http.Request) {
		for n := 0; req.Context().Err() == nil; n++ {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
	r := receive(t, hang, breaks, redirect, status(500), status(404), endless)
	now := time.Unix(1_700_000_000, 0)
	key := []byte("a key of at least 24 bytes")
	c := newCounts()
	w, lines, stop := start(t, c, WebhookOptions{
		URL: r.url, Key: key, Now: func() time.Time { now = now.Add(time.Second); return now }, Timeout: 200 * time.Millisecond,
	}, message{"evt_1", []byte(`{"type":"budget.spent"}`)})
	for n := range 6 {
		got := <-r.got
		at := strconv.Itoa(1_700_000_001 + n)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, `evt_1.%s.{"type":"budget.spent"}`, at)
		if want := (call{"evt_1", at, "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), `{"type":"budget.spent"}`}); got != want {
			t.Errorf("attempt %d: got %+v, want %+v", n, got, want)
		}
	}
	// The answer without end had the status 200, so it counts.
	w.add(message{"evt_2", []byte("{}")})
	if got := <-r.got; got.id != "evt_2" {
		t.Errorf("after an answer without end: got %+v, want the next event", got)
	}
	c.await(Delivered, 2)
	if got, want := stop(), [...]int{Delivered: 2, Failed: 5, Refused: 0, Dropped: 0}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(elsewhere.got) > 0 {
		t.Error("the redirection was followed")
	}
	var texts []string
	for _, l := range lines.All() {
		texts = append(texts, l.Message)
		if text := fmt.Sprint(l.ContextMap()); strings.Contains(text, "letmein") || strings.Contains(text, "/hook") {
			t.Errorf("a line has a part of the URL: %s", text)
		}
	}
	if want := []string{"the receiver of events does not take them; rls keeps them and tries again", "the receiver of events answers again"}; !slices.Equal(texts, want) {
		t.Errorf("lines: got %q, want %q", texts, want)
	}
}

// TestOneIsRefused has a receiver that takes all events but one: 410 ends it, 400 does not delay the others.
func TestOneIsRefused(t *testing.T) {
	t.Parallel()
	r := receive(t, status(410), status(400), status(200), status(200))
	c := newCounts()
	_, _, stop := start(t, c, WebhookOptions{URL: r.url}, message{id: "gone"}, message{id: "bad"}, message{id: "good"})
	var ids []string
	for range 4 {
		one := <-r.got
		ids = append(ids, one.id)
		if one.signature != "" {
			t.Errorf("a signature without a key: %q", one.signature)
		}
	}
	c.await(Delivered, 2)
	if want := []string{"gone", "bad", "good", "bad"}; !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
	if got, want := stop(), [...]int{Delivered: 2, Failed: 1, Refused: 1, Dropped: 0}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestQueueIsBounded fills the queue while no receiver listens. Then one does, as the process ends.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	r := receive(t)
	c := newCounts()
	w := NewWebhook(WebhookOptions{URL: r.url, Log: zap.NewNop(), Count: c.count})
	for n := range MaxQueue + 7 {
		w.add(message{id: strconv.Itoa(n)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	if got := c.of; got[Dropped] < 7 || got[Delivered]+got[Dropped] != MaxQueue+7 || got[Delivered] == 0 {
		t.Errorf("got %v, want the 7 oldest dropped and the others tried once", got)
	}
	if first := <-r.got; first.id != "7" {
		t.Errorf("first came %s, want 7", first.id)
	}
}

// TestNoReceiver ends a process whose receiver does not exist.
func TestNoReceiver(t *testing.T) {
	t.Parallel()
	r := receive(t)
	r.url.Host = "127.0.0.1:1"
	c := newCounts()
	_, lines, stop := start(t, c, WebhookOptions{URL: r.url}, message{id: "evt"})
	c.await(Failed, 2)
	if got := stop(); got[Delivered] != 0 || got[Failed] < 2 || got[Dropped] != 1 {
		t.Errorf("got %v, want one event, dropped at the end", got)
	}
	if text := fmt.Sprint(lines.All()[0].ContextMap()["error"]); !strings.Contains(text, "refused") || strings.Contains(text, "letmein") {
		t.Errorf("got the error %q", text)
	}
}

// TestSignature has an example of the libraries of Standard Webhooks.
func TestSignature(t *testing.T) {
	t.Parallel()
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
