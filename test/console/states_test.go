package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/test/consoletest"
	"github.com/slidegate/slidegate/test/random"
)

// serve serves a made-up console for the time of the test. A nil clock is the real one.
func serve(t *testing.T, state string, now func() time.Time) (*consoletest.Console, string) {
	t.Helper()
	c := consoletest.New(consoletest.Options{State: state, Now: now})
	mux := http.NewServeMux()
	mux.Handle("/", admin.Handler(admin.Pages{Metrics: prometheus.NewRegistry(), Active: c.Active, Access: c.Access, Console: c}))
	server := httptest.NewServer(mux)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return c, server.URL
}

// paths are the pages of the console.
var paths = []string{
	"/", "/subject", "/subject?id=acme", "/subject?address=203.0.113.7", "/denials", "/denials?rule=per-key", "/denials?since=1m",
	"/top", "/top?by=rule", "/top?by=route&minutes=60", "/top?by=address&order=near", "/top?order=shadow",
	"/rules", "/rules?rule=per-key", "/try", "/audit", "/login",
}

// maxPage bounds a page with its files in any state, in bytes.
const maxPage = 1 << 20

// TestStates opens every page in every made-up state. The pages of the real rls have their own
// tests. make test checks every other page here with axe-core, in one look and another one in each
// state: TestPages checks every one. make test-long checks all.
func TestStates(t *testing.T) {
	for i, state := range consoletest.States {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			_, base := serve(t, state, nil)
			b := open(t, base)
			b.next = i
			for j, path := range paths {
				if state != "hostile" && !random.Long() && strings.Contains(path, "?") && path != "/subject?id=acme" {
					continue // it has the parts of the same page without a query
				}
				status := b.load(path)
				if status >= 500 || status == http.StatusNotFound && !strings.Contains(path, "?") {
					t.Errorf("%s answers %d", path, status)
				}
				if size := eval[int](b, "new Blob([document.documentElement.outerHTML]).size"); size > maxPage {
					t.Errorf("%s has %d bytes, want at most %d", path, size, maxPage)
				}
				if state == "usual" {
					b.look("light", narrow)
					if eval[bool](b, `[...document.querySelectorAll(".wide")].some((e) => e.scrollWidth > e.clientWidth)`) {
						t.Errorf("%s: a narrow screen cuts a table", path)
					}
					b.look("light", wide)
				}
				if state == "several" && random.Long() {
					b.looks(path, look{"light", 390}, look{"dark", 390}, look{"light", wide}, look{"dark", wide}, look{"light", 1600}, look{"dark", 1600})
				} else if (state == "huge" || state == "usual" || (i+j)%2 == 0) && !random.Long() {
					b.fits(path)
				} else {
					b.everyLook(path)
				}
			}
		})
	}
}
