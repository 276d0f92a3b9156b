package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/core/grant"
	programs "github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// TestGrantsOfInstances: two instances on one Redis honour a grant that one of them got, within a second,
// and its revocation. Values in Redis that are no grants change nothing.
func TestGrantsOfInstances(t *testing.T) {
	server := servers.StartRedis(t)
	s := usageSettings(t)
	onRedis(t, &s, server.Addr())
	s.Store.Timeout = 2 * time.Second
	all := []*testRun{start(t, s), start(t, s)}
	passes := func(r *testRun) bool {
		t.Helper()
		answer, err := r.ask(`{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "` + usageKey + `"}]}]}`)
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetOverallCode() == rlsv3.RateLimitResponse_OK
	}
	post := func(r *testRun, method, path, body string) (int, string) {
		code, _, text := exchange(t, method, "http://"+r.Admin+path, body, "Authorization", "Bearer a-token-that-may-reset-all-limits", "Content-Type", "application/json")
		return code, text
	}
	within := func(what string, ok func() bool) {
		t.Helper()
		begin := time.Now()
		waitFor(t, what, ok)
		t.Logf("%s after %v", what, time.Since(begin).Round(time.Millisecond))
	}
	for range 3 { // pro has 3 an hour
		if !passes(all[0]) {
			t.Fatal("denied at once")
		}
	}
	if passes(all[0]) || passes(all[1]) {
		t.Fatal("the limit is not in force")
	}
	body := `{"subject": "acme", "rule": "api_key", "factor": 2, "until": "2h", "reason": "ticket 4711"}`
	code, text := post(all[0], http.MethodPost, "/v1/grants", body)
	var g grant.Grant
	if err := json.Unmarshal([]byte(text), &g); code != http.StatusOK || err != nil {
		t.Fatal(code, text, err)
	}
	within("the other instance has the grant", func() bool { return passes(all[1]) })
	if !passes(all[0]) || !passes(all[1]) || passes(all[0]) || passes(all[1]) {
		t.Error("the instances do not share the limit of 6")
	}
	for _, page := range []string{"/v1/grants", "/v1/usage?subject=acme"} {
		if code, text := get(t, "http://"+all[1].Admin+page); code != http.StatusOK || !strings.Contains(text, g.ID) || !strings.Contains(text, "ticket 4711") {
			t.Errorf("%s: %d %s", page, code, text)
		}
	}
	if code, text := post(all[1], http.MethodPost, "/v1/explain", `{"descriptors": ["api_key=`+usageKey+`"]}`); code != http.StatusOK || !strings.Contains(text, "6 per 1h") || !strings.Contains(text, "by ") {
		t.Errorf("explain: %d %s", code, text)
	}
	for method, path := range map[string]string{http.MethodPost: "/v1/grants", http.MethodDelete: "/v1/grants/" + g.ID} {
		if code, _, text := exchange(t, method, "http://"+all[0].Admin+path, body, "Content-Type", "application/json"); code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", method, code, text)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	key := s.Store.Redis.KeyPrefix + "grants"
	if ttl := client.PTTL(t.Context(), key).Val(); ttl <= time.Hour || ttl > 2*time.Hour+time.Second {
		t.Errorf("the grants expire in %v", ttl)
	}
	for _, hostile := range []string{"0123456789abcdefnonsense", strings.Repeat("x", 2<<20)} {
		lines := all[1].logs.FilterMessageSnippet("the grants that instances share").Len()
		client.Set(t.Context(), key, hostile, 0)
		waitFor(t, "a line about the value", func() bool {
			return all[1].logs.FilterMessageSnippet("the grants that instances share").Len() > lines
		})
		if code, text := get(t, "http://"+all[1].Admin+"/v1/grants"); code != http.StatusOK || !strings.Contains(text, g.ID) {
			t.Errorf("the last known grants are gone: %s", text)
		}
	}
	if code, text := post(all[1], http.MethodDelete, "/v1/grants/"+g.ID, ""); code != http.StatusOK {
		t.Fatalf("revoking: %d %s", code, text)
	}
	within("the first instance has the revocation", func() bool {
		_, text := get(t, "http://"+all[0].Admin+"/v1/grants")
		return !strings.Contains(text, g.ID)
	})
	for message, r := range map[string]*testRun{"an operator has granted more of a limit": all[0], "an operator has revoked a grant": all[1]} {
		if r.logs.FilterMessage(message).Len() != 1 {
			t.Errorf("the log lacks %q", message)
		}
	}
}

// TestGrantsWithoutRedis: while Redis is unavailable, the last known grants stay, and none can be made.
func TestGrantsWithoutRedis(t *testing.T) {
	server := servers.StartRedis(t)
	s := usageSettings(t)
	onRedis(t, &s, server.Addr())
	s.Store.OnError = "local"
	r := start(t, s)
	post := func(reason string) (int, string) {
		code, _, text := exchange(t, http.MethodPost, "http://"+r.Admin+"/v1/grants", fmt.Sprintf(`{"subject": "acme", "rule": "api_key", "factor": 2, "until": "1h", "reason": %q}`, reason),
			"Authorization", "Bearer a-token-that-may-reset-all-limits", "Content-Type", "application/json")
		return code, text
	}
	if code, text := post("first"); code != http.StatusOK {
		t.Fatal(code, text)
	}
	server.Stop()
	if !programs.Poll(20*time.Second, func() bool { code, _ := post("second"); return code == http.StatusServiceUnavailable }) {
		t.Error("a grant was made without Redis")
	}
	if _, text := get(t, "http://"+r.Admin+"/v1/grants"); !strings.Contains(text, "first") {
		t.Errorf("the grant is gone: %s", text)
	}
	passed := 0
	for range 10 {
		answer, err := r.ask(`{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "` + usageKey + `"}]}]}`)
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetOverallCode() == rlsv3.RateLimitResponse_OK {
			passed++
		}
	}
	if passed != 6 {
		t.Errorf("%d pass without Redis, want those of the grant", passed)
	}
}
