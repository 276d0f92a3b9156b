package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A streamed is an API whose instance keeps ten denials.
type streamed struct {
	*insight.Insight
	*api
	rule *policy.Rule
}

func newStreamed(t *testing.T) *streamed {
	t.Helper()
	store := memstore.New(memstore.Options{SweepInterval: -1})
	t.Cleanup(func() { _ = store.Close() })
	rules := policy.NewRules(policy.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	err := rules.Add(policy.Rule{
		Domain: "edge", Path: []descriptors.Node{{Key: "user", AnyValue: true}}, Name: "per-user", Subject: "user",
		Terms: policy.Terms{Limits: []policy.Limit{{Limit: window.Limit{Hits: 10, Window: time.Minute}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	in := insight.New(insight.Options{
		Instance: "test", Denials: 10, PerSecond: 100_000, Rules: func() *policy.Rules { return rules }, Keeper: store, Store: "memory",
		Log: zap.NewNop(), Audit: zap.NewNop(),
	})
	t.Cleanup(func() { _ = in.Close() })
	return &streamed{in, newAPI(Pages{Insight: in, Access: testAccess(true)}), rules.All()[0]}
}

// deny records a denial of a user.
func (s *streamed) deny(user string) {
	req := &policy.Request{Domain: "edge", Descriptors: []policy.Descriptor{{Entries: descriptors.Descriptor{{Key: "user", Value: user}}, Cost: 1}}}
	v := &policy.Verdict{Shadowed: -1, Limits: []policy.LimitStatus{{Rule: s.rule, Limit: s.rule.Terms.Limits[0], Cost: 1}}}
	s.Denied(req, v, &v.Limits[0])
	s.Denials(insight.Filter{Limit: 1}) // moves it into the ring
}

// listen serves the API over HTTP/1.1 or over HTTP/2 without TLS, and returns its address.
func (s *streamed) listen(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	s.serve(mux)
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.WriteTimeout = 200 * time.Millisecond // streams live longer
	server.Start()
	t.Cleanup(func() { _ = s.Close(); server.Close() })
	return server.Listener.Addr().String()
}

// A reader reads one stream.
type reader struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
	resp  *http.Response
}

// follow opens a stream over a protocol, h1 or h2.
func follow(t *testing.T, protocol, address, query, last string) *reader {
	t.Helper()
	return followAs(t, protocol, address, query, http.Header{"Last-Event-Id": {last}})
}

// followAs is follow with headers.
func followAs(t *testing.T, protocol, address, query string, header http.Header) *reader {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "h1")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "h2")
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/denials/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &reader{t, bufio.NewScanner(resp.Body), resp.Body, resp}
}

// next returns the next denial, and false at the end of the stream.
func (r *reader) next() (d insight.Denial, ok bool) {
	r.t.Helper()
	for r.lines.Scan() {
		if data, ok := strings.CutPrefix(r.lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &d); err != nil {
				r.t.Fatal(err)
			}
			return d, true
		}
	}
	return d, false
}

// want checks the users of the next denials, with what was left out before each.
func (r *reader) want(users ...string) {
	r.t.Helper()
	for _, want := range users {
		d, ok := r.next()
		got := d.Subject
		if d.LeftOut > 0 {
			got += fmt.Sprint("+", d.LeftOut)
		}
		if !ok || got != want {
			r.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func onEachProtocol(t *testing.T, test func(t *testing.T, protocol string)) {
	t.Helper()
	for _, protocol := range []string{"h1", "h2"} {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

// TestStreamContinues reads denials, loses the connection, comes back with Last-Event-ID, and has
// each denial once. It is told how many are no longer kept.
func TestStreamContinues(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, protocol string) {
		s := newStreamed(t)
		address := s.listen(t)
		s.deny("before")
		first := follow(t, protocol, address, "", "")
		if got := first.resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type: got %q", got)
		}
		s.deny("a")
		s.deny("b")
		first.want("a", "b")
		_ = first.body.Close()
		s.deny("c")
		s.deny("d")
		second := follow(t, protocol, address, "", "3")
		second.want("c", "d")
		s.deny("e")
		second.want("e")
		_ = second.body.Close()
		for n := range 15 {
			s.deny(fmt.Sprint("u", n)) // 7 to 21
		}
		third := follow(t, protocol, address, "", "6")
		third.want("u5+5", "u6", "u7", "u8", "u9", "u10", "u11", "u12", "u13", "u14")
		follow(t, protocol, address, "?subject=u14&since=1h", "").want("u14")
		follow(t, protocol, address, "", "4711").want("u5") // of a process before this one
	})
}

// TestStreamLivesWithoutDenials waits longer than every timeout of the server between two denials.
func TestStreamLivesWithoutDenials(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, protocol string) {
		s := newStreamed(t)
		s.heartbeat, s.writeTimeout = 500*time.Millisecond, 50*time.Millisecond
		r := follow(t, protocol, s.listen(t), "", "")
		for beats := 0; beats < 2; {
			if !r.lines.Scan() {
				t.Fatalf("the stream ended after %d beats: %v", beats, r.lines.Err())
			}
			if r.lines.Text() == ": still here" {
				beats++
			}
		}
		s.deny("late")
		r.want("late")
	})
}

// TestHeartbeat reads a stream without denials for a minute.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreamed(t)
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.stream(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/denials/stream", nil), nil)
		}()
		time.Sleep(time.Minute + time.Second)
		cancel()
		<-done
		if got := strings.Count(w.Body.String(), ": still here\n\n"); got != 4 {
			t.Errorf("got %d beats in a minute, want 4", got)
		}
		if len(s.streams) != 0 {
			t.Error("the stream still has its place")
		}
	})
}

