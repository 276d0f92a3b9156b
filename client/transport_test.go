package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A call is a request that a server got.
type call struct {
	at   time.Duration // since the server began
	body string
}

// A server answers each request with the next of its answers, and then with 200.
type server struct {
	mu      sync.Mutex
	begin   time.Time
	answers []http.Header // Status, a made-up field, is the status; 429 without it
	calls   []call
	closed  int // bodies of answers that were closed
	unread  int // of these, the bodies that were not read to their end
}

func newServer(answers ...http.Header) *server { return &server{begin: time.Now(), answers: answers} }

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{time.Since(s.begin), string(body)})
	h := header("Status: 200")
	if len(s.answers) > 0 {
		h, s.answers = s.answers[0], s.answers[1:]
	}
	status := http.StatusTooManyRequests
	if text := h.Get("Status"); text != "" {
		if _, err := fmt.Sscan(text, &status); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Header: h, Body: &answerBody{Reader: strings.NewReader("answer"), s: s}, Request: req}, nil
}

// times returns when the requests came.
func (s *server) times() []time.Duration {
	var all []time.Duration
	for _, c := range s.calls {
		all = append(all, c.at)
	}
	return all
}

type answerBody struct {
	*strings.Reader
	s    *server
	done bool
}

func (b *answerBody) Close() error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if !b.done {
		b.done = true
		b.s.closed++
		if b.Len() > 0 {
			b.s.unread++
		}
	}
	return nil
}

func get(ctx context.Context, t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// half makes every random part half of its bound.
func half() float64 { return 0.5 }

// TestWaits: when requests are repeated, after each kind of answer. The random part is half.
func TestWaits(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name    string
		answers []http.Header
		want    []time.Duration
		status  int
	}{
		{"passes", nil, []time.Duration{0}, 200},
		{"Retry-After and up to 1 s", []http.Header{header("Retry-After: 5")}, []time.Duration{0, 5*s + s/2}, 200},
		{"Retry-After and up to 10 %", []http.Header{header("Retry-After: 40")}, []time.Duration{0, 42 * s}, 200},
		{"Retry-After of 0", []http.Header{header("Retry-After: 0")}, []time.Duration{0, s / 2}, 200},
		{
			"then backoff", slices.Repeat([]http.Header{header("Retry-After: 2")}, 3),
			[]time.Duration{0, 2*s + s/2, 5*s + s/2, 9*s + s/2},
			200,
		},
		{"no advice: backoff alone", []http.Header{header(), header()}, []time.Duration{0, s / 2, s/2 + s}, 200},
		{"nonsense: backoff alone", []http.Header{header("Retry-After: soon")}, []time.Duration{0, s / 2}, 200},
		{"RateLimit", []http.Header{header(`RateLimit: "a";r=0;t=3`)}, []time.Duration{0, 3*s + s/2}, 200},
		{"X-RateLimit", []http.Header{header("X-RateLimit-Reset: 3")}, []time.Duration{0, 3*s + s/2}, 200},
		{"503 with Retry-After", []http.Header{header("Status: 503", "Retry-After: 3")}, []time.Duration{0, 3*s + s/2}, 200},
		{"503 without", []http.Header{header("Status: 503", `RateLimit: "a";r=0;t=3`)}, []time.Duration{0}, 503},
		{"500", []http.Header{header("Status: 500", "Retry-After: 3")}, []time.Duration{0}, 500},
		{"no wait helps", []http.Header{header(`RateLimit: "a";r=50`)}, []time.Duration{0}, 429},
		{"retries are used up", slices.Repeat([]http.Header{header("Retry-After: 0")}, 9), []time.Duration{0, s / 2, s/2 + s, s/2 + 3*s, s/2 + 7*s}, 429},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer(test.answers...)
				resp, err := (&Transport{Base: srv, random: half}).RoundTrip(get(t.Context(), t))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got := srv.times(); resp.StatusCode != test.status || !slices.Equal(got, test.want) {
					t.Errorf("got %d after requests at %v, want %d, %v", resp.StatusCode, got, test.status, test.want)
				}
				if string(body) != "answer" || err != nil || srv.closed != len(srv.calls) || srv.unread != 0 {
					t.Errorf("body %q, %v; of %d bodies %d closed, %d not read", body, err, len(srv.calls), srv.closed, srv.unread)
				}
			})
		})
	}
}

