// Package httplimit is middleware for net/http that asks a [limiter.Limiter] about each request. A
// [Key] makes entries from headers, the address or the route. The handler writes header fields and
// the 429, and counts requests in flight, also on hijacked connections.
//
//	limit, err := httplimit.New(l, httplimit.Options{
//		Domain:      "shop",
//		Descriptors: [][]httplimit.Key{{httplimit.Header("api_key", "X-API-Key")}},
//	})
//	http.ListenAndServe(":8080", limit(handler))
//
// A [Key] makes one entry from a request: a header, the address of the client, the pattern of the
// route, a constant or the result of a function. Each list of keys makes one descriptor, as an
// Envoy rate limit with its actions does. If a key finds nothing in a request, the request has no
// such descriptor.
//
// A denied request gets the status 429, and the headers of the domain's styles with Retry-After.
// Its body is a problem document (RFC 9457) or the body of the rule. Other requests reach the handler,
// with the same headers on their answers. With one middleware around another, RateLimit and
// RateLimit-Policy list the limits of both, and the fields with one value describe the stricter limit.
//
// A client that closes its connection does not end the decision. So the store must bound its calls
// by itself, as memstore and redislimit do.
//
// The handler gets the ResponseWriter of the server itself, so Flush, Hijack and other protocols work
// as without the middleware. Under a limit of requests in flight it gets a ResponseWriter around that
// one, with Unwrap. A request counts as in flight until the handler returns. A connection that the
// handler has taken over counts until it is closed.
package httplimit
