package httplimit

import (
	"net/http"
	"strconv"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/middleware"
)

// Options say what the middleware asks: see [middleware.Options].
type Options = middleware.Options[*http.Request]

// New returns middleware that asks l. The error names everything that is wrong with o.
func New(l *limiter.Limiter, o Options) (func(http.Handler) http.Handler, error) {
	limit, err := middleware.New("httplimit", l, o)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler { return &handler{limit, next} }, nil
}

// A handler asks, and then calls next.
type handler struct {
	limit *middleware.Limit[*http.Request]
	next  http.Handler
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d, what := h.limit.Ask(r.Context(), r)
	var t *taker
	returned := false
	defer func() {
		if t == nil || !t.taken || !returned { // else the connection ends it
			middleware.Done(r.Context(), &d)
		}
	}()
	switch what {
	case middleware.Fail:
		answer(w, http.StatusServiceUnavailable, "application/problem+json", []byte(middleware.Unchecked))
		return
	case middleware.Deny:
		addHeaders(w.Header(), &d)
		kind, body := d.Body()
		answer(w, http.StatusTooManyRequests, kind, body)
		return
	case middleware.Tell:
		addHeaders(w.Header(), &d)
	case middleware.Pass:
	}
	if hijack, ok := w.(http.Hijacker); ok && d.InFlight() {
		t = &taker{ResponseWriter: w, hijack: hijack, d: &d}
		w = t
	}
	h.next.ServeHTTP(w, r)
	returned = true
}

// addHeaders sets the fields of a decision, next to those of another limit around it.
func addHeaders(to http.Header, d *limiter.Decision) {
	var room [12]limiter.Header
	for _, f := range middleware.AppendHeaders(room[:0], d, to.Values) {
		if f.Value == "" {
			to.Del(f.Name)
			continue
		}
		to.Set(f.Name, f.Value)
	}
}

func answer(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}
