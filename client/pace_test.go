package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A limited server has an exact sliding window, and answers as Slidegate does.
type limited struct {
	limit         int
	window, delay time.Duration // delay is up to how long a request takes, to the server and back
	policy        bool          // whether responses have limit and window
	stalls        bool          // one request in 50 takes a twentieth of the window to the server, or back

	mu     sync.Mutex
	begin  time.Time
	log    []time.Duration // when requests passed
	all    []time.Duration // when requests came
	denied map[any]int     // by client, the value clientName in the context
}

type clientName struct{}

func newLimited(limit int, window time.Duration) *limited {
	return &limited{limit: limit, window: window, policy: true, begin: time.Now(), denied: make(map[any]int)}
}

func (s *limited) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.delay > 0 {
		time.Sleep(rand.N(s.delay) / 2)
		defer func() { time.Sleep(rand.N(s.delay) / 2) }()
	}
	if s.stalls {
		switch rand.N(100) {
		case 0:
			time.Sleep(s.window / 20)
		case 1:
			defer time.Sleep(s.window / 20)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.begin)
	s.all = append(s.all, at)
	oldest := len(s.log)
	for oldest > 0 && s.log[oldest-1] > at-s.window {
		oldest--
	}
	used, status := len(s.log)-oldest, http.StatusOK
	h := make(http.Header)
	if used < s.limit {
		s.log = append(s.log, at)
		used++
	} else {
		status = http.StatusTooManyRequests
		s.denied[req.Context().Value(clientName{})]++
	}
	reset := s.window // until all is free; if nothing remains, until one more has room
	if used == s.limit {
		reset = s.log[len(s.log)-s.limit] + s.window - at
	}
	after := strconv.Itoa(int((reset + time.Second - 1) / time.Second))
	h.Set("RateLimit", fmt.Sprintf(`"k";r=%d;t=%s`, s.limit-used, after))
	if s.policy {
		h.Set("RateLimit-Policy", fmt.Sprintf(`"k";q=%d;w=%d`, s.limit, int(s.window/time.Second)))
	}
	if status != http.StatusOK {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: req}, nil
}

// finish lets clients send n requests each, one after the other, and returns when the last one
// has ended. Every request must pass.
func (s *limited) finish(t *testing.T, clients, n int, transport func(client int) *Transport) time.Duration {
	t.Helper()
	var wg sync.WaitGroup
	for client := range clients {
		tr, ctx := transport(client), context.WithValue(t.Context(), clientName{}, client)
		wg.Go(func() {
			for range n {
				resp, err := tr.RoundTrip(get(ctx, t))
				if err != nil {
					t.Errorf("client %d: %v", client, err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("client %d: got %d", client, resp.StatusCode)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(s.begin)
}

// ideal is the earliest time at which the last of n requests can pass.
func (s *limited) ideal(n int) time.Duration {
	return time.Duration((n-1)/s.limit) * s.window
}

// mostDenied returns how often the client was denied that was denied most, and how often all were.
func (s *limited) mostDenied() (most, all int) {
	for _, n := range s.denied {
		most, all = max(most, n), all+n
	}
	return most, all
}

// TestFiftyClients: 50 clients of one program on one limit, which each ask for 60 requests at
// once. Each is denied once at most. After the first window they are spread: in a tenth of a
// window there are no more requests than a tenth of the limit and a few. All have finished in
// 1.05 of the ideal time. The clock is virtual, the times are exact.
func TestFiftyClients(t *testing.T) {
	for _, test := range []struct {
		limit  int
		window time.Duration
	}{{30, 10 * time.Second}, {100, 10 * time.Second}, {100, time.Minute}} {
		for i, delay := range []time.Duration{0, 50 * time.Millisecond, 50 * time.Millisecond} {
			stalls := i == 2
			t.Run(fmt.Sprintf("%d in %v, delay %v, stalls %v", test.limit, test.window, delay, stalls), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := newLimited(test.limit, test.window)
					srv.delay, srv.stalls = delay, stalls
					tr := &Transport{Base: srv, Pace: time.Minute, MaxWait: time.Hour}
					took := srv.finish(t, 50, 60, func(int) *Transport { return tr })
					most, all := srv.mostDenied()
					ratio := float64(took) / float64(srv.ideal(50*60))
					i, _ := slices.BinarySearch(srv.all, test.window-time.Second)
					crowd := fullest(srv.all[i:], test.window/10)
					t.Logf("%v, %.3f of the ideal; denied %d times, a client %d at most; %d in a tenth of a window", took, ratio, all, most, crowd)
					if most > 1 {
						t.Errorf("a client was denied %d times, want 1 at most", most)
					}
					if bound := test.limit/10 + test.limit/100 + 3; crowd > bound {
						t.Errorf("%d requests in a tenth of a window, want %d at most", crowd, bound)
					}
					if ratio > 1.05 {
						t.Errorf("finished in %v, %.3f of the ideal time", took, ratio)
					}
				})
			})
		}
	}
}

// TestFiftyPrograms: 50 programs that share a limit without knowing of each other, and are denied
// together. They wait once, and come back spread over a tenth of the wait.
func TestFiftyPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newLimited(50, time.Minute)
		requests(t, 50, &Transport{Base: srv})
		took := srv.finish(t, 50, 1, func(int) *Transport { return &Transport{Base: srv, MaxWait: 2 * time.Minute} })
		most, all := srv.mostDenied()
		t.Logf("%v, %.3f of the ideal; denied %d times, a client %d at most; %d in a second", took, took.Minutes(), all, most, fullest(srv.all[100:], time.Second))
		if most > 1 || all != 50 {
			t.Errorf("%d denials, %d of a client; want 50, one of each", all, most)
		}
		if took > 66*time.Second {
			t.Errorf("finished after %v, want 1m6s at most", took)
		}
		// 50 random times in 6 s: more than 25 in a second are less likely than 10^-7.
		if crowd := fullest(srv.all[100:], time.Second); crowd > 25 {
			t.Errorf("%d of 50 came back in one second", crowd)
		}
	})
}

