package fiberlimit_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/slidegate/slidegate/contrib/fiberlimit"
	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/middleware/middlewaretest"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

func served(c fiber.Ctx) error { return c.SendString("served") }

// TestSuite runs the suite of all frameworks.
func TestSuite(t *testing.T) {
	middlewaretest.Run(t, "/items/:id", func(t *testing.T, s middlewaretest.Setup) string {
		limit, err := fiberlimit.New(s.Limiter, fiberlimit.Options{
			Domain: middlewaretest.Domain, Observe: s.Observe, DenyOnError: s.DenyOnError,
			Descriptors: [][]fiberlimit.Key{
				{fiberlimit.Header("api_key", "X-API-Key")},
				{fiberlimit.Route("route"), fiberlimit.Address("remote_address", s.Trusted...)},
				{fiberlimit.Value("all", "x")},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		app := fiber.New()
		if s.Outer != nil {
			around, err := fiberlimit.New(s.Outer, fiberlimit.Options{Domain: middlewaretest.Domain, Descriptors: [][]fiberlimit.Key{{fiberlimit.Value("all", "x")}}})
			if err != nil {
				t.Fatal(err)
			}
			app.Use(around)
		}
		app.Get("/items/:id", limit, func(c fiber.Ctx) error {
			if c.Get("Upgrade") == "" {
				return served(c)
			}
			c.RequestCtx().Hijack(middlewaretest.Talk)
			return c.SendStatus(fiber.StatusSwitchingProtocols)
		})
		at, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- app.Listener(at, fiber.ListenConfig{DisableStartupMessage: true}) }()
		t.Cleanup(func() {
			if err := app.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return "http://" + at.Addr().String()
	})
}

// ask sends a request to a server without a port.
func ask(app *fiber.App, field string) (status int, body string, err error) {
	r := httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody)
	if name, value, ok := strings.Cut(field, ": "); ok {
		r.Header.Set(name, value)
	}
	resp, err := app.Test(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// newLimiter returns a Limiter with two requests a minute for each value of each entry.
func newLimiter(fatal func(...any), entries ...string) *limiter.Limiter {
	text := "domain: shop\ndescriptors:\n"
	for _, e := range entries {
		text += "  - {key: " + e + ", rate_limit: {name: " + e + ", unit: minute, requests_per_unit: 2}}\n"
	}
	rules, err := limiter.ParseRules("rules.yaml", []byte(text))
	if err != nil {
		fatal(err)
	}
	l, err := limiter.New(memstore.New(memstore.Options{MaxBytes: 256 << 20}), rules)
	if err != nil {
		fatal(err)
	}
	return l
}

// TestMemory: Fiber uses the memory of a request for the next one, and each value still has its own log.
func TestMemory(t *testing.T) {
	own := fiberlimit.Func("own", func(c fiber.Ctx) (string, bool) { return c.Get("X-Own"), true })
	limit, err := fiberlimit.New(newLimiter(t.Fatal, "own"), fiberlimit.Options{Domain: "shop", Descriptors: [][]fiberlimit.Key{{own}}})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Get("/items/:id", limit, served)
	for i, want := range []int{200, 200, 200, 200, 429, 429} {
		status, _, err := ask(app, fmt.Sprintf("X-Own: value-%d", i%2))
		if err != nil || status != want {
			t.Errorf("request %d: %d, %v, want %d", i, status, err, want)
		}
	}
}

// TestKeys: the keys that the suite does not have, and mistakes.
func TestKeys(t *testing.T) {
	limit, err := fiberlimit.New(newLimiter(t.Fatal, "network", "all"), fiberlimit.Options{Domain: "shop", Descriptors: [][]fiberlimit.Key{
		{fiberlimit.Network("network", 8, 64, "0.0.0.0")}, // the peer of app.Test
	}})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(limit)
	app.Get("/items/:id", served)
	for i, want := range []int{200, 200, 429} {
		if status, _, err := ask(app, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)); err != nil || status != want {
			t.Errorf("request %d: %d, %v, want %d", i, status, err, want)
		}
	}
	_, err = fiberlimit.New(nil, fiberlimit.Options{Descriptors: [][]fiberlimit.Key{{fiberlimit.Func("f", nil), fiberlimit.Header("h", "")}}})
	for _, want := range []string{"fiberlimit: New needs a Limiter", "the function is nil", "the field has no name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// Two requests a minute.
func ExampleNew() {
	limit, err := fiberlimit.New(newLimiter(log.Fatal, "all"), fiberlimit.Options{
		Domain: "shop", Descriptors: [][]fiberlimit.Key{{fiberlimit.Value("all", "x")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	app := fiber.New()
	app.Get("/items/:id", limit, served)
	for range 3 {
		status, _, err := ask(app, "")
		fmt.Println(status, err)
	}
	// Output:
	// 200 <nil>
	// 200 <nil>
	// 429 <nil>
}

// TestStreams: a response that Fiber writes after the handler has returned holds its place until it
// ends.
func TestStreams(t *testing.T) {
	rules, err := limiter.ParseRules("rules.yaml", []byte("domain: shop\ndescriptors:\n  - {key: all, rate_limit: {name: all, policy: in_flight, max: 1, hold: 1h}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(memstore.New(memstore.Options{}), rules)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := fiberlimit.New(l, fiberlimit.Options{Domain: "shop", Descriptors: [][]fiberlimit.Key{{fiberlimit.Value("all", "x")}}})
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	app := fiber.New()
	app.Get("/stream", limit, func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("begin")
			_ = w.Flush()
			<-end
		})
	})
	app.Get("/endless", limit, func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for err := error(nil); err == nil; err = w.Flush() {
				_, _ = w.WriteString("more")
			}
		})
	})
	app.Get("/plain", limit, served)
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = app.Listener(at, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() { _ = app.Shutdown() })
	// get returns the status. The body stays open until the test ends.
	get := func(path string) int {
		t.Helper()
		resp, err := http.Get("http://" + at.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode
	}
	passes := func() {
		t.Helper()
		for range 1000 {
			if get("/plain") == http.StatusOK {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("the place is not given back")
	}
	for round := range 2 {
		for i, want := range []int{200, 429, 429} {
			if got := get("/stream"); got != want {
				t.Fatalf("round %d: stream %d is %d, want %d", round, i, got, want)
			}
		}
		end <- struct{}{}
		passes()
	}
	// A client that goes away in the middle gives the place back.
	stream, err := http.Get("http://" + at.Addr().String() + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	if stream.StatusCode != http.StatusOK {
		t.Errorf("an endless stream is %d", stream.StatusCode)
	}
	if err := stream.Body.Close(); err != nil {
		t.Error(err)
	}
	passes()
}
