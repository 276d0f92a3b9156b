package events

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

const (
	// MaxQueue is how many events wait for the receiver at most.
	MaxQueue = 1000
	// flushTime bounds the last attempts.
	flushTime = 2 * time.Second
	// maxAnswer bounds what is read of an answer, so that the connection can be used again.
	maxAnswer = 64 << 10
)

// WebhookOptions say where events go. URL and Log are required.
type WebhookOptions struct {
	// URL is the URL of the receiver: http or https, without a user and a password.
	URL *url.URL
	// Key signs events. Without it, they have no signature.
	Key []byte
	// Timeout bounds one attempt. Zero: ten seconds.
	Timeout time.Duration
	// Backoff says how long to wait after each failure. Nil: from a second up to five minutes, at random.
	Backoff backoff.BackOff
	// Count counts results; see [Results]. Nil disables it.
	Count func(Result)
	Log   *zap.Logger
	// Now is the clock of signatures. Nil: time.Now.
	Now func() time.Time
}

// A Result is what became of an event, or of an attempt to deliver it.
type Result uint8

// The results.
const (
	Delivered Result = iota // the receiver has the event
	Failed                  // an attempt failed; there will be another one
	Refused                 // the receiver answered 410 and does not get this event again
	Dropped                 // the queue was full, or the process ended
)

// Results has the metric label of each Result.
var Results = [...]string{Delivered: "delivered", Failed: "failed", Refused: "refused", Dropped: "dropped"}

// A Webhook delivers events at least once while the process lives, in any order. It is safe for
// concurrent use. [Webhook.Run] must run once.
type Webhook struct {
	o       WebhookOptions
	client  *http.Client
	failing bool // of the last attempt; for Run alone

	mu    sync.Mutex
	queue []message // the one that has waited longest first
	wake  chan struct{}
}

// A message is an event on its way.
type message struct {
	id   string
	body []byte
}

// NewWebhook returns a Webhook with an empty queue.
func NewWebhook(o WebhookOptions) *Webhook {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Backoff == nil {
		o.Backoff = &backoff.ExponentialBackOff{InitialInterval: time.Second, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Minute}
	}
	if o.Count == nil {
		o.Count = func(Result) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Backoff.Reset()
	return &Webhook{o: o, wake: make(chan struct{}, 1), client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableCompression: true, MaxResponseHeaderBytes: 32 << 10, IdleConnTimeout: 50 * time.Second,
		},
	}}
}

// add puts an event into the queue.
func (w *Webhook) add(m message) {
	w.mu.Lock()
	full := len(w.queue) >= MaxQueue
	if full {
		w.queue = w.queue[1:]
	}
	w.queue = append(w.queue, m)
	w.mu.Unlock()
	if full {
		w.o.Count(Dropped)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take takes the first event out of the queue.
func (w *Webhook) take() (m message, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue = nil
		return m, false
	}
	m, w.queue = w.queue[0], w.queue[1:]
	return m, true
}

// Run delivers events until ctx ends. Then it tries each waiting one once more, and returns nil.
func (w *Webhook) Run(ctx context.Context) error {
	defer w.client.CloseIdleConnections()
	for ctx.Err() == nil {
		m, ok := w.take()
		var pause <-chan time.Time
		if ok && !w.deliver(ctx, m) {
			w.add(m)
			pause = time.After(w.o.Backoff.NextBackOff())
		}
		switch {
		case pause != nil:
			select {
			case <-pause:
			case <-ctx.Done():
			}
		case !ok:
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	lost := 0
	for m, ok := w.take(); ok; m, ok = w.take() {
		if !w.deliver(last, m) {
			lost++
			w.o.Count(Dropped)
		}
	}
	if lost > 0 {
		w.o.Log.Warn("rls stops, and the receiver of events has not taken all of them", zap.String("receiver", w.o.URL.Host), zap.Int("lost", lost))
	}
	return nil
}

// errGone is the answer of a receiver that wants no events.
var errGone = errors.New("the receiver answered 410 (gone)")

// deliver makes one attempt. It reports whether the event needs no further one.
func (w *Webhook) deliver(ctx context.Context, m message) (done bool) {
	err := w.send(ctx, m)
	if gone := errors.Is(err, errGone); err == nil || gone {
		w.o.Backoff.Reset()
		result := Delivered
		if gone {
			result = Refused
			w.o.Log.Warn("the receiver of events wants no more of them; rls still sends it new ones: remove events.webhook", zap.String("receiver", w.o.URL.Host))
		} else if w.failing {
			w.o.Log.Info("the receiver of events answers again", zap.String("receiver", w.o.URL.Host))
		}
		w.failing = false
		w.o.Count(result)
		return true
	}
	w.o.Count(Failed)
	if !w.failing && ctx.Err() == nil {
		w.failing = true
		w.o.Log.Warn("the receiver of events does not take them; rls keeps them and tries again", zap.String("receiver", w.o.URL.Host), zap.Error(err))
	}
	return false
}

// send sends an event. The error names neither path nor query of the URL, which may hold a token.
func (w *Webhook) send(ctx context.Context, m message) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL.String(), bytes.NewReader(m.body))
	if err != nil {
		return errors.New("events.webhook is not a URL for a request")
	}
	at := strconv.FormatInt(w.o.Now().Unix(), 10)
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"slidegate"}, "Webhook-Id": {m.id}, "Webhook-Timestamp": {at},
	}
	if len(w.o.Key) > 0 {
		req.Header.Set("Webhook-Signature", sign(w.o.Key, m.id, at, m.body))
	}
	answer, err := w.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // only the status counts
	_ = answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusGone:
		return errGone
	case answer.StatusCode/100 != 2:
		return fmt.Errorf("it answered %d", answer.StatusCode)
	}
	return nil
}

// sign returns the signature of Standard Webhooks, version 1.
func sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
