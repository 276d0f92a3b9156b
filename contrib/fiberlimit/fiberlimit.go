// Package fiberlimit limits the requests of a Fiber server with package limiter.
//
//	limit, err := fiberlimit.New(l, fiberlimit.Options{
//		Domain: "shop",
//		Descriptors: [][]fiberlimit.Key{
//			{fiberlimit.Header("api_key", "X-API-Key")},
//			{fiberlimit.Route("route"), fiberlimit.Address("remote_address", "10.0.0.0/8")},
//		},
//	})
//	app := fiber.New()
//	app.Get("/items/:id", limit, handler)
//
// It answers as package httplimit does. It is a separate module, so that programs without Fiber do not
// get it.
package fiberlimit

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/middleware"
)

// Options say what the middleware asks: see [middleware.Options].
type Options = middleware.Options[fiber.Ctx]

// A Key makes one entry of a descriptor from a request. [Header], [Address], [Network], [Route],
// [Value] and [Func] make one.
type Key = middleware.Key[fiber.Ctx]

// New returns middleware that asks l. The error names everything that is wrong with o.
func New(l *limiter.Limiter, o Options) (fiber.Handler, error) {
	limit, err := middleware.New("fiberlimit", l, o)
	if err != nil {
		return nil, err
	}
	return func(c fiber.Ctx) error {
		d, answer := limit.Ask(c.Context(), c)
		h := &passed{d: &d}
		defer h.handled(c)
		switch answer {
		case middleware.Fail:
			return send(c, fiber.StatusServiceUnavailable, "application/problem+json", []byte(middleware.Unchecked))
		case middleware.Deny:
			setHeaders(c, &d)
			kind, body := d.Body()
			return send(c, fiber.StatusTooManyRequests, kind, body)
		case middleware.Tell:
			setHeaders(c, &d)
		case middleware.Pass:
		}
		return c.Next()
	}, nil
}

// passed is a decision whose request may be in flight.
type passed struct{ d *limiter.Decision }

// handled ends the request in flight, unless the response is written after the handlers have returned: a
// stream, or a connection that a handler has taken over. Then Fiber closes the value at its end.
func (h *passed) handled(c fiber.Ctx) {
	if r := c.RequestCtx(); r.Response.IsBodyStream() || r.Hijacked() {
		r.SetUserValue(h, h)
		return
	}
	_ = h.Close()
}

// Close implements [io.Closer].
func (h *passed) Close() error {
	middleware.Done(context.Background(), h.d)
	return nil
}

func setHeaders(c fiber.Ctx, d *limiter.Decision) {
	there := &c.Response().Header
	values := func(name string) []string { return texts(there.PeekAll(name)) }
	var room [12]limiter.Header
	for _, f := range middleware.AppendHeaders(room[:0], d, values) {
		if f.Value == "" {
			there.Del(f.Name)
			continue
		}
		there.Set(f.Name, f.Value)
	}
}

func send(c fiber.Ctx, status int, kind string, body []byte) error {
	c.Set(fiber.HeaderContentType, kind)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return c.Status(status).Send(body)
}

// Header is a key with the value of a header field. If the request has the field several times, the
// first one counts. Without the field the key finds nothing.
//
// If entry is among secrets.entries (api_key, authorization, x-api-key), the value is an API key, and
// only its digest goes on. "Bearer k" and "k" are the same key then.
func Header(entry, name string) Key { return middleware.Field(entry, name, fields) }

// Value is a key with a constant value.
func Value(entry, value string) Key { return middleware.Value[fiber.Ctx](entry, value) }

// Route is a key with the path of the route, such as /items/:id. It needs the middleware at the routes,
// as in app.Get("/items/:id", limit, handler). In app.Use it is the path that Use has.
func Route(entry string) Key {
	return Func(entry, func(c fiber.Ctx) (string, bool) { return c.Route().Path, true })
}

// Func is a key with the value that a function returns. If ok is false, it finds nothing. The function
// must be safe for concurrent use.
func Func(entry string, value func(fiber.Ctx) (value string, ok bool)) Key {
	if value == nil {
		return middleware.Func[fiber.Ctx](entry, nil) // New refuses it
	}
	return middleware.Func(entry, func(c fiber.Ctx) (string, bool) {
		text, ok := value(c)
		// Fiber uses the memory of a request again, and a decision may outlive it.
		return strings.Clone(text), ok
	})
}

// Address is a key with the address of the client: the peer of the connection, or if that is a trusted
// proxy, the last address in X-Forwarded-For that is not one. So a client cannot choose its address.
// trusted are addresses and prefixes, such as 10.0.0.0/8. See [middleware.Address]. The settings of
// Fiber for proxies have no effect.
func Address(entry string, trusted ...string) Key { return middleware.Address(entry, peer, trusted...) }

// Network is a key with the network of the [Address], such as 192.0.2.0/24 or 2001:db8::/64. bits4
// and bits6 are the lengths of its prefix.
func Network(entry string, bits4, bits6 int, trusted ...string) Key {
	return middleware.Network(entry, bits4, bits6, peer, trusted...)
}

func peer(c fiber.Ctx) (address string, forwarded []string) {
	if a := c.RequestCtx().RemoteAddr(); a != nil {
		address = a.String()
	}
	return address, fields(c, fiber.HeaderXForwardedFor)
}

// fields returns all values of a header field, as copies.
func fields(c fiber.Ctx, name string) []string {
	return texts(c.Request().Header.PeekAll(name))
}

// texts returns copies of values.
func texts(values [][]byte) []string {
	all := make([]string, len(values))
	for i := range values {
		all[i] = string(values[i])
	}
	return all
}
