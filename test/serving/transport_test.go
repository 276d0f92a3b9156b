package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// The tests in this file are about the connection between Envoy and rls. make test-ways
// runs all tests on every way.

// onEveryWay runs a test on every way to rls, or on the one way that the environment
// chooses.
func onEveryWay(t *testing.T, f func(t *testing.T, way edge.Way)) {
	t.Parallel()
	for _, way := range edge.Ways() {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			f(t, way)
		})
	}
}

// eachTransport runs a test on both transports, or on the one that the environment
// chooses. The environment also chooses TCP, a unix socket or TLS.
func eachTransport(t *testing.T, f func(t *testing.T, way edge.Way)) {
	t.Parallel()
	for _, transport := range edge.Transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			f(t, edge.Way{Transport: transport})
		})
	}
}

// Changes of stack.EdgeConfig.
var (
	// noDecisionIs500 shows in the status of an answer whether there was a decision.
	noDecisionIs500 = map[string]string{"failure_mode_deny: false": "failure_mode_deny: true"}
	// oftenChecked has Envoy hear soon that an instance is about to go, and wait for the answer of
	// one that a busy machine holds up. (The text is that of no_traffic_interval too.)
	oftenChecked = map[string]string{"interval: 2s": "interval: 0.05s", "timeout: 0.5s": "timeout: 20s"}
	// smallWindows are the smallest that Envoy has.
	smallWindows = map[string]string{
		keepalive: keepalive + "\n            initial_stream_window_size: 65535\n            initial_connection_window_size: 65535",
	}
)

const keepalive = "connection_keepalive: {interval: 30s, timeout: 5s}"

// endless has a limit that no test reaches.
var endless = strings.ReplaceAll(stack.PerKey, "100", "100000000")

// traffic is the answers that clients of Envoy got.
type traffic struct {
	mu        sync.Mutex
	decided   int
	undecided []string // when, and what came instead
	slowest   time.Duration
}

// sendUntilStopped sends requests from eight clients until stop is called. There are requests in
// flight at any time, and few enough to leave the machine to other tests.
func sendUntilStopped(s *stack.Stack) (seen *traffic, stop func()) {
	seen = new(traffic)
	start, clients := time.Now(), s.Clients(8)
	return seen, process.Workers(s.T, len(clients), 20*time.Millisecond, func(i, _ int) bool {
		got, err := clients[i].Try(s.T.Context(), "/", "x-api-key", "k"+strconv.Itoa(i))
		seen.add(got, err, time.Since(start))
		return true
	})
}

// add records one answer.
func (tr *traffic) add(got stack.Answer, err error, at time.Duration) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case err != nil:
		tr.undecided = append(tr.undecided, fmt.Sprintf("%v: %v", at, err))
	case got.Status != http.StatusOK || got.Header.Get("RateLimit") == "":
		tr.undecided = append(tr.undecided, fmt.Sprintf("%v: %d %q", at, got.Status, got.Header))
	default:
		tr.decided++
	}
	tr.slowest = max(tr.slowest, time.Since(got.Sent)) // a missing answer has taken time too
}

// counts returns the numbers of requests with and without a decision.
func (tr *traffic) counts() (decided, undecided int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.decided, len(tr.undecided)
}

// more waits until n more requests were decided.
func (tr *traffic) more(t *testing.T, n int) {
	t.Helper()
	before, _ := tr.counts()
	process.Eventually(t, strconv.Itoa(n)+" more decisions", func() bool {
		now, _ := tr.counts()
		return now >= before+n
	})
}

// wantNoneUndecided fails the test if a request got no decision.
func (tr *traffic) wantNoneUndecided(t *testing.T, s *stack.Stack) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.undecided) > 0 {
		t.Errorf("%d of %d requests got no decision, want all to get one:\n%s", len(tr.undecided),
			len(tr.undecided)+tr.decided, strings.Join(tr.undecided[:min(10, len(tr.undecided))], "\n"))
	}
	if n := s.Stat("cluster.upstream.ratelimit.error"); n != uint64(len(tr.undecided)) {
		t.Errorf("Envoy got no decision for %d requests, and clients saw that of %d", n, len(tr.undecided))
	}
}

