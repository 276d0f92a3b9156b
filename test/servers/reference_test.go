package servers

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestReference starts the real envoyproxy/ratelimit and uses each of its ports.
func TestReference(t *testing.T) {
	s := StartReference(t, ReferenceOptions{Redis: Redis(t), Rules: `
domain: shop
descriptors:
  - key: client
    rate_limit: {unit: day, requests_per_unit: 1}
`})
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		resp, err := http.Post(s.HTTP()+"/json", "application/json", strings.NewReader(
			`{"domain": "shop", "descriptors": [{"entries": [{"key": "client", "value": "ada"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("call %d: got %d, want %d", i+1, resp.StatusCode, want)
		}
	}
	resp, err := http.Get(s.Debug() + "/rlconfig")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "shop.client: unit=DAY requests_per_unit=1") {
		t.Errorf("/rlconfig: got %q, %v", body, err)
	}
	s.Terminate()
	s.Start()
	if out, err := CheckWithReference(t, filepath.Dir(s.RulesFile())); err != nil {
		t.Errorf("the reference refuses its own rules: %v\n%s", err, out)
	}
	s.WriteRules("domain: shop\ndescriptors: [{key: client, rate_limit: {unit: fortnight}}]\n")
	if out, err := CheckWithReference(t, filepath.Dir(s.RulesFile())); err == nil {
		t.Errorf("the reference accepts a unit that does not exist:\n%s", out)
	}
}
