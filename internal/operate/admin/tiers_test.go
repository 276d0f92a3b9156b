package admin

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// fakeTiers is a Tiers that answers from maps and records changes.
type fakeTiers struct {
	cached, source map[tier.Key]tier.Inspection
	changes        []tier.Change
}

func (*fakeTiers) Known() iter.Seq[*tier.Subject] { return func(func(*tier.Subject) bool) {} }

func (k *fakeTiers) Look(key tier.Key) tier.Inspection { return k.cached[key] }

func (k *fakeTiers) Lookup(_ context.Context, key tier.Key) (tier.Inspection, error) {
	i, ok := k.source[key]
	if !ok {
		return i, errors.New("the source is away")
	}
	return i, nil
}

func (k *fakeTiers) Invalidate(c tier.Change) { k.changes = append(k.changes, c) }

func ask(t *testing.T, h http.Handler, method, path, contentType, body string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Set("Authorization", "Bearer "+actToken)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	out, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, strings.TrimSpace(string(out))
}

func TestTierLookup(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 4)
	acme := &tier.Subject{ID: "acme", Tier: "pro", Extra: &tier.Extra{
		Overrides: map[string]tier.Override{
			"per-key": {Limits: []window.Limit{{Hits: 7, Window: 90 * time.Second}}},
			"export":  {Unlimited: true},
		},
		Labels: map[string]string{"region": "eu"},
	}}
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Tiers: &fakeTiers{
		cached: map[tier.Key]tier.Inspection{
			{Digest: digest}: {Cached: true, Subject: &tier.Subject{ID: "acme", Tier: "free"}, Age: 90 * time.Second},
			{ID: "zeta"}:     {Cached: true, Age: time.Second, Fresh: true},
		},
		source: map[tier.Key]tier.Inspection{
			{Digest: digest}: {Cached: true, Subject: acme, Fresh: true},
			{ID: "gone"}:     {Cached: true, Subject: &tier.Subject{ID: "gone", Disabled: true}, Fresh: true},
		},
	}})
	for _, tt := range []struct {
		path   string
		status int
		answer string
	}{
		{"digest=" + strings.ToUpper(digest), 200, `{"held":{"known":true,"subject":"acme","tier":"free","age_seconds":90,"fresh":false},` +
			`"source":{"known":true,"subject":"acme","tier":"pro","overrides":{"export":"unlimited","per-key":"7 per 90s"},"labels":{"region":"eu"},"age_seconds":0,"fresh":true}}`},
		{"id=zeta", 200, `{"held":{"known":false,"age_seconds":1,"fresh":true},"source":null,"error":"the source is away"}`},
		{"id=gone", 200, `{"held":null,"source":{"known":true,"subject":"gone","disabled":true,"age_seconds":0,"fresh":true}}`},
		{"", 400, "name one of digest and id"},
		{"id=a&digest=" + digest, 400, "name one of digest and id"},
		{"digest=abc", 400, "digest: not a digest of 64 hex digits, as rls digest prints it"},
		{`digest={"all":true}`, 400, "digest: not a digest of 64 hex digits, as rls digest prints it"},
	} {
		status, answer := ask(t, h, http.MethodGet, "/v1/tiers/lookup?"+tt.path, "", "")
		if status != tt.status || !strings.Contains(answer, tt.answer) {
			t.Errorf("%s: %d %s\nwant %d %s", tt.path, status, answer, tt.status, tt.answer)
		}
	}
}

func TestTierInvalidate(t *testing.T) {
	const asJSON = "application/json"
	digest := strings.Repeat("0123456789abcdef", 4)
	k := new(fakeTiers)
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Tiers: k, Access: testAccess(true)})
	for _, tt := range []struct {
		contentType, body string
		status            int
	}{
		{asJSON, `{"digest":"` + digest + `"}`, 204},
		{asJSON + "; charset=utf-8", `{"subject":"acme"}`, 204},
		{asJSON, `{"all":true}`, 204},
		{asJSON, `{}`, 400},
		{asJSON, ``, 400},
		{asJSON, `{"all":false}`, 400},
		{asJSON, `{"subject":"` + strings.Repeat("x", maxBody) + `"}`, 413},
		{"text/plain", `{"all":true}`, 415},
		{"", `{"all":true}`, 415},
	} {
		if status, answer := ask(t, h, http.MethodPost, "/v1/tiers/invalidate", tt.contentType, tt.body); status != tt.status {
			t.Errorf("%.40s as %q: %d %s, want %d", tt.body, tt.contentType, status, answer, tt.status)
		}
	}
	if diff := cmp.Diff([]tier.Change{{Digest: digest}, {ID: "acme"}, {}}, k.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if status, _ := ask(t, h, http.MethodGet, "/v1/tiers/invalidate", "", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d, want 405", status)
	}
}

// TestWithoutTiers proves that the pages about tiers need tiers.
func TestWithoutTiers(t *testing.T) {
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Access: testAccess(true)})
	paths := []string{"/v1/tiers/lookup?id=a", "/v1/tiers/invalidate"}
	if i := slices.IndexFunc(paths, func(p string) bool {
		status, _ := ask(t, h, http.MethodGet, p, "", "")
		return status != http.StatusNotFound
	}); i >= 0 {
		t.Errorf("%s is there", paths[i])
	}
}