// TestEveryWay is the short form of make test-ways. It has limits on Redis, where an answer
// waits, and limits behind authorization, where it does not.
func TestEveryWay(t *testing.T) {
	onEveryWay(t, func(t *testing.T, way edge.Way) {
		s := stack.Setup{Rules: stack.ThreeKinds, Way: way, Env: stack.OnRedis(servers.Redis(t))}.Start(t)
		c := s.From("127.0.0.1")
		c.Want(200, 3, "/", "x-api-key", "k")
		c.Want(429, 1, "/", "x-api-key", "k")
		c.Want(200, 2, "/login")
		c.Want(429, 1, "/login")
		passed, denied := stack.SendFromMany(t, "another-key", s)
		if passed != 3 || denied != 297 {
			t.Errorf("of 300 requests: got %d passed and %d denied, want 3 and 297", passed, denied)
		}
		s.WantAllDecided()
		wantWay(s, way)

		s = stack.Setup{
			Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Way: way,
			Config: stack.AuthorizationConfig, Env: stack.TrustOwnTier,
		}.Start(t)
		c = s.From("127.0.0.1")
		c.Want(401, 1, "/")
		c.Want(401, 1, "/", "x-api-key", "planted-unknown")
		c.Want(200, 6, "/", "x-api-key", "acme-old-key")
		c.Want(429, 1, "/", "x-api-key", "acme-new-key")
		s.WantAllDecided()
		wantWay(s, way)
	})
}

// wantWay fails the test if Envoy's calls went another way.
func wantWay(s *stack.Stack, way edge.Way) {
	s.T.Helper()
	if got, want := strings.HasPrefix(s.RLS.GRPC(), "unix:"), way.Listen == edge.Unix; got != want {
		s.T.Errorf("on a unix socket: got %v, want %v", got, want)
	}
	if got, want := s.Stat("cluster.rls.ssl.handshake") > 0, way.Listen == edge.TLS; got != want {
		s.T.Errorf("handshakes of Envoy: got %v, want %v", got, want)
	}
	// grpc-go's connections are not counted.
	n := stack.Metric(s.T, s.RLS, "slidegate_grpc_connections")
	if got, want := n != "" && n != "0", way.Transport == edge.Unary; got != want {
		s.T.Errorf("connections counted: got %v, want %v", got, want)
	}
}

// TestRestartsUnderLoad stops and starts two instances in turn, as an update does.
// Every request must get a decision.
func TestRestartsUnderLoad(t *testing.T) {
	eachTransport(t, func(t *testing.T, way edge.Way) {
		su := stack.Setup{
			Rules: endless, Way: way,
			Env: map[string]string{
				// The other instance takes over.
				"SLIDEGATE_DRAIN_NOT_SERVING": "true",
				// Far longer than Envoy needs to notice.
				stack.EnvDrainDelay: "2500ms",
			},
			Change: stack.With(noDecisionIs500, oftenChecked),
		}
		s := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: su.Serve(t)}
		beside := su
		beside.TLS = s.RLS.Authority() // Envoy trusts one
		s.Others = []*edge.RLSServer{beside.Serve(t)}
		su.StartEnvoy(s)
		seen, stop := sendUntilStopped(s)
		both := []*edge.RLSServer{s.RLS, s.Others[0]}
		for round := range random.Steps(t, 1, 5) {
			for i, rls := range both {
				process.Eventually(t, "Envoy to know of two healthy instances", func() bool {
					return s.Stat("cluster.rls.membership_healthy") == 2
				})
				// Without load a failure would go unnoticed.
				process.Eventually(t, "load on the instance that is stopped", func() bool { return questions(t, rls) > 50 })
				if code, err := rls.Stop(); code != 0 || err != nil {
					t.Errorf("round %d, instance %d: got exit code %d, %v, want 0", round+1, i+1, code, err)
				}
				if err := rls.Start(); err != nil {
					t.Fatal(err)
				}
			}
		}
		seen.more(t, 100)
		stop()
		seen.wantNoneUndecided(t, s)
	})
}