// TestFiftyProgramsAtLength: 50 programs that share a limit without knowing of each other, and need
// 20 windows. They are denied about once in a window, and use the limit nevertheless.
func TestFiftyProgramsAtLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newLimited(100, time.Minute)
		srv.delay = 50 * time.Millisecond
		took := srv.finish(t, 50, 40, func(int) *Transport { return &Transport{Base: srv, MaxWait: time.Hour, MaxRetries: 100} })
		most, all := srv.mostDenied()
		ratio := float64(took) / float64(srv.ideal(50*40))
		t.Logf("%v, %.3f of the ideal; denied %d times, a client %d at most; %d in a tenth of a window", took, ratio, all, most, fullest(srv.all, 6*time.Second))
		if ratio > 1.15 || all > 50*20 {
			t.Errorf("finished in %.3f of the ideal time, denied %d times; want 1.15 and %d at most", ratio, all, 50*20)
		}
	})
}

// TestAloneIsNeverDenied: a paced client that is alone on its limit, and asks for one request
// after the other, is not denied, whatever the limit, the window and the delay are.
func TestAloneIsNeverDenied(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 200).Draw(rt, "limit")
		window := time.Duration(rapid.IntRange(1, 3600).Draw(rt, "window")) * time.Second
		delay := time.Duration(rapid.Int64Range(0, int64(window/25)).Draw(rt, "delay"))
		synctest.Test(t, func(t *testing.T) {
			srv := newLimited(limit, window)
			srv.delay, srv.stalls = delay, true
			tr := &Transport{Base: srv, Pace: 2 * time.Hour, MaxWait: 24 * time.Hour}
			srv.finish(t, 1, 3*limit+2, func(int) *Transport { return tr })
			if most, _ := srv.mostDenied(); most > 0 {
				t.Errorf("%d in %v, delay %v: denied %d times", limit, window, delay, most)
			}
		})
	})
}

// TestHistory: whatever the limit is, no window has more requests than it, the memory is bounded, and
// nearly all of the limit is used.
func TestHistory(t *testing.T) {
	for _, limit := range []int64{1, 2, 1000, 1023, 1024, 1025, 3000, 100_000} {
		begin := time.Now()
		h := history{begin: begin}
		var passed []time.Duration
		now, window := begin, time.Minute
		for range 4*limit - limit/50 {
			if at, ok := h.room(limit, window); ok && at.After(now) {
				now = at
			}
			p := h.pass(now)
			passed = append(passed, now.Sub(begin))
			h.answered(p, now, false)
			h.count(limit)
		}
		if got := int64(fullest(passed, window)); got > limit || len(h.at) > maxTimes || cap(h.at) > 2*maxTimes {
			t.Errorf("limit %d: %d in a window, %d times", limit, got, cap(h.at))
		}
		if took := now.Sub(begin); took > 3*window+window/20 {
			t.Errorf("limit %d: took %v", limit, took)
		}
		h.count(1 << 50)
		if _, ok := h.room(1<<50, window); ok {
			t.Errorf("limit %d: the history was not forgotten", limit)
		}
	}
}

