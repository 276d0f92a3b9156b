package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	win     = 10 * time.Second
	timeout = 30 * time.Second
)

func check(key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: win}, Cost: cost}
}

func take(t testing.TB, s window.Store, checks ...window.Check) []window.Decision {
	t.Helper()
	return windowtest.Take(t, s, checks)
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !process.Poll(timeout, holds) {
		t.Fatalf("after %v: not yet %s", timeout, what)
	}
}

// TestServerTime runs the script as it is shipped, on the server's own clock.
func TestServerTime(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{Prefix: "p:"})
	c := window.Check{Key: "k", Limit: window.Limit{Hits: 3, Window: 300 * time.Millisecond}, Cost: 1}

	// Only what holds however slow this machine is: the first charge is not
	// later than its reply, so nothing may fit again until a window after it was
	// sent, and something must once a window has passed since the last reply.
	sent := time.Now()
	for i := range 3 {
		if got := take(t, s, c)[0]; !got.Allowed || got.ResetAfter != c.Limit.Window {
			t.Fatalf("charge %d: got %+v, want it allowed with a reset after %v", i, got, c.Limit.Window)
		}
	}
	received := time.Now()
	got := take(t, s, c)[0]
	if since := time.Since(sent); got.Allowed && since < c.Limit.Window {
		t.Fatalf("a fourth charge %v after the first: got %+v, want it denied", since, got)
	}
	if got.RetryAfter > c.Limit.Window {
		t.Errorf("retry after: got %v, want at most %v", got.RetryAfter, c.Limit.Window)
	}
	eventually(t, "allowed again", func() bool { return take(t, s, c)[0].Allowed })
	if since := time.Since(sent); since < c.Limit.Window {
		t.Errorf("allowed again %v after the first charge, want at least %v", since, c.Limit.Window)
	}
	if since := time.Since(received); since > timeout {
		t.Errorf("allowed again only %v after the last charge", since)
	}

	// The log disappears by itself.
	eventually(t, "expired by itself", func() bool {
		n, err := client.Exists(t.Context(), "p:k:300000").Result()
		if err != nil {
			t.Fatalf("EXISTS: %v", err)
		}
		return n == 0
	})
}

// TestScriptIsLoadedAgain proves that a server which has forgotten the script
// is no reason for an error or a second charge.
func TestScriptIsLoadedAgain(t *testing.T) {
	server := servers.StartRedis(t)
	client := newClient(t, server.Addr())
	counted := &counter{Client: client}
	s := redisstore.New(counted, redisstore.Options{})
	c := check("k", 10, 1)

	for i, step := range []struct {
		name          string
		before        func()
		wantRemaining uint64
		wantCommands  int64
	}{
		{"first call", func() {}, 9, 2},
		{"known", func() {}, 8, 1},
		{"flushed", func() { client.ScriptFlush(t.Context()) }, 7, 2},
		{"known again", func() {}, 6, 1},
		{"restarted, and empty", func() {
			server.Stop()
			server.Start()
			// Dead connections of the pool show at their first use.
			eventually(t, "connected again", func() bool { return client.Ping(t.Context()).Err() == nil })
		}, 9, 2},
	} {
		step.before()
		counted.n.Store(0)
		if got := take(t, s, c)[0].Remaining; got != step.wantRemaining {
			t.Errorf("step %d, %s: remaining %d, want %d", i, step.name, got, step.wantRemaining)
		}
		if got := counted.n.Load(); got != step.wantCommands {
			t.Errorf("step %d, %s: %d commands, want %d", i, step.name, got, step.wantCommands)
		}
	}
}

// TestScriptFlushWhileCalled proves that callers do not notice that the server
// forgets the script again and again.
func TestScriptFlushWhileCalled(t *testing.T) {
	const callers, calls = 8, 200
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			d := make([]window.Decision, 1)
			for range calls {
				if _, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 10_000, 1)}, d); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 50 {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if got, want := take(t, s, check("k", 10_000, 0))[0].Remaining, uint64(10_000-callers*calls); got != want {
		t.Errorf("remaining: got %d, want %d: a call was charged twice, or not", got, want)
	}
}

// A counter counts the commands that a store sends.
type counter struct {
	redisstore.Client
	n atomic.Int64
}

func (c *counter) Process(ctx context.Context, cmd redis.Cmder) error {
	c.n.Add(1)
	return c.Client.Process(ctx, cmd)
}

