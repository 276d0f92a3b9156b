package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// streamCounts is a Meters that counts by name what concerns streams.
type streamCounts struct {
	uncounted
	mu sync.Mutex
	n  map[string]int
}

func (c *streamCounts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[name]++
}

func (c *streamCounts) Ended(r inflight.EndResult) { c.add(inflight.EndResults[r]) }
func (c *streamCounts) Misused()                   { c.add("misused") }

// want compares the counts since the last call with "a 1, b 2".
func (c *streamCounts) want(t *testing.T, want string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for name, n := range c.n {
		got = append(got, fmt.Sprint(name, " ", n))
	}
	slices.Sort(got)
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("counted %q, want %q", text, want)
	}
	c.n = nil
}

// flight is a decider with limits of requests in flight, on a memory store.
type flight struct {
	*Decider
	t      *testing.T
	counts streamCounts
	logged *observer.ObservedLogs
}

// newFlight returns a flight. At most two streams may be at backend, each for a minute, and
// budget has 100 units.
func newFlight(t *testing.T, change func(*Options)) *flight {
	t.Helper()
	f := &flight{t: t}
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for _, r := range []rules.Rule{
		rule("backend", rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}}}, one("in_flight", "backend")),
		rule("other", rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}}}, anyOf("in_flight")),
		rule("budget", per(100, time.Hour), anyOf("budget")),
		rule("rate", per(10, time.Hour), anyOf("rate")),
	} {
		r.Domain, r.Charge.AllowedOnly = "edge", true
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	core, logged := observer.New(zapcore.WarnLevel)
	o := Options{Store: store, Meters: &f.counts, Log: logTo(core)}
	if change != nil {
		change(&o)
	}
	f.Decider, f.logged = NewDecider(rs, o), logged
	return f
}

// stream returns a request of a stream. An end has the ending via_upstream.
func stream(id, ending string, ds ...string) *Request {
	r := request(ds...)
	r.Stream, r.Ending = inflight.NewStreamID(id), ending
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		d.Cost = 1
		d.Ends = len(d.Entries) == 1 && d.Entries[0].Key == "slidegate" && d.Entries[0].Value == "end"
	}
	return r
}

// charge reports whether a stream gets its place at backend.
func (f *flight) charge(id string) bool {
	f.t.Helper()
	return decide(f.t, f.Decider, stream(id, "", "in_flight=backend")).Allowed
}

func (f *flight) end(id, ending string, ds ...string) {
	f.t.Helper()
	decide(f.t, f.Decider, stream(id, ending, append([]string{"slidegate=end"}, ds...)...))
}

// left returns what remains of a limit.
func (f *flight) left(ds string) uint64 {
	f.t.Helper()
	r := stream("", "", ds)
	r.Descriptors[0].Cost = 0
	v := decide(f.t, f.Decider, r)
	return v.Limits[0].Decision.Remaining
}

func TestStreams(t *testing.T) {
	f := newFlight(t, nil)
	want := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: allowed is %v, want %v", what, got, want)
		}
	}
	want("the first stream", f.charge("a"), true)
	want("the second stream", f.charge("b"), true)
	want("the third stream", f.charge("c"), false)
	want("the first stream again", f.charge("a"), true)
	f.end("a", "via_upstream")
	f.end("a", "via_upstream")
	f.end("c", "request_rate_limited")
	f.counts.want(t, "held_nothing 2, released 1")
	want("a stream in the place of the first", f.charge("d"), true)
	want("a stream after that", f.charge("e"), false)
	f.end("e", "request_rate_limited")
	f.end("b", "downstream_remote_disconnect")
	want("the stream that a limit has denied before", f.charge("e"), true)
	for _, id := range []string{"d", "e"} {
		f.end(id, "via_upstream")
	}
	f.end("early", "downstream_remote_disconnect")
	want("a stream whose end came first", f.charge("early"), false)
	if n := f.left("in_flight=backend"); n != 2 {
		t.Errorf("%d places are left at rest, want 2", n)
	}
	f.counts.want(t, "held_nothing 2, released 3")
	if n := f.logged.Len(); n != 0 {
		t.Errorf("%d warnings, want none: %v", n, f.logged.All())
	}
}

// TestTombstonesExpire lets a stream id pass again once its tombstone has expired.
func TestTombstonesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(t, nil)
		f.end("a", "via_upstream")
		time.Sleep(inflight.Tombstone - time.Millisecond)
		if f.charge("a") {
			t.Error("a stream that has ended is allowed")
		}
		time.Sleep(time.Millisecond)
		if !f.charge("a") {
			t.Error("the tombstone has not expired")
		}
	})
}