// TestPaceWithoutWindow: without a window, what remains is spread until the reset.
func TestPaceWithoutWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(
			header("Status: 200", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset: 20"),
			header("Status: 200", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 15"),
			header("Status: 200", "X-RateLimit-Remaining: 2", "X-RateLimit-Reset: 60"),
			header("Status: 200", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 12"),
		)
		tr := &Transport{Base: srv, Pace: 8 * time.Second}
		for range 5 {
			requests(t, 1, tr)
		}
		const s = time.Second
		// 20/4, 15/3, 60/2 but at most Pace; then the whole reset.
		if want := []time.Duration{0, 5 * s, 10 * s, 18 * s, 30 * s}; !slices.Equal(srv.times(), want) {
			t.Errorf("got %v, want %v", srv.times(), want)
		}
	})
}

// TestPaceStops: after a denial that is too long to wait for, further requests are not sent. They
// get the wait that is left.
func TestPaceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(header("Retry-After: 3600"))
		tr := &Transport{Base: srv, Pace: time.Second, random: func() float64 { return 0 }}
		for i := range 3 {
			var wait *WaitError
			_, err := tr.RoundTrip(get(t.Context(), t)) //nolint:bodyclose // there is no response
			if want := time.Hour - time.Duration(i)*time.Minute; !errors.As(err, &wait) || wait.Wait != want || wait.StatusCode != 429 {
				t.Errorf("request %d: got %v, want %v", i, err, want)
			}
			time.Sleep(time.Minute)
		}
		if len(srv.calls) != 1 {
			t.Errorf("%d requests were sent, want 1", len(srv.calls))
		}
		time.Sleep(57 * time.Minute)
		requests(t, 1, tr)
	})
}

// TestPaceAfterDenials: a denial without advice holds back all requests of the key. One with a
// quota and without a wait concerns its own request alone.
func TestPaceAfterDenials(t *testing.T) {
	for _, test := range []struct {
		h    http.Header
		want []time.Duration
	}{
		{header(), []time.Duration{0, time.Second / 2, time.Second / 2}},
		{header(`RateLimit: "a";r=50`), []time.Duration{0, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(test.h)
			tr := &Transport{Base: srv, Pace: time.Minute, random: half}
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					resp, err := tr.RoundTrip(get(t.Context(), t))
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
				synctest.Wait()
			}
			wg.Wait()
			if !slices.Equal(srv.times(), test.want) {
				t.Errorf("%v: requests at %v, want %v", test.h, srv.times(), test.want)
			}
		})
	}
}

// TestPaceKeepsTheLongestWait: of two denials, the longer wait holds, whichever comes last.
func TestPaceKeepsTheLongestWait(t *testing.T) {
	for _, waits := range [][]string{{"10", "2"}, {"2", "10"}} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(header("Retry-After: "+waits[0]), header("Retry-After: "+waits[1]))
			tr := &Transport{Pace: time.Minute, random: half, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Second) // both are on their way before the first denial
				return srv.RoundTrip(req)
			})}
			requests(t, 2, tr)
			if times := srv.times(); times[2] != 12*time.Second+time.Second/2 {
				t.Errorf("denied with %v: requests at %v, want the third at 12.5s", waits, times)
			}
		})
	}
}

// TestPaceQueueCounts: the time in the queue is a part of MaxWait.
func TestPaceQueueCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paced := header("Status: 200", `RateLimit-Policy: "a";q=1;w=10`, `RateLimit: "a";r=0;t=10`)
		srv := newServer(paced, paced, paced, header("Retry-After: 10"))
		tr := &Transport{Base: srv, Pace: time.Minute, MaxWait: 35 * time.Second, random: half}
		requests(t, 1, tr)
		var wg sync.WaitGroup
		wg.Go(func() { requests(t, 1, tr) })
		synctest.Wait()
		wg.Go(func() { requests(t, 1, tr) })
		synctest.Wait()
		_, err := tr.RoundTrip(get(t.Context(), t)) //nolint:bodyclose // there is no response
		wg.Wait()
		// The third in the queue waits for 30.03 s, and then has no 10.5 s left.
		var wait *WaitError
		if !errors.As(err, &wait) || wait.Wait != 10500*time.Millisecond || len(srv.calls) != 4 {
			t.Errorf("got %v after %d requests, want a wait of 10.5s after 4", err, len(srv.calls))
		}
	})
}

// TestBodyOfARefusedRequest: a RoundTripper closes the body of a request that it does not send.
func TestBodyOfARefusedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: newServer(header("Retry-After: 3600")), Pace: time.Second}
		if _, err := tr.RoundTrip(get(t.Context(), t)); err == nil { //nolint:bodyclose // there is no response
			t.Error("want an error")
		}
		req, body := get(t.Context(), t), &endlessBody{}
		req.Body = body
		if _, err := tr.RoundTrip(req); err == nil || !body.closed || body.read > 0 { //nolint:bodyclose // there is no response
			t.Errorf("got %v; closed %v, read %d bytes", err, body.closed, body.read)
		}
	})
}