// questions returns how many calls of Envoy an rls has answered.
func questions(t *testing.T, rls *edge.RLSServer) int {
	t.Helper()
	text := stack.Metric(t, rls, `slidegate_rpc_seconds_count{code="OK",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}`)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestConnectionsAgeUnderLoad makes rls end its connections again and again under
// load.
func TestConnectionsAgeUnderLoad(t *testing.T) {
	eachTransport(t, func(t *testing.T, way edge.Way) {
		s := stack.Setup{
			Rules: endless, Way: way, Change: noDecisionIs500,
			Env: map[string]string{envMaxConnectionAge: "1s"},
		}.Start(t)
		seen, stop := sendUntilStopped(s)
		process.Eventually(t, "five connections to be too old", func() bool {
			return s.Stat("cluster.rls.upstream_cx_close_notify") >= 5
		})
		seen.more(t, 100)
		stop()
		seen.wantNoneUndecided(t, s)
		if n := stack.Metric(t, s.RLS, `slidegate_grpc_goaways_total{reason="age"}`); way.Transport == edge.Unary && (n == "" || n == "0") {
			t.Errorf("connections that were told to go for their age: got %q, want some", n)
		}
	})
}

// TestKilledUnderLoad kills rls and starts it again. Meanwhile a request fails at
// once. Afterwards every request gets a decision.
func TestKilledUnderLoad(t *testing.T) {
	eachTransport(t, func(t *testing.T, way edge.Way) {
		s := stack.Setup{Rules: endless, Way: way, Change: noDecisionIs500}.Start(t)
		seen, stop := sendUntilStopped(s)
		c := s.From("127.0.0.1")
		for range 3 {
			seen.more(t, 50)
			_, before := seen.counts()
			s.RLS.Kill()
			process.Eventually(t, "requests without a decision", func() bool {
				_, n := seen.counts()
				return n > before+20
			})
			if err := s.RLS.Start(); err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if got := c.Get("/", "x-api-key", "k"); got.Status != http.StatusOK {
					t.Errorf("request %d after rls has come back: got %d, want 200", i+1, got.Status)
				}
			}
		}
		stop()
		// A question that hangs takes as long as stack.PatientEnvoy lets it.
		if seen.slowest > 8*time.Second {
			t.Errorf("the slowest answer took %v: a question has hung", seen.slowest)
		}
	})
}

// TestEnvoyGivesUp freezes Redis, so that Envoy resets each call after its 20 ms. To
// rls that is a client that resets every call, and rls must not close the connection
// for that.
func TestEnvoyGivesUp(t *testing.T) {
	eachTransport(t, func(t *testing.T, way edge.Way) {
		redis := servers.StartRedis(t)
		env := stack.OnRedis(redis.Addr())
		// Each question waits as long as it may, and rls does not decide it by itself.
		env["SLIDEGATE_STORE_ON_ERROR"] = "report"
		s := stack.Setup{
			Rules: endless, Way: way, Env: env,
			Change: map[string]string{"timeout: 0.05s": "timeout: 0.02s"},
		}.Start(t)
		decides := func() bool { return s.Get("/", "x-api-key", "k").Header.Get("RateLimit") != "" }
		process.Eventually(t, "a decision", decides)

		redis.Pause()
		const callers, each = 50, 20
		clients := s.Clients(callers)
		process.Concurrently(t, callers, func(i int) error {
			for range each {
				got, err := clients[i].Try(t.Context(), "/", "x-api-key", "k"+strconv.Itoa(i))
				if err != nil {
					return err
				}
				if got.Status != http.StatusOK || got.Header.Get("RateLimit") != "" {
					return fmt.Errorf("got %d %q, want 200 without a decision", got.Status, got.Header)
				}
			}
			return nil
		})
		// rls knows the 20 ms too, so either side may give up first.
		if n := s.Stat("cluster.rls.upstream_rq_tx_reset"); n < callers {
			t.Errorf("questions that Envoy has taken back: got %d, want many of %d", n, callers*each)
		}
		if n := s.Stat("cluster.rls.upstream_cx_close_notify"); n != 0 {
			t.Errorf("Envoy was told %d times to go away, want never", n)
		}
		if way.Transport == edge.Unary {
			// docs/reference/metrics.md has the codes. CANCEL, which other clients say, is not Envoy's.
			resets := func(code string) string {
				return stack.Metric(t, s.RLS, `slidegate_grpc_resets_total{by="client",code="`+code+`"}`)
			}
			process.Eventually(t, "a question that Envoy has taken back before it was answered", func() bool {
				s.Get("/", "x-api-key", "k")
				return resets("INTERNAL_ERROR") != "0" || resets("NO_ERROR") != "0"
			})
			if n := resets("CANCEL"); n != "0" {
				t.Errorf("questions that Envoy has taken back with CANCEL: got %q, want 0", n)
			}
		}

		redis.Resume()
		process.Eventually(t, "a decision", decides)
		process.Eventually(t, "ten decisions in a row", func() bool {
			for range 10 {
				if !decides() {
					return false
				}
			}
			return true
		})
		if n := stack.Metric(t, s.RLS, `slidegate_grpc_goaways_total{reason="flood"}`); way.Transport == edge.Unary && n != "0" {
			t.Errorf("connections that were closed as floods: got %q, want 0", n)
		}
	})
}