// TestJitterIsWithinBounds: the random part of each wait is spread over its whole range.
func TestJitterIsWithinBounds(t *testing.T) {
	for _, test := range []struct {
		retry    int
		reported time.Duration
		isReported
		bound time.Duration
	}{
		{0, 0, true, time.Second},
		{0, 5 * time.Second, true, time.Second},
		{0, time.Minute, true, 6 * time.Second},
		{0, longest, true, longest / 10},
		{0, 0, false, time.Second},
		{1, time.Minute, true, 2 * time.Second},
		{3, 0, false, 8 * time.Second},
		{6, 0, false, time.Minute},
		{1000, longest, true, time.Minute},
	} {
		var tr Transport
		least, most := longest, time.Duration(-1)
		for range 1000 {
			got := tr.jitter(test.retry, test.reported, bool(test.isReported))
			least, most = min(least, got), max(most, got)
		}
		if least < 0 || most >= test.bound || least > test.bound/20 || most < test.bound-test.bound/20 {
			t.Errorf("retry %d after %v: got %v to %v, want 0 to %v", test.retry, test.reported, least, most, test.bound)
		}
	}
}

type isReported bool

// TestRepeats: what may be repeated.
func TestRepeats(t *testing.T) {
	text := func() io.Reader { return strings.NewReader("body") }
	once := func() io.Reader { return io.MultiReader(text()) } // NewRequest cannot read it again
	for _, test := range []struct {
		method string
		body   io.Reader
		header string
		want   bool
	}{
		{"GET", nil, "", true},
		{"HEAD", nil, "", true},
		{"OPTIONS", nil, "", true},
		{"TRACE", nil, "", true},
		{"DELETE", nil, "", true},
		{"PUT", text(), "", true},
		{"PUT", http.NoBody, "", true},
		{"PUT", once(), "", false},
		{"GET", once(), "", false},
		{"POST", text(), "", false},
		{"POST", nil, "", false},
		{"PATCH", text(), "", false},
		{"CONNECT", nil, "", false},
		{"get", nil, "", false},
		{"POST", text(), "Idempotency-Key: k", true},
		{"PATCH", text(), "X-Idempotency-Key: k", true},
		{"POST", text(), "Idempotency-Key: ", false},
		{"POST", once(), "Idempotency-Key: k", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(header("Retry-After: 1"))
			req, err := http.NewRequestWithContext(t.Context(), test.method, "http://api.example/", test.body)
			if err != nil {
				t.Fatal(err)
			}
			if test.header != "" {
				add(req.Header, header(test.header))
			}
			resp, err := (&Transport{Base: srv}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := len(srv.calls) == 2; got != test.want {
				t.Errorf("%s %T %s: repeated is %v, want %v", test.method, test.body, test.header, got, test.want)
			}
			for _, c := range srv.calls {
				if want := srv.calls[0].body; c.body != want || test.body != nil && test.body != http.NoBody && want != "body" {
					t.Errorf("%s: bodies %v", test.method, srv.calls)
				}
			}
		})
	}
}

func add(to, from http.Header) {
	for name, values := range from {
		to[name] = values
	}
}

// TestBodyThatCannotBeReadAgain: an error of GetBody ends the request.
func TestBodyThatCannotBeReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://api.example/", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		if _, err := (&Transport{Base: newServer(header("Retry-After: 1"))}).RoundTrip(req); !errors.Is(err, gone) { //nolint:bodyclose // there is no response
			t.Errorf("got %v", err)
		}
	})
}