// TestSettling charges a cost at the end of a stream only if the stream held a place, and once.
func TestSettling(t *testing.T) {
	f := newFlight(t, nil)
	settle := func(id string) {
		t.Helper()
		r := stream(id, "via_upstream", "slidegate=end", "budget=x")
		r.Descriptors[1].Cost = 70
		decide(t, f.Decider, r)
	}
	f.charge("a")
	for _, id := range []string{"a", "a", "unknown"} {
		settle(id)
	}
	if n := f.left("budget=x"); n != 30 {
		t.Errorf("%d of the budget are left, want 30", n)
	}
	f.charge("b")
	settle("b") // above the limit, and spent
	if n := f.left("budget=x"); n != 0 {
		t.Errorf("%d of the budget are left, want 0", n)
	}
	v := decide(t, f.Decider, stream("", "via_upstream", "slidegate=end", "budget=x"))
	if len(v.Strictest) != 2 {
		t.Errorf("%d statuses for 2 descriptors", len(v.Strictest))
	}
}

// TestReportsOfEndedStreams records every cost of a call with an ending, although the rule charges
// only what is allowed.
func TestReportsOfEndedStreams(t *testing.T) {
	f := newFlight(t, nil)
	report := func(ending string, cost uint64) Verdict {
		req := stream("a", ending, "rate=x")
		req.Descriptors[0].Cost = cost
		return decide(t, f.Decider, req)
	}
	if v := report("", 11); v.Allowed {
		t.Error("a cost above the limit is allowed")
	}
	if n := f.left("rate=x"); n != 10 {
		t.Errorf("a denied cost is charged: %d are left, want 10", n)
	}
	report("via_upstream", 4)
	report("via_upstream", 11)
	if n := f.left("rate=x"); n != 0 {
		t.Errorf("a report is not recorded: %d are left, want 0", n)
	}
}

func TestMisuses(t *testing.T) {
	negative := stream("a", "", "in_flight=backend")
	negative.Descriptors[0].Refund = true
	for _, tt := range []struct {
		name string
		req  *Request
		want string // in the log
		left uint64 // places at backend
	}{
		{"no stream", stream("", "", "in_flight=backend"), inflight.MisuseNoStream, 0},
		{"negative", negative, inflight.MisuseNegative, 1},
		{"negative at the end", func() *Request { r := *negative; r.Ending = "via_upstream"; return &r }(), inflight.MisuseNegative, 1},
		{"charge at the end", stream("b", "via_upstream", "in_flight=backend"), inflight.MisuseChargeAtEnd, 1},
		{"end at the request", stream("a", "", "slidegate=end"), inflight.MisuseEndAtRequest, 1},
		{"end without a stream", stream("", "via_upstream", "slidegate=end"), inflight.MisuseEndWithoutStream, 1},
		{"a question without a stream", func() *Request {
			r := stream("", "", "in_flight=backend")
			r.Descriptors[0].Cost = 0
			return r
		}(), "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFlight(t, nil)
			f.charge("a")
			v := decide(t, f.Decider, tt.req)
			if !v.Allowed {
				t.Error("denied, want allowed")
			}
			if tt.want == "" {
				f.counts.want(t, "")
			} else {
				f.counts.want(t, "misused 1")
			}
			if n := f.left("in_flight=backend"); n != tt.left {
				t.Errorf("%d places are left, want %d", n, tt.left)
			}
			for _, entry := range f.logged.All() {
				if entry.Message != tt.want {
					t.Errorf("logged %q, want %q", entry.Message, tt.want)
				}
			}
			if n := f.logged.Len(); (tt.want != "") != (n == 1) {
				t.Errorf("%d warnings", n)
			}
		})
	}
}

// TestStreamsWithoutID hold their place for a second, each for itself.
func TestStreamsWithoutID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(t, nil)
		for i, want := range []bool{true, true, false} {
			if got := f.charge(""); got != want {
				t.Errorf("request %d: allowed is %v, want %v", i+1, got, want)
			}
		}
		time.Sleep(time.Second)
		if n := f.left("in_flight=backend"); n != 2 {
			t.Errorf("%d places are left after a second, want 2", n)
		}
	})
}

// failingReleaser is a store that fails to end streams.
type failingReleaser struct{ window.Store }

func (failingReleaser) End(context.Context, window.Ending) (window.Settled, error) {
	return window.Settled{}, errors.New("away")
}

func TestEndFails(t *testing.T) {
	f := newFlight(t, func(o *Options) { o.Store = failingReleaser{o.Store} })
	if _, err := decideErr(t.Context(), f.Decider, stream("a", "via_upstream", "slidegate=end", "rate=x")); err == nil {
		t.Error("no error, so Envoy would not repeat the call")
	}
	f.counts.want(t, "failed 1")
	if n := f.left("rate=x"); n != 10 {
		t.Errorf("%d are left, want 10", n)
	}
}

