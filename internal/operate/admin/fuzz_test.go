package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzAPI asks the paths of the API with any query, token and body. An error repeats
// no text that is long enough to be an API key, and no answer is a 500.
func FuzzAPI(f *testing.F) {
	f.Add("denials", "since=5m&shadow=only", "Bearer x", "")
	f.Add("denials", "", "bearer	", "")
	f.Add("usage", "subject=sk_planted_0123456789&subject=a", "", "")
	f.Add("usage", "sk_planted_0123456789=%zz", "", "")
	f.Add("rules", "limit=1000", "", "")
	f.Add("top", "minutes=sk_planted_0123456789", "", "")
	f.Add("explain", "", "", `{"descriptors": ["a=b", {"entries": [{"key": "a"}]}], "sk_planted_0123456789": 1}`)
	f.Add("reset", "", "", `{"subject": ["sk_planted_0123456789"]}`)
	h := Handler(allPages(f))
	f.Fuzz(func(t *testing.T, path, query, authorization, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/", strings.NewReader(body))
		if body == "" {
			r.Method = http.MethodGet
		}
		r.URL.Path, r.URL.RawQuery, r.Host = "/v1/"+path, query, "localhost"
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || w.Code >= 400 && strings.Contains(w.Body.String(), "sk_planted_0123456789") {
			t.Errorf("%s %s?%s: %d %s", r.Method, r.URL.Path, query, w.Code, w.Body)
		}
	})
}
