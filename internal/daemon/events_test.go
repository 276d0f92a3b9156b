package daemon

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/events"
	"github.com/slidegate/slidegate/test/servers"
)

// dollarRules have a budget of 500 dollars a month.
const dollarRules = `domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: dollars, unit: month, requests_per_unit: 500000000, policy: calendar, currency: usd, budget: {reserve: 1000000, hold: 10m}}
`

// askBudget reserves a cost for a stream, or settles it if end says why the stream has ended.
func (r *testRun) askBudget(stream, end string, cost int) bool {
	r.t.Helper()
	all, md := fmt.Sprintf(`{"entries": [{"key": "api_key", "value": "%s"}], "hitsAddend": "%d"}`, usageKey, cost), []string{"x-slidegate-stream", stream}
	if end != "" {
		all, md = `{"entries": [{"key": "slidegate", "value": "end"}]}, `+all, append(md, "x-rls-end", end)
	}
	in := new(rlsv3.RateLimitRequest)
	if err := protojson.Unmarshal([]byte(`{"domain": "edge", "descriptors": [`+all+`]}`), in); err != nil {
		r.t.Fatal(err)
	}
	out, err := rlsv3.NewRateLimitServiceClient(dial(r.t, r.GRPC[0])).ShouldRateLimit(metadata.AppendToOutgoingContext(r.t.Context(), md...), in)
	if err != nil {
		r.t.Fatal(err)
	}
	return out.GetOverallCode() == rlsv3.RateLimitResponse_OK
}

// TestBudgetEventsOfInstances: two instances on one Redis give an event the same id, and both show what streams
// have reserved. A reset removes that, too.
func TestBudgetEventsOfInstances(t *testing.T) {
	server := servers.StartRedis(t)
	ids := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ids <- r.Header.Get("webhook-id") }))
	t.Cleanup(receiver.Close)
	loaded, _, err := settings.Load("", []string{"SLIDEGATE_EVENTS_WEBHOOK=" + receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := usageSettings(t)
	onRedis(t, &s, server.Addr())
	s.Events, s.Store.Timeout = loaded.Events, 2*time.Second
	write(t, s.Rules.Path, dollarRules)
	one, two := start(t, s), start(t, s)
	wantUsage := func(r *testRun, text string) {
		t.Helper()
		if _, got := get(t, "http://"+r.Admin+"/v1/usage?subject=acme"); !strings.Contains(got, text) {
			t.Errorf("usage has no %s: %s", text, got)
		}
	}
	if !one.askBudget("a", "", 450_000_000) || !two.askBudget("a", "via_upstream", 420_000_000) {
		t.Fatal("denied")
	}
	if !one.askBudget("b", "", 10_000_000) || !two.askBudget("c", "", 10_000_000) {
		t.Fatal("denied")
	}
	if first, second := <-ids, <-ids; first != second || first == "" {
		t.Errorf("the instances give one event the ids %q and %q", first, second)
	}
	size := func() string {
		t.Helper()
		n, err := server.Do("DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	keys := size()
	wantUsage(one, `"used":420000000,"reserved":20000000,"remaining":60000000`)
	wantUsage(two, `"used":420000000,"reserved":20000000,"remaining":60000000`)
	if got := size(); got != keys {
		t.Errorf("after a look at the usage Redis has %s keys, before it had %s", got, keys)
	}
	code, _, text := exchange(t, http.MethodPost, "http://"+two.Admin+"/v1/reset", `{"subject": "acme", "reason": "ticket 4711"}`,
		"Authorization", "Bearer a-token-that-may-reset-all-limits", "Content-Type", "application/json")
	if code != http.StatusOK {
		t.Fatal(code, text)
	}
	wantUsage(one, `"used":0,"remaining":500000000`)
}

// TestBudgetEvents: the receiver of a webhook learns that 80 % and then all of a customer's budget is spent, with
// a signature and without the customer's key. rls usage and the metrics say the same.
func TestBudgetEvents(t *testing.T) {
	type call struct {
		header http.Header
		body   string
	}
	calls := make(chan call, 10)
	fails := true
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if fails { // the first call alone
			fails = false
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		calls <- call{r.Header, string(body)}
	}))
	t.Cleanup(receiver.Close)
	key := []byte("a key that signs the events")
	file := filepath.Join(t.TempDir(), "secret")
	write(t, file, "whsec_"+base64.StdEncoding.EncodeToString(key)+"\n")
	loaded, _, err := settings.Load("", []string{"SLIDEGATE_EVENTS_WEBHOOK=" + receiver.URL + "/hook", "SLIDEGATE_EVENTS_WEBHOOK_SECRET_FILE=" + file})
	if err != nil {
		t.Fatal(err)
	}
	s := usageSettings(t)
	s.Events = loaded.Events
	write(t, s.Rules.Path, dollarRules)
	r := start(t, s)
	ask := func(stream, end string, cost int) bool { t.Helper(); return r.askBudget(stream, end, cost) }
	want := func(kind string, threshold int, spent uint64) {
		t.Helper()
		got := <-calls
		var e events.Event
		if err := json.Unmarshal([]byte(got.body), &e); err != nil {
			t.Fatal(err)
		}
		if b := &e.Data; e.Type != kind || b.Threshold != threshold || b.Spent != spent || b.Reserved != 0 || b.Subject != "acme" || b.Rule != "dollars" || b.Currency != "usd" || b.Limit != 500_000_000 {
			t.Errorf("got %s", got.body)
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", got.header.Get("webhook-id"), got.header.Get("webhook-timestamp"), got.body)
		if sign := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); got.header.Get("webhook-signature") != sign {
			t.Errorf("got the signature %q, want %q", got.header.Get("webhook-signature"), sign)
		}
		if strings.Contains(got.body, usageKey) {
			t.Errorf("the event has the API key: %s", got.body)
		}
	}
	if !ask("one", "", 450_000_000) || !ask("one", "via_upstream", 420_000_000) {
		t.Fatal("denied")
	}
	want("budget.nearly_spent", 80, 420_000_000)
	if !ask("two", "", 80_000_000) {
		t.Fatal("denied")
	}
	if _, text := get(t, "http://"+r.Admin+"/v1/usage?subject=acme"); !strings.Contains(text, `"used":420000000,"reserved":80000000,"remaining":0`) {
		t.Errorf("usage: %s", text)
	}
	if !ask("two", "via_upstream", 80_000_000) {
		t.Fatal("denied")
	}
	want("budget.spent", 100, 500_000_000)
	if ask("three", "", 1_000_000) {
		t.Fatal("a spent budget admits a request")
	}
	r.wantMetrics(
		`slidegate_budget_events_total{domain="edge",rule="dollars",threshold="80"} 1`,
		`slidegate_budget_events_total{domain="edge",rule="dollars",threshold="100"} 1`,
		`slidegate_budget_requests_total{domain="edge",outcome="settled",rule="dollars"} 2`,
		`slidegate_budget_units_total{domain="edge",outcome="reserved",rule="dollars"} 5.3e+08`,
		`slidegate_webhook_events_total{result="failed"} 1`,
	)
	if n := r.logs.FilterMessage("a budget has reached a threshold").Len(); n != 2 {
		t.Errorf("the log has %d lines of events, want 2", n)
	}
}