// TestPaceWithoutQuota: if a server sends only waits, the requests that were delayed do not come
// all at once: RetriesPerSecond bounds them too.
func TestPaceWithoutQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(header("Retry-After: 5"))
		tr := &Transport{Base: srv, Pace: time.Minute, random: half}
		var wg sync.WaitGroup
		wg.Go(func() { requests(t, 1, tr) })
		synctest.Wait()
		requests(t, 50, tr)
		wg.Wait()
		if times := srv.times()[1:]; len(times) != 51 || times[0] < 5*time.Second || fullest(times, time.Second) > 20 {
			t.Errorf("requests at %v, want 20 a second at most", times)
		}
		begin := time.Now()
		requests(t, 50, tr)
		if time.Since(begin) != 0 {
			t.Errorf("later requests were delayed by %v", time.Since(begin))
		}
	})
}

// TestPaceQueue: a request whose turn comes too late fails at once, without a status.
func TestPaceQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newLimited(6, time.Minute)
		tr := &Transport{Base: srv, Pace: time.Minute, MaxWait: 35 * time.Second}
		requests(t, 1, tr) // now the limit is known: 10.1 s between two
		var wg sync.WaitGroup
		var mu sync.Mutex
		var waits []time.Duration
		for range 6 {
			wg.Go(func() {
				resp, err := tr.RoundTrip(get(t.Context(), t))
				var wait *WaitError
				if errors.As(err, &wait) && wait.StatusCode == 0 {
					mu.Lock()
					waits = append(waits, wait.Wait)
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				} else {
					resp.Body.Close()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		const each = (time.Minute + time.Minute/slackPart + leastSlack) / 6
		if want := []time.Duration{4 * each, 4 * each, 4 * each}; !slices.Equal(waits, want) || len(srv.all) != 4 {
			t.Errorf("refused with %v after %d requests, want %v after 4", waits, len(srv.all), want)
		}
	})
}

// TestPaceKeys: the keys are paced apart, and their number is bounded.
func TestPaceKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(header("Retry-After: 3600"))
		tr := &Transport{Base: srv, Pace: time.Second, MaxWait: time.Second, Key: func(r *http.Request) string { return r.Header.Get("X-Api-Key") }}
		send := func(key string) error {
			req := get(t.Context(), t)
			req.Header.Set("X-Api-Key", key)
			resp, err := tr.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		if err := send("a"); err == nil {
			t.Error("a: want an error")
		}
		for i := range maxLanes - 1 {
			time.Sleep(time.Nanosecond)
			if err := send(strconv.Itoa(i)); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		time.Sleep(time.Nanosecond)
		if err := send("a"); err == nil || len(tr.lanes) != maxLanes {
			t.Errorf("a: want an error, and %d lanes, got %d", maxLanes, len(tr.lanes))
		}
		time.Sleep(time.Nanosecond)
		for i := range 3 {
			if err := send("more" + strconv.Itoa(i)); err != nil || len(tr.lanes) != maxLanes {
				t.Errorf("more: %v, %d lanes", err, len(tr.lanes))
			}
		}
		if tr.lanes["a"] == nil || tr.lanes["0"] != nil {
			t.Error("the key that was used least recently is kept")
		}
	})
}

// TestPaceOneHost: the spellings of one host are one key.
func TestPaceOneHost(t *testing.T) {
	tr := &Transport{Pace: time.Second}
	var first *lane
	for _, host := range []string{"api.example", "API.example", "api.example:80"} {
		req := get(t.Context(), t)
		req.URL.Host = host
		l := tr.enter(req)
		if first == nil {
			first = l
		}
		if l != first {
			t.Errorf("%s is another key than api.example", host)
		}
	}
	req := get(t.Context(), t)
	req.URL.Host = "api.example:443"
	if tr.enter(req) == first {
		t.Error("another port is the same key")
	}
}

// TestPaceAllKeysInUse: a request beyond the bound is sent without pacing.
func TestPaceAllKeysInUse(t *testing.T) {
	tr := &Transport{Pace: time.Second, Key: func(r *http.Request) string { return r.URL.Host }}
	for i := range maxLanes + 1 {
		req := get(t.Context(), t)
		req.URL.Host = strconv.Itoa(i)
		if l := tr.enter(req); (l == nil) != (i == maxLanes) {
			t.Errorf("key %d: lane %v", i, l)
		}
	}
}

// TestPaceLetsUnlimitedServersAlone: without a limit nothing is delayed.
func TestPaceLetsUnlimitedServersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		requests(t, 100, &Transport{Base: srv, Pace: time.Minute})
		if time.Since(srv.begin) != 0 {
			t.Errorf("took %v", time.Since(srv.begin))
		}
	})
}