// TestEnvoyChecksHealth follows Envoy's health checks through a drain, a kill and a
// start.
func TestEnvoyChecksHealth(t *testing.T) {
	onEveryWay(t, func(t *testing.T, way edge.Way) {
		s := stack.Setup{
			Rules: endless, Way: way, Change: stack.With(noDecisionIs500, oftenChecked),
			// Far longer than the test.
			Env: map[string]string{"SLIDEGATE_DRAIN_NOT_SERVING": "true", stack.EnvDrainDelay: "10m"},
		}.Start(t)
		healthy := func(n uint64) func() bool {
			return func() bool { return s.Stat("cluster.rls.membership_healthy") == n }
		}
		for range 2 {
			before := s.Stat("cluster.rls.health_check.success")
			process.Eventually(t, "ten good checks", func() bool { return s.Stat("cluster.rls.health_check.success") >= before+10 })
			if !healthy(1)() {
				t.Error("Envoy does not take rls for healthy")
			}
			if err := s.RLS.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			process.Eventually(t, "Envoy to hear that rls is not to be asked", healthy(0))
			// Envoy calls it nevertheless, because there is no other instance.
			s.From("127.0.0.1").Want(200, 10, "/", "x-api-key", "k")
			s.RLS.Kill()
			if err := s.RLS.Start(); err != nil {
				t.Fatal(err)
			}
			process.Eventually(t, "Envoy to find rls again", healthy(1))
		}
		s.From("127.0.0.1").Want(200, 10, "/", "x-api-key", "k")
		s.WantAllDecided()
	})
}

