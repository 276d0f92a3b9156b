package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/httplimit"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// Two requests a minute for each API key, and fifty for each address and route.
func Example() {
	rules, err := limiter.ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: minute, requests_per_unit: 2}
  - key: route
    descriptors:
      - key: remote_address
        rate_limit: {name: per-route, unit: minute, requests_per_unit: 50}
`))
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(l, httplimit.Options{
		Domain: "shop",
		Descriptors: [][]httplimit.Key{
			{httplimit.Header("api_key", "X-API-Key")},
			{httplimit.Route("route"), httplimit.Address("remote_address", "10.0.0.0/8")},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "an item") })))

	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody)
		r.Header.Set("X-API-Key", "k1")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "per-key";r=1;t=60 ""
	// 200 "per-key";r=0;t=60 ""
	// 429 "per-key";r=0;t=60 "60"
}