// TestTooLong: a wait that is too long, or that cannot end before the deadline, is not begun.
func TestTooLong(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name     string
		tr       *Transport
		deadline time.Duration
		answers  []http.Header
		want     WaitError
		at       time.Duration // when the error came
	}{
		{"default", &Transport{}, 0, []http.Header{header("Retry-After: 60")}, WaitError{63 * s, 429}, 0},
		{"503", &Transport{}, 0, []http.Header{header("Status: 503", "Retry-After: 60")}, WaitError{63 * s, 503}, 0},
		{"hostile", &Transport{}, 0, []http.Header{header("Retry-After: 1000000000000000000")}, WaitError{longest + longest/20, 429}, 0},
		{"own", &Transport{MaxWait: 3 * s}, 0, []http.Header{header("Retry-After: 3")}, WaitError{3*s + s/2, 429}, 0},
		{"the sum of all waits", &Transport{MaxWait: 10 * s}, 0, []http.Header{header("Retry-After: 5"), header("Retry-After: 4")}, WaitError{5 * s, 429}, 5*s + s/2},
		{"never", &Transport{MaxWait: -1}, 0, []http.Header{header("Retry-After: 1")}, WaitError{s + s/2, 429}, 0},
		{"deadline", &Transport{}, 5 * s, []http.Header{header("Retry-After: 5")}, WaitError{5*s + s/2, 429}, 0},
		{"deadline, later", &Transport{}, 10 * s, []http.Header{header("Retry-After: 5"), header("Retry-After: 4")}, WaitError{5 * s, 429}, 5*s + s/2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				srv := newServer(test.answers...)
				test.tr.Base, test.tr.random = srv, half
				_, err := (&http.Client{Transport: test.tr}).Do(get(ctx, t)) //nolint:bodyclose // there is no response
				var wait *WaitError
				if !errors.As(err, &wait) || *wait != test.want || time.Since(srv.begin) != test.at {
					t.Errorf("got %v after %v, want %v after %v", err, time.Since(srv.begin), &test.want, test.at)
				}
				if srv.closed != len(srv.calls) || srv.unread != 0 {
					t.Errorf("of %d bodies %d closed, %d not read", len(srv.calls), srv.closed, srv.unread)
				}
			})
		})
	}
}

// TestCancel: a context that ends while a request waits ends the wait.
func TestCancel(t *testing.T) {
	for _, tr := range []*Transport{{}, {Pace: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, cancel)
			srv := newServer(header("Retry-After: 30"))
			tr.Base = srv
			_, err := tr.RoundTrip(get(ctx, t)) //nolint:bodyclose // there is no response
			if !errors.Is(err, context.Canceled) || time.Since(srv.begin) != 3*time.Second {
				t.Errorf("got %v after %v", err, time.Since(srv.begin))
			}
		})
	}
}

// TestRetriesPerSecond: however many requests are denied, not more retries than the bucket allows
// are sent in any second.
func TestRetriesPerSecond(t *testing.T) {
	for _, test := range []struct{ rate, most int }{{0, 20}, {1, 2}, {5, 10}, {-1, 100}} {
		synctest.Test(t, func(t *testing.T) {
			const n = 100
			srv := newServer(slices.Repeat([]http.Header{header("Retry-After: 3")}, n)...)
			tr := &Transport{Base: srv, RetriesPerSecond: test.rate, MaxWait: time.Hour, random: func() float64 { return 0 }}
			requests(t, n, tr)
			times := srv.times()[n:]
			if len(times) != n {
				t.Fatalf("%d retries, want %d", len(times), n)
			}
			if got := fullest(times, time.Second); got > test.most || test.rate < 0 && got != n {
				t.Errorf("%d a second: %d retries in a second, want %d at most", test.rate, got, test.most)
			}
			if want := 3*time.Second + n*time.Second/time.Duration(max(orDefault(test.rate, 10), 1)); test.rate >= 0 && times[n-1] > want {
				t.Errorf("%d a second: the last retry after %v, want %v at most", test.rate, times[n-1], want)
			}
		})
	}
}

// TestRetriesBeyondTheBudget: a retry that the bucket delays for too long is given up at once.
func TestRetriesBeyondTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(slices.Repeat([]http.Header{header("Retry-After: 1")}, 10)...)
		tr := &Transport{Base: srv, RetriesPerSecond: 1, MaxWait: 4 * time.Second, random: func() float64 { return 0 }}
		var wg sync.WaitGroup
		var mu sync.Mutex
		given := 0
		for range 10 {
			wg.Go(func() {
				resp, err := tr.RoundTrip(get(t.Context(), t))
				var wait *WaitError
				if errors.As(err, &wait) && wait.StatusCode == 0 {
					mu.Lock()
					given++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				} else {
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		if given != 6 || time.Since(srv.begin) != 4*time.Second {
			t.Errorf("%d of 10 gave up, after %v; want 6 after 4s", given, time.Since(srv.begin))
		}
	})
}

// requests sends n requests at once, which must all pass, and waits for them.
func requests(t *testing.T, n int, tr *Transport) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := tr.RoundTrip(get(t.Context(), t))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("got %d", resp.StatusCode)
			}
		})
	}
	wg.Wait()
}