// TestLargeMessages sends messages larger than a frame and than a window of rls. Each
// answer is larger than a frame. All answers at once are larger than the window of
// Envoy's connection.
func TestLargeMessages(t *testing.T) {
	eachTransport(t, func(t *testing.T, way edge.Way) {
		const (
			limits   = 44 // of at most 48, with the two of the key
			callers  = 16
			requests = 5
			frame    = 16384
			window   = 65535
		)
		name, text := strings.Repeat("a-long-name-", 6), strings.Repeat("text ", 3000)
		rules := strings.ReplaceAll(endless, "100000000", "1000") + `
  - key: wide
    rate_limit: {name: ` + name + `, window: 1h, requests: 1000}
    metadata: {text: "` + text + `"}
`
		var actions strings.Builder
		texts := make([]string, limits)
		for i := range limits {
			texts[i] = fmt.Sprintf("wide=%d", i)
			fmt.Fprintf(&actions, "                    - actions: [{generic_key: {descriptor_key: wide, descriptor_value: \"%d\"}}]\n", i)
		}
		search := "                      - generic_key: {descriptor_key: route, descriptor_value: search}\n"
		first := "                    - actions:\n" + search
		s := stack.Setup{
			Rules: rules, Way: way,
			Change: stack.With(smallWindows, map[string]string{first: actions.String() + first}),
		}.Start(t)

		key := strings.Repeat("k", 40_000)
		ask := stack.Limiter(t, s.RLS)
		asked := stack.Request(1, append(texts, "api_key="+key, "route=search,api_key="+key)...)
		if n := proto.Size(asked); n <= window {
			t.Fatalf("the question has %d bytes, want more than a window", n)
		}
		out, err := ask(append(texts, "api_key="+key, "route=search,api_key="+key)...)
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(out); n <= frame || n*callers <= window {
			t.Fatalf("the answer has %d bytes, want more than a frame, and %d of them more than a window", n, callers)
		}

		clients := s.Clients(callers)
		process.Concurrently(t, callers, func(i int) error {
			for range requests {
				got, err := clients[i].Try(t.Context(), "/search", "x-api-key", key)
				if err != nil {
					return err
				}
				if got.Status != http.StatusOK {
					return fmt.Errorf("got %d %q, want 200", got.Status, got.Header)
				}
			}
			return nil
		})
		s.WantAllDecided()
		out, err = ask(append(texts, "api_key="+key)...)
		if err != nil {
			t.Fatal(err)
		}
		if out.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(out.GetStatuses()) != limits+1 {
			t.Fatalf("got %v and %d statuses, want OK and %d", out.GetOverallCode(), len(out.GetStatuses()), limits+1)
		}
		var errs []error
		for i, st := range out.GetStatuses() {
			if got, want := st.GetLimitRemaining(), uint32(1000-callers*requests-2); got != want {
				errs = append(errs, fmt.Errorf("descriptor %d: %d remain, want %d", i+1, got, want))
			}
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// TestPings pings an idle connection more often than every ten seconds. grpc-go's own client
// would wait. So this test writes the frames itself.
func TestPings(t *testing.T) {
	t.Parallel()
	rls := stack.Setup{Rules: stack.PerKey}.Serve(t)
	if got := pings(t, rls, 10, 20*time.Millisecond); got == "" {
		t.Error("ten pings: got no GOAWAY, want one")
	}
}

// pings sends n pings, each a gap after the answer to the one before. It returns the
// debug data of a GOAWAY, if there is one.
func pings(t *testing.T, rls *edge.RLSServer, n int, gap time.Duration) string {
	t.Helper()
	conn, err := rls.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := framer.WritePing(false, [8]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatalf("ping %d: %v", i+1, err)
			}
			switch frame := frame.(type) {
			case *http2.PingFrame:
				answered = frame.IsAck()
			case *http2.GoAwayFrame:
				return string(frame.DebugData())
			}
		}
		// The gap is what the test is about.
		process.WaitUntil(time.Now().Add(gap))
	}
	return ""
}

// TestRequestIDs: a denial has the id of the request in Envoy's access log, with the files that
// Slidegate ships. The address has one request.
func TestRequestIDs(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 1}}
  - {key: subject, rate_limit: {name: per-subject, window: 1h, requests: 1}}
  - {key: in_flight, value: backend, rate_limit: {name: backend, window: 1h, requests: 1}}
`
	for _, config := range []string{stack.EdgeConfig, stack.SidecarConfig, stack.TLSConfig, stack.AuthorizationConfig, stack.InFlightConfig} {
		t.Run(filepath.Base(config), func(t *testing.T) {
			tiers := ""
			if config == stack.AuthorizationConfig {
				tiers = stack.CustomersWith("starter")
			}
			st := stack.FileSetup(t, config, rules, tiers, nil).Start(t)
			c := st.From("127.0.0.9")
			c.Get("/", "x-api-key", "zeta-key")
			if got := c.Get("/", "x-api-key", "zeta-key"); got.Status != http.StatusTooManyRequests {
				t.Fatalf("got %d %s, want 429", got.Status, got.Body)
			}
			entry, err := st.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["status"] == float64(http.StatusTooManyRequests) })
			if err != nil {
				t.Fatal(err)
			}
			var got insight.Denials
			if err := json.Unmarshal([]byte(stack.Page(t, st.RLS.Admin()+"/v1/denials")), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Denials) != 1 || got.Denials[0].RequestID == "" || got.Denials[0].RequestID != entry["request_id"] {
				t.Errorf("got %+v, want one denial of the request %v", got.Denials, entry["request_id"])
			}
		})
	}
}

// TestRequestIDsEverywhere: every shipped file that asks rls for limits sends the request's id with
// the calls that can be denied.
func TestRequestIDsEverywhere(t *testing.T) {
	files := 0
	for _, root := range []string{"../../envoy", "../../deploy"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text := tree.Read(t, strings.TrimPrefix(path, "../../"))
			_, calls, asks := strings.Cut(text, "rate_limit_service:")
			if !asks || filepath.Base(path) == "budgets-one-hop.yaml" { // there it only tells ends
				return nil
			}
			if files++; !strings.Contains(calls, `x-request-id`) || !strings.Contains(calls, `"%REQ(x-request-id)%"`) {
				t.Errorf("%s does not send x-request-id to rls", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 8 {
		t.Errorf("%d files ask for limits, want all", files)
	}
}