// TestDeadline proves that a server which does not answer costs a caller no more
// than its own deadline, that the error says so, and that all is well after.
func TestDeadline(t *testing.T) {
	server := servers.StartRedis(t)
	s := redisstore.New(newClient(t, server.Addr()), redisstore.Options{})
	take(t, s, check("k", 100, 1))

	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := s.Take(ctx, window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that is frozen: got error %v, want one that wraps %q", err, context.DeadlineExceeded)
	}
	if got := time.Since(start); got > 2*time.Second { // go-redis alone would wait 5 s
		t.Errorf("a server that is frozen: the call took %v", got)
	}
	if errors.Is(err, window.ErrBadCheck) {
		t.Errorf("a server that is frozen: got error %v, which says that nothing was charged", err)
	}

	server.Resume()
	eventually(t, "working again", func() bool {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 0)}, make([]window.Decision, 1))
		return err == nil
	})

	server.Stop()
	_, err = s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
	if err == nil || !strings.HasPrefix(err.Error(), "redisstore: ") {
		t.Errorf("a server that is gone: got error %v, want one that begins with %q", err, "redisstore: ")
	}
}

// TestNoSecondCharge proves that a lost reply is an error and not a reason to
// send the script again, even on a client whose options ask for retries.
func TestNoSecondCharge(t *testing.T) {
	addr := servers.Redis(t)
	direct := redisstore.New(newClient(t, addr), redisstore.Options{})
	take(t, direct, check("k", 100, 1)) // the script is known

	p := startProxy(t, addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: 5, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	s := redisstore.New(client, redisstore.Options{})
	take(t, s, check("k", 100, 1)) // the connection is made

	p.swallow.Store(true)
	_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
	if err == nil {
		t.Error("a lost reply: got no error")
	}
	if got, want := take(t, direct, check("k", 100, 0))[0].Remaining, uint64(97); got != want {
		t.Errorf("remaining after a lost reply: got %d, want %d: charged once", got, want)
	}
}

// A proxy stands before Redis. Once told to, it swallows the next reply and
// closes the connection; after that it is honest again.
type proxy struct {
	addr    string
	swallow atomic.Bool
}

func startProxy(t *testing.T, backend string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	var wg sync.WaitGroup
	ctx := t.Context() // ends before the cleanups run
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", backend)
			if err != nil {
				front.Close()
				continue
			}
			stop := context.AfterFunc(ctx, func() { front.Close(); back.Close() })
			wg.Go(func() {
				_, _ = io.Copy(back, front) // ends when either side is closed
				back.Close()
			})
			wg.Go(func() {
				defer stop()
				defer front.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := back.Read(buf)
					if err != nil || p.swallow.CompareAndSwap(true, false) {
						back.Close()
						return
					}
					if _, err := front.Write(buf[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return p
}

// failing is a Client whose every command fails.
type failing struct{ err error }

func (f failing) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(f.err)
	return f.err
}

// TestErrors proves that errors of the client are wrapped.
func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{boom, "redisstore: other: boom"},
		{context.DeadlineExceeded, "redisstore: timeout: context deadline exceeded"},
	} {
		s := redisstore.New(failing{tt.err}, redisstore.Options{Prefix: "p:"})
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("a", 1, 1), check("b", 1, 1)}, make([]window.Decision, 2))
		if !errors.Is(err, tt.err) || err.Error() != tt.want {
			t.Errorf("client's error %q: got %q, want %q", tt.err, err, tt.want)
		}
		if err := s.Load(t.Context()); !errors.Is(err, tt.err) || !strings.Contains(err.Error(), ": loading the script: ") {
			t.Errorf("client's error %q: Load: got %q", tt.err, err)
		}
	}
}

// TestCancelledMeanwhile proves that an error says so if the caller has given up
// meanwhile: it says nothing about the server then.
func TestCancelledMeanwhile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := redisstore.New(cancelling{failing{errors.New("boom")}, cancel}, redisstore.Options{})
	defer s.Close()
	_, err := s.Take(ctx, window.MayWait, []window.Check{check("a", 1, 1)}, make([]window.Decision, 1))
	if !errors.Is(err, context.Canceled) || failure.Of(err) != failure.Gone {
		t.Errorf("got error %v, want one of class %s that wraps %q", err, failure.Gone, context.Canceled)
	}
}

// cancelling is a Client that cancels the caller's context.
type cancelling struct {
	redisstore.Client
	cancel context.CancelFunc
}

