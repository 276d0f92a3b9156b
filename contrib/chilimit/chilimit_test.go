package chilimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/slidegate/slidegate/contrib/chilimit"
	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/httplimit"
	"github.com/slidegate/slidegate/limiter/middleware/middlewaretest"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

func served(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }

// TestSuite runs the suite of all frameworks, with the middleware at each place that a router has.
func TestSuite(t *testing.T) {
	for name, route := range map[string]func(r chi.Router, limit func(http.Handler) http.Handler){
		"Use": func(r chi.Router, limit func(http.Handler) http.Handler) {
			r.Use(limit)
			r.Get("/items/{id}", middlewaretest.Serve)
		},
		"With": func(r chi.Router, limit func(http.Handler) http.Handler) {
			r.With(limit).Get("/items/{id}", middlewaretest.Serve)
		},
		"Route": func(r chi.Router, limit func(http.Handler) http.Handler) {
			r.Route("/items", func(r chi.Router) {
				r.Use(limit)
				r.Get("/{id}", middlewaretest.Serve)
			})
		},
		"Mount": func(r chi.Router, limit func(http.Handler) http.Handler) {
			r.Use(limit)
			below := chi.NewRouter()
			below.HandleFunc("/{id}", middlewaretest.Serve)
			r.Mount("/items", below)
		},
	} {
		t.Run(name, func(t *testing.T) {
			middlewaretest.Run(t, `"/items/{id}"`, func(t *testing.T, s middlewaretest.Setup) string {
				limit, err := httplimit.New(s.Limiter, httplimit.Options{
					Domain: middlewaretest.Domain, Observe: s.Observe, DenyOnError: s.DenyOnError,
					Descriptors: [][]httplimit.Key{
						{httplimit.Header("api_key", "X-API-Key")},
						{chilimit.Route("route"), httplimit.Address("remote_address", s.Trusted...)},
						{httplimit.Value("all", "x")},
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				r := chi.NewRouter()
				if s.Outer != nil {
					around, err := httplimit.New(s.Outer, httplimit.Options{Domain: middlewaretest.Domain, Descriptors: [][]httplimit.Key{{httplimit.Value("all", "x")}}})
					if err != nil {
						t.Fatal(err)
					}
					r.Use(around)
				}
				route(r, limit)
				server := httptest.NewServer(r)
				t.Cleanup(server.Close)
				return server.URL
			})
		})
	}
}

// TestRoute: which route a request has, however its path is spelled, before and after the router has
// chosen.
func TestRoute(t *testing.T) {
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/items/7", "/items/{id}"},
		{"GET", "/items/a%2Fb", "/items/{id}"},
		{"GET", "/items/7/", "/items/{id}"},
		{"HEAD", "/items/7", "/items/{id}"},
		{"POST", "/items/7", ""},
		{"GET", "/files/a/b", "/files/*"},
		{"GET", "/api/v1/orders/7", "/api/v1/orders/{id}"},
		{"GET", "/api/v1/nothing", ""},
		{"GET", "/", "/"},
		{"GET", "/nothing", ""},
		{"BREW", "/items/7", ""},
	} {
		var before, after string
		see := func(to *string) func(http.Handler) http.Handler {
			limit, err := httplimit.New(newLimiter(t), httplimit.Options{
				Domain: "shop", Descriptors: [][]httplimit.Key{{chilimit.Route("route")}},
				Decided: func(_ *http.Request, d limiter.Decision, _ error) { *to = routes[d.Limit().Name] },
			})
			if err != nil {
				t.Fatal(err)
			}
			return limit
		}
		r := chi.NewRouter()
		r.Use(middleware.GetHead, middleware.StripSlashes, see(&before))
		inline := r.With(see(&after))
		inline.Get("/", served)
		inline.Get("/items/{id}", served)
		inline.Get("/files/*", served)
		r.Route("/api", func(r chi.Router) {
			r.Route("/v1", func(r chi.Router) { r.With(see(&after)).Get("/orders/{id}", served) })
		})
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody))
		if before != tt.want || w.Code == http.StatusOK && after != tt.want {
			t.Errorf("%s %s: before %q, after %q, want %q", tt.method, tt.path, before, after, tt.want)
		}
	}
	// Without a router the key finds nothing.
	limit, err := httplimit.New(newLimiter(t), httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{{chilimit.Route("route")}}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	limit(http.HandlerFunc(served)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items/7", http.NoBody))
	if w.Code != http.StatusOK || w.Header().Get("RateLimit") != "" {
		t.Errorf("without a router: %d %v", w.Code, w.Header())
	}
}

// routes has the pattern of each rule.
var routes = map[string]string{
	"root": "/", "items": "/items/{id}", "files": "/files/*", "orders": "/api/v1/orders/{id}", "api": "/api/*", "v1": "/api/v1/*",
}

// newLimiter returns a Limiter with a rule for each route.
func newLimiter(t *testing.T) *limiter.Limiter {
	t.Helper()
	var text strings.Builder
	text.WriteString("domain: shop\ndescriptors:\n")
	for name, route := range routes {
		fmt.Fprintf(&text, "  - {key: route, value: '%s', rate_limit: {name: %s, unit: hour, requests_per_unit: 9}}\n", route, name)
	}
	return middlewaretest.NewLimiter(t, text.String(), nil)
}

// One request a minute for each route.
func ExampleRoute() {
	rules, err := limiter.ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: route
    rate_limit: {unit: minute, requests_per_unit: 1}
`))
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{MaxBytes: 256 << 20})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(l, httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{{chilimit.Route("route")}}})
	if err != nil {
		log.Fatal(err)
	}
	r := chi.NewRouter()
	r.Use(limit)
	r.Get("/items/{id}", served)
	for _, path := range []string{"/items/1", "/items/2"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /items/1 200
	// /items/2 429
}
