package extauthz

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// get sends a request over HTTP as a proxy does. Write the names of fields in canonical form.
func (s *testService) get(t testing.TB, target string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Header.Set("X-Original-Method", http.MethodGet)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.HTTPHandler(http.NotFoundHandler()).ServeHTTP(w, r)
	return w
}

func TestHTTP(t *testing.T) {
	const noStore = "Cache-Control"
	problem := func(fields http.Header) http.Header {
		fields[noStore], fields["Content-Type"] = []string{"no-store"}, []string{"application/problem+json"}
		return fields
	}
	challenges := func(bearerError string) []string {
		return []string{`ApiKey realm="api"`, `Bearer realm="api"` + bearerError, `Basic realm="api"`}
	}
	invalid := challenges(`, error="invalid_token"`)
	acme := func(more http.Header) http.Header {
		h := http.Header{noStore: {"no-store"}, "X-Subject-Id": {"acme"}, "X-Tier": {"pro"}, "X-Region": {"eu"}}
		for name, values := range more {
			h[name] = values
		}
		return h
	}
	for _, tt := range []struct {
		name, target string
		fields       []string
		status       int
		header       http.Header
	}{
		{"authenticated", "/authz", []string{"X-Api-Key: acme-key"}, 200, acme(nil)},
		{"a header without a value is empty", "/authz", []string{"X-Api-Key: hobby-key", "X-Region: eu"}, 200, http.Header{
			noStore: {"no-store"}, "X-Subject-Id": {"hobby"}, "X-Tier": {"free"}, "X-Region": {""}, "X-Envoy-Auth-Headers-To-Remove": {"x-region"},
		}},
		{"anonymous", "/authz?anonymous=true", nil, 200, http.Header{
			noStore: {"no-store"}, "X-Subject-Id": {""}, "X-Tier": {"free"}, "X-Region": {""}, "X-Envoy-Auth-Headers-To-Remove": {"x-subject-id,x-region"},
		}},
		{"limits", "/authz?domain=edge&descriptors=api_key", []string{"X-Api-Key: acme-key"}, 200, acme(http.Header{
			"Ratelimit": {`"per-key";r=499;t=60`}, "Ratelimit-Policy": {`"per-key";q=500;w=60`},
		})},
		{"the key in the original URI", "/authz", []string{"X-Original-Uri: /a?api_key=acme-key"}, 200, acme(nil)},
		{"the key in the forwarded URI", "/authz", []string{"X-Forwarded-Uri: /a?api_key=acme-key"}, 200, acme(nil)},
		{"both and equal", "/authz", []string{"X-Forwarded-Uri: /a?api_key=acme-key", "X-Original-Uri: /a?api_key=acme-key"}, 200, acme(nil)},
		{"both and different", "/authz", []string{"X-Forwarded-Uri: /a", "X-Original-Uri: /a?api_key=acme-key"}, 401, problem(http.Header{"Www-Authenticate": invalid})},
		{"two of one", "/authz", []string{"X-Original-Uri: /a", "X-Original-Uri: /a?api_key=acme-key"}, 401, problem(http.Header{"Www-Authenticate": invalid})},
		{"missing", "/authz", nil, 401, problem(http.Header{"Www-Authenticate": challenges("")})},
		{"the query of the context is no credential", "/authz?api_key=acme-key", nil, 401, problem(http.Header{"Www-Authenticate": challenges("")})},
		{"unknown", "/authz?denied_status=403", []string{"X-Api-Key: unknown"}, 401, problem(http.Header{"Www-Authenticate": invalid, "X-Authz-Status": {"401"}})},
		{"two keys", "/authz", []string{"X-Api-Key: acme-key", "X-Api-Key: acme-key"}, 401, problem(http.Header{"Www-Authenticate": invalid})},
		{"disabled", "/authz", []string{"X-Api-Key: gone-key"}, 403, problem(http.Header{})},
		{"limited", "/authz?domain=edge&descriptors=api_key&cost=501", []string{"X-Api-Key: acme-key"}, 429, problem(http.Header{
			"Ratelimit": {`"per-key";r=500`}, "Ratelimit-Policy": {`"per-key";q=500;w=60`}, "X-Should-Retry": {"false"},
		})},
		{"limited, for nginx", "/authz?domain=edge&descriptors=api_key&cost=501&denied_status=403", []string{"X-Api-Key: acme-key"}, 403, problem(http.Header{
			"Ratelimit": {`"per-key";r=500`}, "Ratelimit-Policy": {`"per-key";q=500;w=60`}, "X-Authz-Status": {"429"}, "X-Should-Retry": {"false"},
		})},
		{"a parameter twice", "/authz?domain=edge&domain=x", []string{"X-Api-Key: acme-key"}, 500, problem(http.Header{})},
		{"a query that cannot be read", "/authz?domain=%zz", []string{"X-Api-Key: acme-key"}, 500, problem(http.Header{})},
		{"a status that is no denial", "/authz?denied_status=200", nil, 500, problem(http.Header{})},
		{"no status", "/authz?denied_status=x", nil, 500, problem(http.Header{})},
		{"below: the client's path", "/authz/a?api_key=acme-key", nil, 200, acme(nil)},
		{"below: there is no context", "/authz/?anonymous=true", nil, 401, problem(http.Header{"Www-Authenticate": challenges("")})},
		{"below: X-Original-Uri has no effect", "/authz/", []string{"X-Original-Uri: /a?api_key=acme-key"}, 401, problem(http.Header{"Www-Authenticate": challenges("")})},
		{"below: a path that is not clean", "/authz//..//authz?anonymous=true", []string{"X-Api-Key: acme-key"}, 200, acme(nil)},
		{"below: an escaped path", "/authz/%2e%2E/authz?anonymous=true", nil, 401, problem(http.Header{"Www-Authenticate": challenges("")})},
		{"elsewhere", "/authzed", []string{"X-Api-Key: acme-key"}, 404, http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newService(t, nil, nil).get(t, tt.target, tt.fields...)
			if w.Code != tt.status {
				t.Errorf("status = %d, want %d", w.Code, tt.status)
			}
			if diff := cmp.Diff(tt.header, w.Header()); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			if problem := strings.HasPrefix(w.Body.String(), `{"type":`); problem != (tt.header.Get("Content-Type") == "application/problem+json") {
				t.Errorf("body = %s", w.Body)
			}
		})
	}
}