// TestTooManyStreams opens one more than the instance serves. When one ends, another has its place.
// Some places are for browsers alone.
func TestTooManyStreams(t *testing.T) {
	s := newStreamed(t)
	address := s.listen(t)
	all := make([]*reader, maxStreams-consoleStreams)
	for i := range all {
		all[i] = follow(t, "h2", address, "", "")
	}
	refused := follow(t, "h1", address, "", "")
	text, err := io.ReadAll(refused.resp.Body)
	if refused.resp.StatusCode != http.StatusServiceUnavailable || err != nil || refused.resp.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "There are 28 streams") {
		t.Errorf("got %d %v %s", refused.resp.StatusCode, err, text)
	}
	fromConsole := http.Header{"Sec-Fetch-Site": {"same-origin"}}
	for n := range consoleStreams + 1 {
		want := http.StatusOK
		if n == consoleStreams {
			want = http.StatusServiceUnavailable
		}
		if got := followAs(t, "h1", address, "", fromConsole).resp.StatusCode; got != want {
			t.Errorf("stream %d of the console is %d, want %d", n, got, want)
		}
	}
	_ = all[0].body.Close()
	waitFor(t, "a free place", func() bool {
		return follow(t, "h1", address, "", "").resp.StatusCode == http.StatusOK
	})
	s.deny("acme")
	all[1].want("acme")
}

// TestSlowStream has a client that does not read. The instance keeps a bounded number of denials
// for it, and ends the stream. Another client misses nothing.
func TestSlowStream(t *testing.T) {
	s := newStreamed(t)
	s.writeTimeout = 3 * time.Second
	address := s.listen(t)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1024)
	if _, err := io.WriteString(conn, "GET /v1/denials/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	good := follow(t, "h1", address, "", "")
	waitFor(t, "two streams", func() bool { return len(s.streams) == 2 })
	user := strings.Repeat("u", 100)
	read, told := 0, uint64(0)
	for n := 0; len(s.streams) == 2; n++ {
		s.deny(user)
		d, ok := good.next()
		if !ok {
			t.Fatal("the good stream ended")
		}
		if read, told = read+1, told+d.LeftOut; n > 1_000_000 {
			t.Fatal("the slow stream does not end")
		}
	}
	if newest := s.newest(); uint64(read) != newest || told != 0 {
		t.Errorf("the good stream has %d, and tells %d, of %d", read, told, newest)
	}
}

// TestTooSlowStream has a client that is further behind than streams allow. The stream tells why it
// ends, and has no place any more.
func TestTooSlowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreamed(t)
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder(), pause: 6 * time.Second}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.stream(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/denials/stream", nil), nil)
		}()
		synctest.Wait()
		time.Sleep(10 * time.Second) // the header is sent
		for range 10 {
			s.deny("acme")
		}
		<-done
		if body := w.Body.String(); !strings.Contains(body, ": this stream ends: the reader of a stream of denials is more than 10s behind") {
			t.Errorf("got %s", body)
		}
		if len(s.streams)+len(s.shared) != 0 {
			t.Error("the stream still has its place")
		}
	})
}

// A slowWriter takes a while for each write.
type slowWriter struct {
	*httptest.ResponseRecorder
	pause time.Duration
}

func (w *slowWriter) WriteString(text string) (int, error) {
	time.Sleep(w.pause)
	return w.ResponseRecorder.WriteString(text)
}

func (w *slowWriter) Write(text []byte) (int, error) { return w.WriteString(string(text)) }

// TestLongList asks for more denials than are kept, and for few. The list needs as much memory as one
// denial.
func TestLongList(t *testing.T) {
	s := newStreamed(t)
	for n := range 15 {
		s.deny(fmt.Sprint("u", n))
	}
	for query, want := range map[string]string{
		"":                           "u14 u13 u12 u11 u10 u9 u8 u7 u6 u5",
		"limit=100000":               "u14 u13 u12 u11 u10 u9 u8 u7 u6 u5",
		"limit=2":                    "u14 u13",
		"limit=100000&subject=u7":    "u7",
		"limit=5&subject=other":      "",
		"limit=100000&since=1h&x=%2": "400",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/denials?"+query, nil)
		r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4711"
		mux := http.NewServeMux()
		s.serve(mux)
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			if want != fmt.Sprint(w.Code) {
				t.Errorf("%s: got %d %s", query, w.Code, w.Body)
			}
			continue
		}
		var got insight.Denials
		if err := strictJSON(w.Body.Bytes(), &got); err != nil || got.Denials == nil {
			t.Errorf("%s: %v: %s", query, err, w.Body)
			continue
		}
		var users []string
		for _, d := range got.Denials {
			users = append(users, d.Subject)
		}
		if list := strings.Join(users, " "); list != want || got.Seen != 15 || got.Kept != 10 || got.Instance != "test" {
			t.Errorf("%s: got %s, want %s: %+v", query, list, want, got)
		}
	}
}

// TestStreamEndsWithTheInstance closes what streams follow.
func TestStreamEndsWithTheInstance(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, protocol string) {
		s := newStreamed(t)
		r := follow(t, protocol, s.listen(t), "", "")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.next(); ok || r.lines.Err() != nil {
			t.Errorf("the stream goes on: %v", r.lines.Err())
		}
	})
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
