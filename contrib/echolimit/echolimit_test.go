package echolimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/slidegate/slidegate/contrib/echolimit"
	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/httplimit"
	"github.com/slidegate/slidegate/limiter/middleware/middlewaretest"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

func served(c *echo.Context) error { return c.String(http.StatusOK, "served") }

// TestSuite runs the suite of all frameworks, for the whole server and at one route.
func TestSuite(t *testing.T) {
	for name, route := range map[string]func(e *echo.Echo, limit echo.MiddlewareFunc){
		"Use": func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Use(limit)
			e.GET("/items/:id", echo.WrapHandler(http.HandlerFunc(middlewaretest.Serve)))
		},
		"route": func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.GET("/items/:id", echo.WrapHandler(http.HandlerFunc(middlewaretest.Serve)), limit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			middlewaretest.Run(t, "/items/:id", func(t *testing.T, s middlewaretest.Setup) string {
				limit, err := echolimit.New(s.Limiter, httplimit.Options{
					Domain: middlewaretest.Domain, Observe: s.Observe, DenyOnError: s.DenyOnError,
					Descriptors: [][]httplimit.Key{
						{httplimit.Header("api_key", "X-API-Key")},
						{httplimit.Route("route"), httplimit.Address("remote_address", s.Trusted...)},
						{httplimit.Value("all", "x")},
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				e := echo.New()
				if s.Outer != nil {
					around, err := echolimit.New(s.Outer, httplimit.Options{Domain: middlewaretest.Domain, Descriptors: [][]httplimit.Key{{httplimit.Value("all", "x")}}})
					if err != nil {
						t.Fatal(err)
					}
					e.Use(around)
				}
				route(e, limit)
				server := httptest.NewServer(e)
				t.Cleanup(server.Close)
				return server.URL
			})
		})
	}
}

// TestErrors: what a handler returns reaches the client, and middleware around this one sees the status
// of a denial.
func TestErrors(t *testing.T) {
	e := echo.New()
	var seen []int
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			if r, ok := c.Response().(*echo.Response); ok && err == nil {
				seen = append(seen, r.Status)
			}
			return err
		}
	})
	e.Use(limitOf(1, t.Fatal))
	e.GET("/", func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "no tea") })
	for _, want := range []int{http.StatusTeapot, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		if w.Code != want || w.Header().Get("RateLimit") == "" {
			t.Errorf("got %d %v, want %d", w.Code, w.Header(), want)
		}
	}
	if len(seen) != 1 || seen[0] != http.StatusTooManyRequests {
		t.Errorf("the middleware around saw %v", seen)
	}
	if _, err := echolimit.New(nil, httplimit.Options{}); err == nil {
		t.Error("no error without a Limiter")
	}
}

// limitOf returns middleware with a limit of requests a minute.
func limitOf(requests int, fatal func(...any)) echo.MiddlewareFunc {
	rules, err := limiter.ParseRules("rules.yaml", fmt.Appendf(nil, `
domain: shop
descriptors:
  - key: all
    rate_limit: {unit: minute, requests_per_unit: %d}
`, requests))
	if err != nil {
		fatal(err)
	}
	l, err := limiter.New(memstore.New(memstore.Options{MaxBytes: 256 << 20}), rules)
	if err != nil {
		fatal(err)
	}
	limit, err := echolimit.New(l, httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{{httplimit.Value("all", "x")}}})
	if err != nil {
		fatal(err)
	}
	return limit
}

// One request a minute.
func ExampleNew() {
	e := echo.New()
	e.Use(limitOf(1, log.Fatal))
	e.GET("/items/:id", served)
	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}