func TestHTTPStoreThatCannotDecide(t *testing.T) {
	w := newService(t, failingStore, nil).get(t, "/authz?domain=edge&denied_status=403", "X-Api-Key: acme-key")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d, %v, want 503 with Retry-After", w.Code, w.Header())
	}
}

// TestHTTPOriginal reads the client's request from the headers of the proxy.
func TestHTTPOriginal(t *testing.T) {
	for _, tt := range []struct {
		fields []string
		want   request
	}{
		{[]string{"X-Original-Method: GET"}, request{method: "GET", host: "example.com"}},
		{[]string{"X-Original-Method: POST", "X-Original-URI: /a?b"}, request{method: "POST", host: "example.com", path: "/a?b"}},
		{[]string{"X-Forwarded-Method: PUT", "X-Forwarded-Uri: /c", "X-Forwarded-Host: h"}, request{method: "PUT", host: "h", path: "/c"}},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/authz", nil)
		for _, f := range tt.fields {
			name, value, _ := strings.Cut(f, ": ")
			r.Header.Add(name, value)
		}
		got := request{method: r.Method, host: r.Host, fields: fields{http: r.Header}}
		if result, _ := got.readOriginal("route=x"); result != Authenticated || !slices.Contains(got.context, text{"route", "x"}) {
			t.Errorf("%q: %v, %v", tt.fields, result, got.context)
		}
		if got.method != tt.want.method || got.host != tt.want.host || got.path != tt.want.path {
			t.Errorf("%q: %+v, want %+v", tt.fields, got, tt.want)
		}
	}
	// A web page cannot send these headers, but every proxy does.
	none := request{fields: fields{http: http.Header{"X-Api-Key": {"acme-key"}, "X-Forwarded-For": {"192.0.2.1"}}}}
	if result, _ := none.readOriginal("route=x&denied_status=403"); result != Misconfigured {
		t.Errorf("without such a header: %v, want %v", result, Misconfigured)
	}
	// The peer is the proxy. x-forwarded-for has the address of the client.
	s := newService(t, nil, func(o *Options) { o.Address = settings.AddressForwardedFor })
	for range 2 {
		if w := s.get(t, "/authz?anonymous=true&domain=edge", "X-Forwarded-For: 203.0.113.9, 198.51.100.1"); w.Code != http.StatusOK {
			t.Fatalf("status = %d, want 200", w.Code)
		}
	}
	if w := s.get(t, "/authz?anonymous=true&domain=edge", "X-Forwarded-For: 203.0.113.10, 198.51.100.1"); w.Code != http.StatusTooManyRequests {
		t.Errorf("the third from one address: %d, want 429", w.Code)
	}
	if w := s.get(t, "/authz?anonymous=true&domain=edge", "X-Forwarded-For: 198.51.100.2"); w.Code != http.StatusOK {
		t.Errorf("the first from another address: %d, want 200", w.Code)
	}
}