// fullest returns how many of the times are within one interval of the given length.
func fullest(times []time.Duration, length time.Duration) int {
	slices.Sort(times)
	most, first := 0, 0
	for i, at := range times {
		for times[first] <= at-length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// TestDrainIsBounded: neither a long nor a slow body holds a request.
func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endless := &endlessBody{}
		drain(endless)
		if endless.read > drainBytes+32<<10 || !endless.closed {
			t.Errorf("read %d bytes, closed %v", endless.read, endless.closed)
		}
		r, w := io.Pipe()
		begin := time.Now()
		drain(r)
		if _, err := w.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) || time.Since(begin) != drainTime {
			t.Errorf("slow body: %v after %v", err, time.Since(begin))
		}
	})
}

type endlessBody struct {
	read   int
	closed bool
}

func (b *endlessBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return copy(p, bytes.Repeat([]byte("x"), len(p))), nil
}

func (b *endlessBody) Close() error {
	b.closed = true
	return nil
}

// TestErrorsOfBase: errors are returned as they are, and not repeated.
func TestErrorsOfBase(t *testing.T) {
	broken, calls := errors.New("broken"), 0
	tr := &Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
		calls++
		return nil, broken
	})}
	if _, err := tr.RoundTrip(get(t.Context(), t)); !errors.Is(err, broken) || calls != 1 { //nolint:bodyclose // there is no response
		t.Errorf("got %v after %d calls", err, calls)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestOddBases: a denial without a body, as in tests of programs, a request without a URL, and no
// response.
func TestOddBases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tr := &Transport{Pace: time.Second, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.URL == nil {
				return nil, errors.New("no URL")
			}
			calls++
			return &http.Response{StatusCode: http.StatusTooManyRequests + calls - 1, Header: header("Retry-After: 1")}, nil
		})}
		resp, err := tr.RoundTrip(get(t.Context(), t)) //nolint:bodyclose // it has none
		if err != nil || resp.StatusCode != http.StatusTooManyRequests+1 {
			t.Errorf("got %v, %v", resp, err)
		}
		if _, err := tr.RoundTrip(&http.Request{Method: http.MethodGet}); err == nil || err.Error() != "no URL" { //nolint:bodyclose // there is no response
			t.Errorf("without a URL: %v", err)
		}
		tr.Base = roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
		if _, err := (&http.Client{Transport: tr}).Do(get(t.Context(), t)); err == nil { //nolint:bodyclose // there is no response
			t.Error("no response is no error")
		}
	})
}

// TestRequestIsNotModified: a RoundTripper must not change the request.
func TestRequestIsNotModified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://api.example/x", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		body, target, headers := req.Body, *req.URL, len(req.Header)
		resp, err := (&Transport{Base: newServer(header("Retry-After: 1"))}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if req.Body != body || *req.URL != target || len(req.Header) != headers {
			t.Errorf("the request changed: %+v", req)
		}
	})
}

// TestCloseIdleConnections reaches Base.
func TestCloseIdleConnections(t *testing.T) {
	base := &idle{}
	(&http.Client{Transport: &Transport{Base: base}}).CloseIdleConnections()
	if !base.closed {
		t.Error("Base was not called")
	}
	(&http.Client{Transport: &Transport{Base: roundTripper(nil)}}).CloseIdleConnections()
}

type idle struct {
	http.RoundTripper
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }

// TestWaitErrorThroughClient: http.Client wraps the error so that errors.As finds it, and it
// is no timeout that a caller would repeat at once.
func TestWaitErrorThroughClient(t *testing.T) {
	err := error(&url.Error{Op: "Get", URL: "http://api.example/", Err: &WaitError{Wait: time.Hour, StatusCode: 429}})
	const want = `Get "http://api.example/": client: the request would have to wait for 1h0m0s, longer than it may: status 429`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the error is a timeout")
	}
}
