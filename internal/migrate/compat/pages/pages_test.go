package pages

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/test/tree"
)

// rulesOf loads rules from text.
func rulesOf(t *testing.T, text string, change func(*settings.Settings)) func() (*rules.Rules, func(string) bool) {
	t.Helper()
	s := settings.Default()
	s.Rules.Path, s.Tiers.Source = filepath.Join(t.TempDir(), "rules.yaml"), settings.TiersNone
	tree.Write(t, s.Rules.Path, text)
	if change != nil {
		change(&s)
	}
	g, err := config.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return func() (*rules.Rules, func(string) bool) { return g.Rules, g.Secrets.Hides }
}

const fromReference = `
domain: edge
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 20}
    shadow_mode: true
    descriptors:
      - key: b.c
        value: "x:y|z*"
        rate_limit: {unit: year, requests_per_unit: 4294967295}
        quota_mode: true
  - key: u
    value: "foo bar"
    rate_limit: {unlimited: true}
  - key: u
    value: "1.2.3.0/24"
    detailed_metric: true
    rate_limit: {unit: week, requests_per_unit: 3, name: n}
  - key: none
  - key: dd
    value: ""
    rate_limit: {unit: second, requests_per_unit: 0}
`

// TestLinesOfTheReference has the lines that envoyproxy/ratelimit prints for the same file, sorted.
// Its settings SHADOW_MODE and QUOTA_MODE do not change them.
func TestLinesOfTheReference(t *testing.T) {
	want := []string{
		"edge.a.b.c_x:y|z*: unit=YEAR requests_per_unit=4294967295, shadow_mode: false, quota_mode: true\n",
		"edge.a: unit=MINUTE requests_per_unit=20, shadow_mode: true, quota_mode: false\n",
		"edge.dd: unit=SECOND requests_per_unit=0, shadow_mode: false, quota_mode: false\n",
		"edge.u_1.2.3.0/24: unit=WEEK requests_per_unit=3, shadow_mode: false, quota_mode: false\n",
		"edge.u_foo bar: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n",
	}
	for _, all := range []bool{false, true} {
		rules := rulesOf(t, fromReference, func(s *settings.Settings) { s.Rules.ShadowMode, s.DropIn.QuotaMode = all, all })
		if diff := cmp.Diff(want, Lines(rules())); diff != "" {
			t.Errorf("for all rules: %v (-want +got):\n%s", all, diff)
		}
	}
}

// TestLinesOfOurOwn has what envoyproxy/ratelimit has no word for.
func TestLinesOfOurOwn(t *testing.T) {
	const text = `
domain: own
descriptors:
  - key: evil
    value: "x\ny: unit=SECOND"
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: several
    rate_limit:
      limits: [{window: 1m30s, requests: 5}, {window: 14d, requests: 6}, {window: 1500ms, requests: 7}]
  - key: api_key
    value: hush-hush
    rate_limit: {unit: month, requests_per_unit: 1}
  - key: x-api-key
    rate_limit:
      unit: day
      requests_per_unit: 2
      by_tier: {free: {unit: hour, requests_per_unit: 3}, pro: {unlimited: true}}
`
	rules := rulesOf(t, text, func(s *settings.Settings) {
		s.Tiers.Source, s.Tiers.Path = settings.TiersFile, filepath.Join(filepath.Dir(s.Rules.Path), "tiers.yaml")
		tree.Write(t, s.Tiers.Path, "tiers: [free, pro]\ndefault: free\n")
	})
	const domain, end = "own.", ", shadow_mode: false, quota_mode: false\n"
	want := []string{
		domain + "api_key_***: unit=MONTH requests_per_unit=1" + end,
		domain + `evil_x\ny: unit=SECOND: unit=DAY requests_per_unit=1` + end,
		domain + "several: unit=SECOND unit_multiplier=90 requests_per_unit=5" + end,
		domain + "several: unit=WEEK unit_multiplier=2 requests_per_unit=6" + end,
		domain + "several: window=1.5s requests_per_unit=7" + end,
		domain + "x-api-key: tier=free unit=HOUR requests_per_unit=3" + end,
		domain + "x-api-key: tier=pro unit=UNKNOWN requests_per_unit=0" + end,
		domain + "x-api-key: unit=DAY requests_per_unit=2" + end,
	}
	if diff := cmp.Diff(want, Lines(rules())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPages asks for each page as a stranger on the network does.
func TestPages(t *testing.T) {
	h := Handler(rulesOf(t, fromReference, nil))
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, nil)
		r.Host = "elsewhere.example"
		h.ServeHTTP(w, r)
		return w
	}
	for path, want := range map[string]string{
		"/": list, "/metrics": list, "/v1/tiers/invalidate": list, "/v1/tiers/lookup?id=a": list, "/foo/bar": list,
		"/rlconfig": strings.Join(Lines(rulesOf(t, fromReference, nil)()), ""),
	} {
		if w := get(http.MethodGet, path); w.Code != http.StatusOK || w.Body.String() != want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %q %q, want %q", path, w.Code, w.Header().Get("Content-Type"), w.Body, want)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap"} {
		if w := get(http.MethodGet, path); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/", "/rlconfig", "/stats", "/v1/tiers/invalidate", "/debug/pprof/symbol"} {
			if w := get(method, path); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d, want 405", method, path, w.Code)
			}
		}
	}
	stats := get(http.MethodGet, "/stats").Body.String()
	cmdline, memstats, _ := strings.Cut(strings.TrimPrefix(stats, "cmdline: "), "\nmemstats: ")
	var args []string
	var memory struct{ Alloc, NumGC, HeapAlloc uint64 }
	if err := json.Unmarshal([]byte(cmdline), &args); err != nil || len(args) == 0 {
		t.Errorf("/stats: cmdline %q: %v", cmdline, err)
	}
	if err := json.Unmarshal([]byte(memstats), &memory); err != nil || memory.HeapAlloc == 0 {
		t.Errorf("/stats: memstats %q: %v", memstats, err)
	}
}

// TestNoRules has an empty page.
func TestNoRules(t *testing.T) {
	h := Handler(func() (*rules.Rules, func(string) bool) {
		return rules.NewRules(rules.Identity{}), func(string) bool { return false }
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/rlconfig", nil))
	if w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("%d %q, want 200 and nothing", w.Code, w.Body)
	}
}
