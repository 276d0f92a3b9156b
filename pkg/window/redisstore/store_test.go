package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	win     = 10 * time.Second
	slack   = time.Second // how long a key outlives its window
	timeout = 30 * time.Second
)

func check(key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: win}, Cost: cost}
}

func take(t testing.TB, s window.Store, checks ...window.Check) []window.Decision {
	t.Helper()
	got := make([]window.Decision, len(checks))
	if err := s.Take(t.Context(), checks, got); err != nil {
		t.Fatalf("Take(%+v): got error %v", checks, err)
	}
	return got
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("after %v: not yet %s", timeout, what)
		case <-tick.C:
		}
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

// TestLayout pins what is kept: operators see it, and a rolling upgrade has to
// read what the version before has written.
func TestLayout(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{Prefix: "p:"}, "clock")
	type z = redis.Z
	at := func(d time.Duration) float64 { return float64((epoch + d).Microseconds()) }

	for i, step := range []struct {
		at   time.Duration
		cost uint64
		hits uint64
		want []z
	}{
		{0, 2, 5, []z{{Score: at(0), Member: "0000000000000002:2"}}},
		{4 * time.Second, 1, 5, []z{{Score: at(0), Member: "0000000000000002:2"}, {Score: at(4 * time.Second), Member: "0000000000000003:1"}}},
		{4 * time.Second, 1, 5, []z{{Score: at(0), Member: "0000000000000002:2"}, {Score: at(4 * time.Second), Member: "0000000000000004:2"}}},
		{7 * time.Second, 3, 5, []z{{Score: at(0), Member: "0000000000000002:2"}, {Score: at(4 * time.Second), Member: "0000000000000004:2"}}},
		// Asking at the edge removes nothing; charging does.
		{10 * time.Second, 0, 5, []z{{Score: at(0), Member: "0000000000000002:2"}, {Score: at(4 * time.Second), Member: "0000000000000004:2"}}},
		{10 * time.Second, 3, 5, []z{{Score: at(4 * time.Second), Member: "0000000000000004:2"}, {Score: at(10 * time.Second), Member: "0000000000000007:3"}}},
		{60 * time.Second, window.MaxHits, window.MaxHits, []z{{Score: at(60 * time.Second), Member: "0000004294967302:4294967295"}}},
	} {
		setClock(t, client, "clock", step.at)
		take(t, s, check("{tag}:k", step.hits, step.cost))
		got, err := client.ZRangeWithScores(t.Context(), "p:{tag}:k:10000000", 0, -1).Result()
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d: the log: (-want +got)\n%s", i, diff)
		}
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 { // the log and the clock
		t.Errorf("keys: got %q, %v, want one log and the clock", keys, err)
	}
}

// TestRunningSumWraps proves that the sum's modulus does not show.
func TestRunningSumWraps(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	setClock(t, client, "clock", 0)
	const sums = 1 << 52
	if err := client.ZAdd(t.Context(), "k:10000000",
		redis.Z{Score: float64((epoch - time.Second).Microseconds()), Member: fmt.Sprintf("%016d:2", sums-3)},
	).Err(); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		at   time.Duration
		c    window.Check
		want window.Decision
	}{
		{0, check("k", 20, 2), window.Decision{Allowed: true, Remaining: 16, ResetAfter: win}},
		{1 * time.Second, check("k", 20, 4), window.Decision{Allowed: true, Remaining: 12, ResetAfter: win}},
		{2 * time.Second, check("k", 20, 12), window.Decision{Allowed: true, UnitAfter: 7 * time.Second, ResetAfter: win}},
		{3 * time.Second, check("k", 20, 4), window.Decision{RetryAfter: 7 * time.Second, UnitAfter: 6 * time.Second, ResetAfter: 9 * time.Second}},
		{3 * time.Second, check("k", 20, 5), window.Decision{RetryAfter: 8 * time.Second, UnitAfter: 6 * time.Second, ResetAfter: 9 * time.Second}},
		{11 * time.Second, check("k", 20, 0), window.Decision{Allowed: true, Remaining: 8, ResetAfter: 1 * time.Second}},
	} {
		setClock(t, client, "clock", step.at)
		if diff := cmp.Diff(step.want, take(t, s, step.c)[0]); diff != "" {
			t.Errorf("step %d: (-want +got)\n%s", i, diff)
		}
	}
}