func (c cancelling) Process(ctx context.Context, cmd redis.Cmder) error {
	c.cancel()
	return c.Client.Process(ctx, cmd)
}

// TestErrorsOfTheScript proves that what the server refuses within the script is
// an error, that nothing of the group was charged then, and that no value is
// thrown away for it.
func TestErrorsOfTheScript(t *testing.T) {
	admin := newClient(t, servers.Redis(t))
	corrupt := func(time.Duration) { t.Error("a value was removed") }
	s := redisstore.New(admin, redisstore.Options{Corrupt: corrupt})
	ring := check("ring", 100, 1)
	for range 30 {
		take(t, s, check("small", 100, 1), ring)
	}
	remaining := func() string {
		t.Helper()
		got := take(t, s, check("small", 100, 0), check("ring", 100, 0), check("new", 100, 0))
		return fmt.Sprint(got[0].Remaining, got[1].Remaining, got[2].Remaining)
	}
	const want = "70 70 100"

	t.Run("out of memory", func(t *testing.T) {
		limit := func(bytes string) {
			t.Helper()
			if err := admin.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
				t.Fatal(err)
			}
		}
		limit("1")
		defer limit("0")
		for _, c := range []window.Check{check("new", 100, 1), check("small", 100, 1), ring} {
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("small", 100, 1), c, ring}, make([]window.Decision, 3))
			if err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("%s: got error %v, want OOM", c.Key, err)
			}
		}
		if got := take(t, s, check("ring", 20, 1))[0]; got.Allowed || got.RetryAfter <= 0 {
			t.Errorf("a denial, which writes nothing: got %+v", got)
		}
	})
	if got := remaining(); got != want {
		t.Errorf("after out of memory: remaining %s, want %s", got, want)
	}

	t.Run("not permitted", func(t *testing.T) {
		ctx := t.Context()
		if err := admin.Do(ctx, "ACL", "SETUSER", "poor", "on", ">pw", "~small:*", "~new:*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "poor", Password: "pw", MaxRetries: -1})
		defer client.Close()
		poor := redisstore.New(client, redisstore.Options{Corrupt: corrupt})
		take(t, poor, check("small", 100, 0))
		for _, group := range [][]window.Check{{check("small", 100, 1), ring}, {ring}} {
			if _, err := poor.Take(ctx, window.MayWait, group, make([]window.Decision, len(group))); err == nil {
				t.Error("a key that is not permitted: got no error")
			}
		}
		// A user who may not read at all is refused within the script.
		if err := admin.Do(ctx, "ACL", "SETUSER", "poor", "-getrange").Err(); err != nil {
			t.Fatal(err)
		}
		_, err := poor.Take(ctx, window.MayWait, []window.Check{check("small", 100, 1)}, make([]window.Decision, 1))
		if err == nil {
			t.Error("a command that is not permitted: got no error")
		}
	})
	if got := remaining(); got != want {
		t.Errorf("after what is not permitted: remaining %s, want %s", got, want)
	}
}

// TestLoad proves that a loaded script need not be sent again.
func TestLoad(t *testing.T) {
	counted := &counter{Client: newClient(t, servers.Redis(t))}
	s := redisstore.New(counted, redisstore.Options{})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(t, s, check("k", 10, 1))
	if got := counted.n.Load(); got != 4 {
		t.Errorf("Load and a call took %d commands, want 4: two scripts, the clock, the call", got)
	}
	wrong := redisstore.New(saying("0123"), redisstore.Options{})
	if err := wrong.Load(t.Context()); err == nil || !strings.Contains(err.Error(), `calls the script "0123"`) {
		t.Errorf("a server that names the script otherwise: got error %v", err)
	}
}

// saying is a Client whose every reply is a text.
type saying string

func (s saying) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.(interface{ SetVal(string) }).SetVal(string(s))
	return nil
}

// TestClose proves that the client stays the caller's.
func TestClose(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: got error %v", err)
		}
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client after Close: got error %v", err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client as the package comment asks for.
func newClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// epoch makes the times of a test as large as real ones, in the year 2025.
const epoch = 1_750_000_000 * time.Second

// setClock sets the key that a store of NewWithClock reads.
func setClock(t testing.TB, c *redis.Client, key string, now time.Duration) {
	t.Helper()
	if err := c.Set(t.Context(), key, (epoch + now).Microseconds(), 0).Err(); err != nil {
		t.Fatalf("setting the clock: %v", err)
	}
}

