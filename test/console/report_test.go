package console

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/replay/report"
	"github.com/slidegate/slidegate/internal/offline/replay/report/reporttest"
)

// TestReports opens the report of a replay in every made-up state, with all details open. The
// browser enforces the policy of the page, which allows nothing but its style.
func TestReports(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := report.WriteHTML(w, reporttest.New(r.URL.Path[1:])); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	b := open(t, server.URL)
	b.scripts = 0
	for _, state := range reporttest.States {
		path := "/" + state
		b.page(path)
		if got := eval[string](b, "getComputedStyle(document.body).maxWidth"); got == "none" {
			t.Errorf("%s: the policy of the page refuses its style", path)
		}
		eval[int](b, "[...document.querySelectorAll('details')].map((d) => { d.open = true; }).length")
		b.everyLook(path)
	}
}
