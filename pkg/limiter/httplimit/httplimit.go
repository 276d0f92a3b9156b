package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/slidegate/slidegate/pkg/limiter"
)

// Options say what the middleware asks. Domain, and Descriptors or Request, are required.
type Options struct {
	// Domain is that of the rules. The rules must have it when New is called.
	Domain string
	// Descriptors are asked together. A descriptor without one of its keys in a request is left out.
	// If none is left, the request is not limited.
	Descriptors [][]Key
	// Request makes the question instead of Descriptors. If ok is false, the request is not limited.
	// An empty domain is that of the options.
	Request func(*http.Request) (req limiter.Request, ok bool)
	// Cost returns the cost of a request, for every descriptor. Zero only asks what remains. Nil: 1.
	// It has no effect with Request.
	Cost func(*http.Request) uint64
	// Observe lets every request pass, and adds no headers. Requests are decided and charged, and
	// Decided gets the denials. A denial charges nothing.
	Observe bool
	// DenyOnError answers 503 if neither the store nor the rules could decide, or if a request is not
	// valid. Without it such a request passes.
	DenyOnError bool
	// Decided is called once for each request that is asked about, before the answer. With an error,
	// the decision is zero. It must be quick and safe for concurrent use. Nil: no call.
	Decided func(*http.Request, limiter.Decision, error)
}

// New returns middleware that asks l. The error names everything that is wrong with o.
func New(l *limiter.Limiter, o Options) (func(http.Handler) http.Handler, error) {
	if err := check(l, &o); err != nil {
		return nil, err
	}
	if o.Request == nil {
		o.Request = o.read
	}
	return func(next http.Handler) http.Handler { return &handler{l, o, next} }, nil
}

func check(l *limiter.Limiter, o *Options) error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("httplimit: "+format, args...))
		}
	}
	wrong(l == nil, "New needs a Limiter")
	wrong(o.Domain == "", "Domain is empty: name the domain of the rules")
	wrong(l != nil && o.Domain != "" && !l.Rules().HasDomain(o.Domain), "the rules have no domain %q", o.Domain)
	wrong(len(o.Descriptors) == 0 && o.Request == nil, "set Descriptors or Request")
	wrong(len(o.Descriptors) > 0 && o.Request != nil, "set only one of Descriptors and Request")
	for i, keys := range o.Descriptors {
		wrong(len(keys) == 0, "descriptor %d has no keys", i)
		for j := range keys {
			wrong(keys[j].value == nil || keys[j].entry == "", "key %d of descriptor %d has no entry: make it with Header, Address, Route, Value or Func", j, i)
			if err := keys[j].err; err != nil {
				errs = append(errs, fmt.Errorf("httplimit: key %d of descriptor %d: %w", j, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// read makes the question of Descriptors.
func (o *Options) read(r *http.Request) (req limiter.Request, ok bool) {
	cost := uint64(1)
	if o.Cost != nil {
		cost = o.Cost(r)
	}
	req.Descriptors = make([]limiter.Descriptor, 0, len(o.Descriptors))
	for _, keys := range o.Descriptors {
		if entries, ok := entriesOf(r, keys); ok {
			req.Descriptors = append(req.Descriptors, limiter.Descriptor{Entries: entries, Cost: cost, Ask: cost == 0})
		}
	}
	return req, len(req.Descriptors) > 0
}

// entriesOf reports false if a key finds nothing.
func entriesOf(r *http.Request, keys []Key) ([]limiter.Entry, bool) {
	entries := make([]limiter.Entry, 0, len(keys))
	for i := range keys {
		value, ok := keys[i].value(r)
		if !ok {
			return nil, false
		}
		entries = append(entries, limiter.Entry{Key: keys[i].entry, Value: value})
	}
	return entries, true
}

// A handler asks, and then calls next.
type handler struct {
	limiter *limiter.Limiter
	opts    Options
	next    http.Handler
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, ok := h.opts.Request(r)
	if !ok {
		h.next.ServeHTTP(w, r)
		return
	}
	if req.Domain == "" {
		req.Domain = h.opts.Domain
	}
	// A client that closes its connection must not end the decision: the request would pass.
	d, err := h.limiter.Allow(context.WithoutCancel(r.Context()), req)
	if h.opts.Decided != nil {
		h.opts.Decided(r, d, err)
	}
	switch {
	case h.opts.Observe || err != nil && !h.opts.DenyOnError:
		h.next.ServeHTTP(w, r)
	case err != nil:
		// The text of the error may have addresses.
		body := `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The limits cannot be checked now."}`
		answer(w, http.StatusServiceUnavailable, "application/problem+json", []byte(body))
	case !d.Allowed:
		addHeaders(w.Header(), &d)
		kind, body := d.Body()
		answer(w, http.StatusTooManyRequests, kind, body)
	default:
		addHeaders(w.Header(), &d)
		h.next.ServeHTTP(w, r)
	}
}

// addHeaders sets the fields of a decision.
func addHeaders(to http.Header, d *limiter.Decision) {
	var room [12]limiter.Header
	for _, f := range d.AppendHeaders(room[:0]) {
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
