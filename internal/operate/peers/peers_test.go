package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
)

const secret = "0123456789abcdef0123456789abcdef"

// A node is one instance on a port of this machine.
type node struct {
	*Peers
	address string
	logs    *observer.ObservedLogs
	others  []string // addresses in Redis, as the test writes them
	more    int
	asked   []string // what it was asked, by proven questions
}

// newNode starts an instance that answers each question with the denial of a rule of that name.
func newNode(t *testing.T, rule, secret string) *node {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	n := &node{logs: logs}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	n.address = server.Listener.Addr().String()
	n.Peers = New(Options{
		Secret: secret, Name: rule, Self: func() string { return n.address }, Log: zap.New(core),
		Others: func() ([]string, int) { return n.others, n.more },
	})
	mux.Handle("POST "+Path, n.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.asked = append(n.asked, r.Method+" "+r.URL.String())
		_ = json.NewEncoder(w).Encode(denial(rule))
	})))
	return n
}

func denial(rule string) insight.Denials {
	return insight.Denials{Denials: []insight.Denial{{Rule: rule}}}
}

// all asks all instances that n knows. It returns the rules that they denied, and what it says of those
// that did not answer.
func (n *node) all(t *testing.T) (rules []string, missing map[string]string) {
	t.Helper()
	got := Ask(t.Context(), n.Peers, "/v1/denials?rule=secret-rule", denial(n.o.Name), func(all []merge.Answer[insight.Denials]) insight.Denials {
		return merge.Denials(all, 0)
	})
	for _, d := range got.Denials {
		rules = append(rules, d.Rule)
	}
	slices.Sort(rules)
	missing = make(map[string]string)
	for _, i := range got.Instances.Missing() {
		missing[i.Name] = i.Error
	}
	return rules, missing
}

func TestAsk(t *testing.T) {
	a, b, c := newNode(t, "a", secret), newNode(t, "b", secret), newNode(t, "c", secret)
	a.others, a.more = []string{b.address, "", c.address, b.address, a.address}, 7
	rules, missing := a.all(t)
	if diff := cmp.Diff([]string{"a", "b", "c"}, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if len(missing) != 2 || missing["1 instance without an address"] == "" || missing["7 further instances"] != "an instance asks 64 others at most" {
		t.Errorf("missing: %v", missing)
	}
	if diff := cmp.Diff([]string{"GET /v1/denials?rule=secret-rule"}, b.asked); diff != "" {
		t.Errorf("b was asked (-want +got):\n%s", diff)
	}
	var none *Peers
	if got := Ask(t.Context(), none, "/v1/denials", denial("own"), nil); got.Denials[0].Rule != "own" || got.Instances != nil {
		t.Errorf("without peers: %v", got)
	}
}

// TestHostileAddress asks an address of an attacker. It gets nothing that it can read, and nothing that
// it answers is shown.
func TestHostileAddress(t *testing.T) {
	var mu sync.Mutex
	var received bytes.Buffer
	a := newNode(t, "a", secret)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	answers := map[string]http.HandlerFunc{
		"a lie": func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(denial("planted")) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"its question": func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
		"without end": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
	}
	var relayed *node
	answers["another instance's answer"] = func(w http.ResponseWriter, r *http.Request) {
		response, err := http.Post("http://"+relayed.address+Path, "", r.Body) //nolint:noctx // of a test
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		_, _ = io.Copy(w, response.Body)
	}
	relayed = newNode(t, "relayed", secret)
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				_ = r.Header.Write(&received)
				received.WriteString(r.URL.String())
				received.Write(body)
				mu.Unlock()
				r.Body = io.NopCloser(bytes.NewReader(body))
				answer(w, r)
			}))
			defer hostile.Close()
			a.others = []string{hostile.Listener.Addr().String()}
			rules, missing := a.all(t)
			if text := fmt.Sprint(missing); len(rules) != 1 || len(missing) != 1 || strings.Contains(text, "planted") {
				t.Errorf("shown: %v, %s", rules, text)
			}
		})
	}
	for _, text := range []string{secret, "Authorization", "Cookie", "secret-rule", "denials"} {
		if strings.Contains(received.String(), text) {
			t.Errorf("the hostile address has received %q", text)
		}
	}
	if len(relayed.asked) != 0 {
		t.Errorf("an instance has answered a question to another address: %v", relayed.asked)
	}
}

func TestWrongSecret(t *testing.T) {
	a, b := newNode(t, "a", secret), newNode(t, "b", strings.ToUpper(secret))
	a.others = []string{b.address}
	rules, missing := a.all(t)
	if len(rules) != 1 || missing[b.address] != "it does not prove that it has the secret of admin.peers_key_file" || len(b.asked) != 0 {
		t.Errorf("got %v, %v, asked %v", rules, missing, b.asked)
	}
	if b.logs.Len() != 1 || strings.Contains(fmt.Sprint(b.logs.All()), secret) {
		t.Errorf("the log: %v", b.logs.All())
	}
}