// TestExpiry proves that a key lives as long as its newest entry counts, and
// little longer.
func TestExpiry(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	ttl := func() time.Duration {
		t.Helper()
		d, err := client.PTTL(t.Context(), "k:10000000").Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// The time since the charge is unknown but bounded by the call before.
	charge := func(at time.Duration, want time.Duration) {
		t.Helper()
		setClock(t, client, "clock", at)
		start := time.Now()
		take(t, s, check("k", 100, 1))
		got := ttl()
		if least := want - time.Since(start) - time.Millisecond; got < least || got > want {
			t.Errorf("life of the key after a charge at %v: got %v, want %v to %v", at, got, least, want)
		}
	}

	charge(100*time.Second, win+slack)
	charge(105*time.Second, win+slack)
	// The clock was set back by 65 s: the entries count until 115 by a clock
	// that says 40 now.
	charge(40*time.Second, 65*time.Second+win+slack)
	charge(50*time.Second, 55*time.Second+win+slack)

	// Asking and denying do not keep a log alive.
	if err := client.PExpire(t.Context(), "k:10000000", 5*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	take(t, s, check("k", 100, 0))
	take(t, s, check("k", 2, 1))
	if got := ttl(); got > 5*time.Second {
		t.Errorf("life of the key after asking and a denial: got %v, want at most 5s", got)
	}
}

// TestDeniedWritesNothing proves it by the server's own count of changes.
func TestDeniedWritesNothing(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	setClock(t, client, "clock", 0)
	take(t, s, check("full", 2, 2), check("free", 5, 1))
	setClock(t, client, "clock", 5*time.Second)
	take(t, s, check("free", 5, 1))
	setClock(t, client, "clock", 10*time.Second-time.Microsecond)

	changes := func() string {
		t.Helper()
		info, err := client.Info(t.Context(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		n, _, ok := strings.Cut(rest, "\r\n")
		if !ok {
			t.Fatal("INFO persistence does not tell rdb_changes_since_last_save")
		}
		return n
	}
	before := changes()
	if window.Allowed(take(t, s, check("free", 5, 1), check("full", 2, 1), check("new", 1, 1))) {
		t.Fatal("the group was allowed")
	}
	take(t, s, check("new", 1, 2))
	take(t, s, check("new", 1, 0), check("free", 5, 0))
	if got := changes(); got != before {
		t.Errorf("changes after denials and questions: got %s, want %s as before", got, before)
	}
}

// TestBadLog proves that a foreign value under one of our keys is named as what
// it is, and that nothing is charged.
func TestBadLog(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.NewWithClock(t, client, redisstore.Options{Prefix: "p:"}, "clock")
	setClock(t, client, "clock", 0)
	const key = "p:secret-subject:10000000"
	now := float64(epoch.Microseconds())
	zadd := func(members ...redis.Z) func(context.Context) error {
		return func(ctx context.Context) error { return client.ZAdd(ctx, key, members...).Err() }
	}

	for _, tt := range []struct {
		name string
		put  func(context.Context) error
		cost uint64
		want string
	}{
		{"a string", func(ctx context.Context) error { return client.Set(ctx, key, "7", 0).Err() }, 1, "WRONGTYPE"},
		{"a hash", func(ctx context.Context) error { return client.HSet(ctx, key, "a", "b").Err() }, 1, "WRONGTYPE"},
		{"a member of another form", zadd(redis.Z{Score: now, Member: "hello"}), 1, "newest member"},
		{"a member with more", zadd(redis.Z{Score: now, Member: "1:1:1"}), 1, "newest member"},
		{"a score that is infinite", zadd(redis.Z{Score: math.Inf(1), Member: "1:1"}), 1, "newest member"},
		{"a score that is no whole number", zadd(redis.Z{Score: now + 0.5, Member: "1:1"}), 1, "newest member"},
		{"a score that is no time", zadd(redis.Z{Score: 1e300, Member: "1:1"}), 1, "newest member"},
		{"a bad oldest member", zadd(redis.Z{Score: now - 1, Member: "x"}, redis.Z{Score: now, Member: "1:1"}), 1, "oldest member"},
		{"a bad member between", zadd(
			redis.Z{Score: now - 4, Member: "1:1"}, redis.Z{Score: now - 3, Member: "x"},
			redis.Z{Score: now - 2, Member: "y"}, redis.Z{Score: now - 1, Member: "z"},
			redis.Z{Score: now, Member: "5:1"},
		), 3, "a member"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			if err := client.Del(ctx, key).Err(); err != nil {
				t.Fatal(err)
			}
			if err := tt.put(ctx); err != nil {
				t.Fatal(err)
			}
			before := client.Dump(ctx, key).Val()
			checks := []window.Check{check("good", 5, 1), check("good", 5, 1), check("secret-subject", 5, tt.cost)}
			err := s.Take(ctx, checks, make([]window.Decision, len(checks)))
			if !errors.Is(err, redisstore.ErrBadLog) {
				t.Fatalf("got error %v, want one that wraps %q", err, redisstore.ErrBadLog)
			}
			for _, want := range []string{"redisstore: check 2,", `"p:"`, win.String(), tt.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error: got %q, want it to contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error: got %q, want it without the check's key", err)
			}
			if got := client.Dump(ctx, key).Val(); got != before {
				t.Errorf("the foreign value was changed")
			}
			if got := take(t, s, check("good", 5, 0))[0].Remaining; got != 5 {
				t.Errorf("the other log of the group: remaining %d, want 5", got)
			}
		})
	}
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

// A counter counts the commands that a store sends.
type counter struct {
	redisstore.Client
	n atomic.Int64
}

func (c *counter) Process(ctx context.Context, cmd redis.Cmder) error {
	c.n.Add(1)
	return c.Client.Process(ctx, cmd)
}

// TestOneCommand proves that a request of any size is one command.
func TestOneCommand(t *testing.T) {
	counted := &counter{Client: newClient(t, servers.Redis(t))}
	s := redisstore.New(counted, redisstore.Options{})
	take(t, s, check("warm", 1, 1))
	counted.n.Store(0)
	var checks []window.Check
	for i := range 50 {
		checks = append(checks, check(fmt.Sprint(i%40), 100, 1))
	}
	take(t, s, checks...)
	if got := counted.n.Load(); got != 1 {
		t.Errorf("commands for %d checks: got %d, want 1", len(checks), got)
	}
	counted.n.Store(0)
	take(t, s)
	if got := counted.n.Load(); got != 0 {
		t.Errorf("commands for an empty group: got %d, want none", got)
	}
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
	err := s.Take(ctx, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that is frozen: got error %v, want one that wraps %q", err, context.DeadlineExceeded)
	}
	if got := time.Since(start); got > 2*time.Second { // go-redis alone would wait 5 s
		t.Errorf("a server that is frozen: the call took %v", got)
	}
	if errors.Is(err, window.ErrBadCheck) || errors.Is(err, redisstore.ErrBadLog) {
		t.Errorf("a server that is frozen: got error %v, which says that nothing was charged", err)
	}

	server.Resume()
	eventually(t, "working again", func() bool {
		return s.Take(t.Context(), []window.Check{check("k", 100, 0)}, make([]window.Decision, 1)) == nil
	})

	server.Stop()
	err = s.Take(t.Context(), []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
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
	err := s.Take(t.Context(), []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
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

// A replier is a Client whose every reply is the same.
type replier struct{ reply any }

func (r replier) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.(interface{ SetVal(any) }).SetVal(r.reply)
	return nil
}

// TestStrictReply proves that a reply of another shape is an error that names
// what was expected.
func TestStrictReply(t *testing.T) {
	good := []any{int64(1), int64(2), int64(3), int64(4), int64(5)}
	with := func(i int, v any) []any {
		out := append([]any(nil), good...)
		out[i] = v
		return out
	}
	for _, tt := range []struct {
		name  string
		reply any
		want  string // empty: a good reply
	}{
		{"good", good, ""},
		{"nil", nil, "want an array of 5 integers"},
		{"a status", "OK", "want an array of 5 integers"},
		{"an integer", int64(1), "want an array of 5 integers"},
		{"empty", []any{}, "want 5 integers for each of 1 checks"},
		{"too short", good[:4], "want 5 integers for each of 1 checks"},
		{"too long", append(with(0, int64(1)), int64(1)), "want 5 integers for each of 1 checks"},
		{"a string in it", with(1, "2"), "value 1 of the reply to check 0 is string, want an integer"},
		{"a nil in it", with(4, nil), "value 4 of the reply to check 0 is <nil>, want an integer"},
		{"an error in it", with(2, errors.New("oops")), "want an integer"},
		{"a negative number", with(3, int64(-1)), "want an integer of at least 0"},
		{"an unknown outcome", with(0, int64(3)), "the outcome of check 0 is 3, want 0, 1 or 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := redisstore.New(replier{tt.reply}, redisstore.Options{})
			got := make([]window.Decision, 1)
			err := s.Take(t.Context(), []window.Check{check("k", 1, 1)}, got)
			if tt.want == "" {
				want := window.Decision{Allowed: true, Remaining: 2, RetryAfter: 3 * time.Microsecond, UnitAfter: 4 * time.Microsecond, ResetAfter: 5 * time.Microsecond}
				if err != nil || got[0] != want {
					t.Errorf("got %+v, %v, want %+v", got[0], err, want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "redisstore: ") {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// failing is a Client whose every command fails.
type failing struct{ err error }

func (f failing) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(f.err)
	return f.err
}

// TestErrors proves that errors of the client are wrapped and those of the
// script explained.
func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		err    error
		wantIs error
		want   string
	}{
		{boom, boom, "redisstore: boom"},
		{context.DeadlineExceeded, context.DeadlineExceeded, "redisstore: context deadline exceeded"},
		{errors.New("BADLOG 2 why not"), redisstore.ErrBadLog, `redisstore: check 2, window 10s, prefix "p:": the value is not a log: why not`},
		{errors.New("BADLOG 9 why not"), redisstore.ErrBadLog, `redisstore: prefix "p:": the value is not a log: 9 why not`},
		{errors.New("BADLOG x"), redisstore.ErrBadLog, `redisstore: prefix "p:": the value is not a log: x`},
	} {
		s := redisstore.New(failing{tt.err}, redisstore.Options{Prefix: "p:"})
		err := s.Take(t.Context(), []window.Check{check("a", 1, 1), check("a", 1, 1), check("b", 1, 1)}, make([]window.Decision, 3))
		if !errors.Is(err, tt.wantIs) || err.Error() != tt.want {
			t.Errorf("client's error %q: got %q, want %q", tt.err, err, tt.want)
		}
	}
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

// FuzzReply proves that no reply can make the store panic.
func FuzzReply(f *testing.F) {
	f.Add(int64(1), int64(2), "x", uint8(5))
	f.Fuzz(func(_ *testing.T, a, b int64, s string, n uint8) {
		var reply []any
		for i := range int(n % 12) {
			switch {
			case i%3 == 0:
				reply = append(reply, a)
			case i%5 == 0 && s != "":
				reply = append(reply, s)
			default:
				reply = append(reply, b)
			}
		}
		_ = redisstore.Decode(reply, make([]window.Decision, 1))
		_ = redisstore.Decode(any(s), make([]window.Decision, 1))
	})
}
