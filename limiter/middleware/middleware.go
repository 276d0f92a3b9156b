package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/limiter"
)

// Options say what the middleware asks. Domain, and Descriptors or Request, are required.
type Options[R any] struct {
	// Domain is the domain of the rules that limit requests. The rules must have it when New is called.
	Domain string
	// Descriptors are asked together. A descriptor without one of its keys in a request is left out,
	// unless the key is [Key.Optional]. If none is left, the request is not limited.
	Descriptors [][]Key[R]
	// Request makes the request of the limiter, instead of Descriptors. If ok is false, the request is not limited.
	// An empty domain is that of the options.
	Request func(R) (req limiter.Request, ok bool)
	// Cost returns the cost of a request, for every descriptor. Nil: 1. Zero only asks what
	// remains. Cost has no effect with Request.
	Cost func(R) uint64
	// Observe lets every request pass, and adds no headers. Requests are decided and charged, and
	// Decided gets the denials. A denial charges nothing.
	Observe bool
	// DenyOnError refuses a request if neither the store nor the rules could decide, or if its
	// descriptors or costs are not valid. Without it such a request passes.
	DenyOnError bool
	// Decided is called once for each request, before the answer. With an error, the decision is zero.
	// It must be quick and safe for concurrent use. Nil: no call.
	Decided func(R, limiter.Decision, error)
}

// An Answer says what middleware does with a request.
type Answer int

// The answers.
const (
	// Pass: serve the request. The client learns nothing of the decision.
	Pass Answer = iota
	// Tell: serve the request, and send the client how its limits stand.
	Tell
	// Deny: the request is denied.
	Deny
	// Fail: the limits could not be checked, and Options.DenyOnError is set.
	Fail
)

// Unchecked is the problem document (RFC 9457) for [Fail]. The error itself may have addresses.
const Unchecked = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The limits cannot be checked now."}`

// A Limit asks a [limiter.Limiter] about requests. It is safe for concurrent use.
type Limit[R any] struct {
	limiter *limiter.Limiter
	opts    Options[R]
}

// New returns a Limit. The error begins with name, the package of the middleware, and has everything
// that is wrong with o.
func New[R any](name string, l *limiter.Limiter, o Options[R]) (*Limit[R], error) {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(name+": "+format, args...))
		}
	}
	wrong(l == nil, "New needs a Limiter")
	wrong(o.Domain == "", "Domain is empty: name the domain of the rules")
	if l != nil && o.Domain != "" {
		wrong(!l.Rules().HasDomain(o.Domain), "the rules have no domain %q, only %s", o.Domain, strings.Join(l.Rules().Domains(), ", "))
	}
	wrong(len(o.Descriptors) == 0 && o.Request == nil, "set Descriptors or Request")
	wrong(len(o.Descriptors) > 0 && o.Request != nil, "set only one of Descriptors and Request")
	for i, keys := range o.Descriptors {
		wrong(len(keys) == 0, "descriptor %d has no keys", i)
		for j := range keys {
			if err := keys[j].check(); err != nil {
				errs = append(errs, fmt.Errorf("%s: key %d of descriptor %d: %w", name, j, i, err))
			} else if l != nil {
				unknown := l.Rules().UnknownEntry(keys[j].entry)
				wrong(unknown != "", "key %d of descriptor %d: %s", j, i, unknown)
			}
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return &Limit[R]{l, o}, nil
}

// Ask decides a request, and charges it if it is allowed. With [Pass] and [Fail] the decision says
// nothing to clients. Call [Done] when the request has ended, whatever the answer is.
//
// The end of ctx does not end the decision: otherwise a client could close its connection and pass.
// So the store must bound its calls by itself, as memstore and redislimit do.
func (m *Limit[R]) Ask(ctx context.Context, r R) (limiter.Decision, Answer) {
	req, ok := m.read(r)
	if !ok {
		return limiter.Decision{}, Pass
	}
	d, err := m.limiter.Allow(context.WithoutCancel(ctx), req)
	if m.opts.Decided != nil {
		m.opts.Decided(r, d, err)
	}
	switch {
	case m.opts.Observe || err != nil && !m.opts.DenyOnError:
		return d, Pass
	case err != nil:
		return d, Fail
	case !d.Allowed:
		return d, Deny
	}
	return d, Tell
}

// Done gives back what a request holds that has ended, also if ctx has ended. If the store fails, the
// hold expires by itself.
func Done(ctx context.Context, d *limiter.Decision) { _ = d.Release(context.WithoutCancel(ctx)) }

// read makes the request to the limiter. It reports false if the request is not limited.
func (m *Limit[R]) read(r R) (req limiter.Request, ok bool) {
	if m.opts.Request != nil {
		if req, ok = m.opts.Request(r); req.Domain == "" {
			req.Domain = m.opts.Domain
		}
		return req, ok
	}
	cost := uint64(1)
	if m.opts.Cost != nil {
		cost = m.opts.Cost(r)
	}
	req.Domain = m.opts.Domain
	req.Descriptors = make([]limiter.Descriptor, 0, len(m.opts.Descriptors))
	for _, keys := range m.opts.Descriptors {
		if entries, ok := entriesOf(r, keys); ok {
			req.Descriptors = append(req.Descriptors, limiter.Descriptor{Entries: entries, Cost: cost, Ask: cost == 0})
		}
	}
	return req, len(req.Descriptors) > 0
}

// entriesOf reports false if a key finds nothing that is not optional, or if no key finds anything.
func entriesOf[R any](r R, keys []Key[R]) ([]limiter.Entry, bool) {
	entries := make([]limiter.Entry, 0, len(keys))
	for i := range keys {
		value, ok := keys[i].value(r)
		switch {
		case !ok && keys[i].optional:
			continue
		case !ok:
			return nil, false
		}
		entries = append(entries, limiter.Entry{Key: keys[i].entry, Value: value})
	}
	return entries, len(entries) > 0
}