// TestMalformed has entries of Redis that are no addresses of instances. They are not asked, and the
// first one is logged.
func TestMalformed(t *testing.T) {
	a := newNode(t, "a", secret)
	a.others = []string{
		"x", "localhost:80", "http://127.0.0.1:80", "user:password@127.0.0.1:80", "127.0.0.1:80/path", "127.0.0.1:080", "127.0.0.1:0", "0.0.0.0:80",
		"[::]:80", "[::ffff:127.0.0.1]:80", "169.254.169.254:80", "[fe80::1%eth0]:80", "224.0.0.1:80", "127.0.0.1:80\r\nCookie: x", strings.Repeat("1", 65),
	}
	rules, missing := a.all(t)
	if len(rules) != 1 || len(missing) != 0 || a.logs.Len() != 1 {
		t.Errorf("got %v, missing %v, log %v", rules, missing, a.logs.All())
	}
	// An instance that others reach by a network asks no port of its own machine.
	a.address = "192.0.2.1:6070"
	a.others = []string{"127.0.0.1:6379"}
	if addresses, _, _ := a.Peers.others(); len(addresses) != 0 {
		t.Errorf("it would ask %v", addresses)
	}
	a.others = nil
	for n := range 70 {
		a.others = append(a.others, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 6070).String())
	}
	if addresses, _, more := a.Peers.others(); len(addresses) != 64 || more != 6 {
		t.Errorf("of 70 it asks %d, and says that there are %d more", len(addresses), more)
	}
}

// TestReplay sends a question twice, to another instance, and late.
func TestReplay(t *testing.T) {
	a, b := newNode(t, "a", secret), newNode(t, "b", secret)
	post := func(to *node, body []byte) (status int, answer string) {
		t.Helper()
		response, err := http.Post("http://"+to.address+Path, "", bytes.NewReader(body)) //nolint:noctx // of a test
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK {
			return response.StatusCode, string(data)
		}
		text, err := a.aead(answers, body[:saltBytes]).Open(nil, nil, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	ask := func(n byte, to string, at time.Time) []byte {
		text, _ := json.Marshal(question{to, at, "/v1/denials"})
		salt := bytes.Repeat([]byte{n}, saltBytes)
		return append(salt, a.aead(asks, salt).Seal(nil, nil, text, nil)...)
	}
	now := time.Now()
	first := ask(1, b.address, now)
	flipped := slices.Clone(first)
	flipped[len(flipped)-1] ^= 1
	for _, tt := range []struct {
		name   string
		body   []byte
		status int
		want   string
	}{
		{"the first", first, 200, "ok\n"},
		{"the same", first, 200, "it has seen the question"},
		{"for another", ask(2, a.address, now), 200, "the address is that of another instance"},
		{"an old one", ask(3, b.address, now.Add(-31*time.Second)), 200, "the clocks of the instances differ"},
		{"an early one", ask(4, b.address, now.Add(40*time.Second)), 200, "the clocks of the instances differ"},
		{"changed", flipped, 403, "This is for the instances"},
		{"empty", nil, 403, "This is for the instances"},
		{"short", first[:20], 403, "This is for the instances"},
		{"long", make([]byte, maxQuestion+1), 403, "This is for the instances"},
		{"an answer", append(first[:saltBytes:saltBytes], a.aead(answers, first[:saltBytes]).Seal(nil, nil, []byte("{}"), nil)...), 403, "This is for the instances"},
	} {
		if status, answer := post(b, tt.body); status != tt.status || !strings.HasPrefix(answer, tt.want) {
			t.Errorf("%s: got %d %q, want %d %q", tt.name, status, answer, tt.status, tt.want)
		}
	}
	if len(b.asked) != 1 {
		t.Errorf("it has answered %d times, want once", len(b.asked))
	}
}

// TestSeen remembers questions as long as they may be repeated, and a bounded number.
func TestSeen(t *testing.T) {
	var s seen
	start := time.Now()
	for _, step := range []struct {
		salt  string
		after time.Duration
		want  bool
	}{{"a", 0, true}, {"b", 59 * time.Second, true}, {"a", 60 * time.Second, false}, {"b", 2 * time.Minute, false}, {"c", 2 * time.Minute, true}, {"b", 4 * time.Minute, true}} {
		if got := s.first(step.salt, start.Add(step.after)); got != step.want {
			t.Errorf("%s after %v: got %v", step.salt, step.after, got)
		}
	}
	s = seen{}
	for n := range maxSeen {
		s.first(fmt.Sprint(n), start)
	}
	if s.first("one more", start) || !s.first("later", start.Add(time.Hour)) {
		t.Error("the number of questions is not bounded, or stays at its bound")
	}
}

// TestSilentInstance asks one that accepts and never answers, and one on which nothing listens.
func TestSilentInstance(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	a, b := newNode(t, "a", secret), newNode(t, "b", secret)
	a.others = []string{l.Addr().String(), closed.Addr().String(), b.address}
	rules, missing := a.all(t)
	if len(rules) != 2 || missing[l.Addr().String()] != "no answer within 1s" || !strings.HasSuffix(missing[closed.Addr().String()], "connection refused") {
		t.Errorf("got %v, missing %v", rules, missing)
	}
}