// harnesses returns a function that opens harnesses. Each has its own keys and clock on one server.
func harnesses(t *testing.T) func(*testing.T) windowtest.Harness {
	t.Helper()
	client := newClient(t, servers.Redis(t))
	n := 0
	return func(t *testing.T) windowtest.Harness {
		n++
		clockKey := fmt.Sprintf("clock%d", n)
		return windowtest.Harness{
			Store:  redisstore.NewWithClock(t, client, redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}, clockKey),
			SetNow: func(now time.Duration) { setClock(t, client, clockKey, now) },
			Epoch:  epoch,
		}
	}
}

func TestContract(t *testing.T) {
	open := harnesses(t)
	policytest.Run(t, windowtest.Options{Steps: 15_000}, open)
	windowtest.Run(t, windowtest.Options{Steps: 15_000}, open)
}

// TestMaxWaiting fills the queue of a server. Of one request too many, the newest of the lowest
// priority is refused at once and charges nothing. Those of the highest priority are decided first.
func TestMaxWaiting(t *testing.T) {
	const most, limit = 4, 100
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{MaxWaiting: most, Timeout: patient})
	defer s.Close()
	take(t, s, check("warm", 1, 1)) // the script and the clock are known
	g.close()

	type answer struct {
		remaining uint64
		err       error
	}
	var all sync.WaitGroup
	ask := func(checks ...window.Check) chan answer {
		answered := make(chan answer, 1)
		all.Go(func() {
			d := make([]window.Decision, len(checks))
			_, err := s.Take(t.Context(), window.MayWait, checks, d)
			answered <- answer{d[0].Remaining, err}
		})
		return answered
	}
	of := func(p window.Priority, key string) window.Check {
		c := check(key, limit, 1)
		c.Priority = p
		return c
	}
	low, normal, high := of(window.PriorityLow, "k"), of(window.PriorityNormal, "k"), of(window.PriorityHigh, "k")
	queued := func() int { return s.Stats().Nodes[0].Queued }
	refused := func(from chan answer) {
		t.Helper()
		err := (<-from).err
		if failure.Of(err) != failure.Overload {
			t.Errorf("got %v, want the class %s", err, failure.Overload)
		}
		if n := queued(); n != most {
			t.Errorf("%d requests wait, want %d", n, most)
		}
	}

	for i := range 2 {
		ask(of(window.PriorityLow, fmt.Sprint("first ", i)))
		eventually(t, "a call of the script to be under way", func() bool { return s.Stats().Nodes[0].InFlight == i+1 && queued() == 0 })
	}
	var lows []chan answer
	for range most {
		lows = append(lows, ask(low))
		eventually(t, "the request to wait", func() bool { return queued() == len(lows) })
	}
	refused(ask(low))
	var normals, highs []chan answer
	for i := range most {
		if i < most/2 {
			normals = append(normals, ask(normal))
		} else {
			// The highest priority of the checks counts, wherever it stands.
			all := []window.Check{of(window.PriorityLow, "k"), of(window.PriorityHigh, "other"), of(window.PriorityLow, "third")}
			highs = append(highs, ask(all...))
		}
		refused(lows[most-1-i]) // the newest first
	}
	refused(ask(low))
	refused(ask(normal))
	highs = append(highs, ask(high))
	refused(normals[1])

	stats := s.Stats()
	if want := map[window.Priority]uint64{window.PriorityLow: 6, window.PriorityNormal: 2, window.PriorityHigh: 0}; !cmp.Equal(want, stats.Refused) {
		t.Errorf("refused: got %v, want %v", stats.Refused, want)
	}
	if got := stats.Failures[failure.Overload]; got != 8 {
		t.Errorf("failures of the class %s: got %d, want 8", failure.Overload, got)
	}
	if stats.Nodes[0].Open {
		t.Error("the breaker is open")
	}

	close(*g.open.Load())
	all.Wait()
	for i, h := range highs {
		if a := <-h; a.err != nil || a.remaining < limit-3 {
			t.Errorf("request %d of the priority high: got %d remaining and the error %v, want %d or more", i, a.remaining, a.err, limit-3)
		}
	}
	if a := <-normals[0]; a.err != nil || a.remaining != limit-4 {
		t.Errorf("the request of the priority normal: got %d remaining and the error %v, want %d: refused requests are not charged", a.remaining, a.err, limit-4)
	}
}