// TestPatience waits for a place: until a stream ends, and not longer than the patience.
func TestPatience(t *testing.T) {
	patient := func(o *Options) { o.Patience = inflight.DefaultPatience }
	for _, tt := range []struct {
		name     string
		deadline time.Duration
		ends     time.Duration // of a stream that holds a place; zero: never
		elsewere bool          // the end is not heard of in this process
		allowed  bool
		took     time.Duration
	}{
		{"a stream ends", time.Second, 2 * time.Millisecond, false, true, 2 * time.Millisecond},
		{"a stream ends elsewhere", time.Second, 2 * time.Millisecond, true, true, 5 * time.Millisecond},
		{"no stream ends", time.Second, 0, false, false, 5 * time.Millisecond},
		{"a stream ends too late", time.Second, 6 * time.Millisecond, false, false, 5 * time.Millisecond},
		{"a short deadline", 8 * time.Millisecond, 0, false, false, 2 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFlight(t, patient)
				f.charge("a")
				f.charge("b")
				if tt.ends > 0 {
					go func() {
						time.Sleep(tt.ends)
						if tt.elsewere {
							_, _ = f.releases.Store.End(context.Background(), window.Ending{Stream: inflight.NewStreamID("a")})
							return
						}
						f.end("a", "via_upstream")
					}()
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				start := time.Now()
				v, err := decideErr(ctx, f.Decider, stream("c", "", "in_flight=backend"))
				if took := time.Since(start); err != nil || v.Allowed != tt.allowed || took != tt.took {
					t.Errorf("allowed is %v after %v with the error %v, want %v after %v", v.Allowed, took, err, tt.allowed, tt.took)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// TestPatienceDoesNotBlock asks without waiting: a full limit leaves the request undecided.
func TestPatienceDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(t, func(o *Options) { o.Patience = inflight.DefaultPatience })
		f.charge("a")
		f.charge("b")
		start := time.Now()
		var c Call
		f.Begin(&c, *stream("c", "", "in_flight=backend"))
		if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil {
			t.Errorf("decided is %v with the error %v, want undecided", decided, err)
		}
		f.end("b", "via_upstream")
		if decided, err := c.Decide(t.Context(), window.MayWait); !decided || err != nil || !c.Verdict().Allowed {
			t.Errorf("decided is %v with the error %v, want allowed", decided, err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v, want no time", took)
		}
		f.counts.want(t, "released 1")
	})
}

// TestEndWithoutWaiting: an end that may block is decided only with waiting, and one in memory at once.
func TestEndWithoutWaiting(t *testing.T) {
	for _, blocks := range []bool{false, true} {
		f := newFlight(t, func(o *Options) {
			if blocks {
				o.Store = struct {
					window.Store
					window.Releaser
				}{o.Store, o.Store.(window.Releaser)}
			}
		})
		f.charge("a")
		var end Call
		f.Begin(&end, *stream("a", "via_upstream", "slidegate=end"))
		if decided, err := end.Decide(t.Context(), window.NoWait); decided == blocks || err != nil {
			t.Errorf("blocks is %v: decided is %v with the error %v", blocks, decided, err)
		}
		if decided, err := end.Decide(t.Context(), window.MayWait); !decided || err != nil || !end.Verdict().Allowed {
			t.Errorf("blocks is %v: decided is %v with the error %v after waiting", blocks, decided, err)
		}
		f.counts.want(t, "released 1")
	}
}

// TestEndBeforeTheWait has a stream end after a request was denied, and before it begins to wait.
func TestEndBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(t, func(o *Options) { o.Patience = inflight.DefaultPatience })
		f.charge("a")
		f.charge("b")
		var c Call
		f.Begin(&c, *stream("c", "", "in_flight=backend"))
		ends, start := f.waiters.Ends(), time.Now()
		if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil {
			t.Fatalf("decided is %v with the error %v, want undecided", decided, err)
		}
		f.end("a", "via_upstream")
		if err := c.await(t.Context(), ends); err != nil || !c.batch.decisions[0].Allowed || time.Since(start) != 0 {
			t.Errorf("allowed is %v with the error %v after %v, want allowed at once", c.batch.decisions[0].Allowed, err, time.Since(start))
		}
	})
}

// TestNoPatience denies at once: requests that another limit denies too, requests with reports,
// and requests beyond the bound of those that wait.
func TestNoPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(t, func(o *Options) { o.Patience = inflight.DefaultPatience })
		f.charge("a")
		f.charge("b")
		full := stream("c", "", "in_flight=backend", "rate=x")
		full.Descriptors[1].Cost = 11
		refund := stream("c", "", "in_flight=backend", "rate=x")
		refund.Descriptors[1].Refund = true
		for _, req := range []*Request{full, refund} {
			start := time.Now()
			if v := decide(t, f.Decider, req); v.Allowed || time.Since(start) != 0 {
				t.Errorf("allowed is %v after %v, want denied at once", v.Allowed, time.Since(start))
			}
		}
		f.counts.want(t, "")
		// All wait at the same time.
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() { f.charge(fmt.Sprint("wait ", i)) })
		}
		wg.Wait()
		if took := time.Since(start); took != inflight.DefaultPatience {
			t.Errorf("10 requests took %v, want %v", took, inflight.DefaultPatience)
		}
		f.counts.want(t, "")
		if n := f.waiters.Waiting(); n != 0 {
			t.Errorf("%d requests still wait", n)
		}
	})
}

// TestNewStreamID tells ids apart, and no id from the empty one.
func TestNewStreamID(t *testing.T) {
	if inflight.NewStreamID("") != 0 || inflight.NewStreamID("a") == 0 || inflight.NewStreamID("a") == inflight.NewStreamID("b") {
		t.Error("ids do not have digests of their own")
	}
}
