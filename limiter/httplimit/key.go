package httplimit

import (
	"net/http"

	"github.com/slidegate/slidegate/limiter/middleware"
)

// A Key makes one entry of a descriptor from a request. [Header], [Address], [Network], [Route],
// [Value] and [Func] make one.
type Key = middleware.Key[*http.Request]

// Header is a key with the value of a header field. If the request has the field several times, the
// first one counts, which [http.Header.Get] returns. Without the field the key finds nothing.
//
// If entry is among secrets.entries (api_key, authorization, x-api-key), the value is an API key, and
// only its digest goes on. "Bearer k" and "k" are the same key then.
func Header(entry, name string) Key {
	if name = http.CanonicalHeaderKey(name); name == "Host" { // net/http moves it
		return Func(entry, func(r *http.Request) (string, bool) { return r.Host, r.Host != "" })
	}
	return middleware.Field(entry, name, func(r *http.Request, name string) []string { return r.Header[name] })
}

// Value is a key with a constant value.
func Value(entry, value string) Key { return middleware.Value[*http.Request](entry, value) }

// Route is a key with the pattern of the route that [http.ServeMux] has chosen, such as
// "GET /items/{id}". So the middleware must be behind the mux: wrap the handlers of its routes. In
// front of the mux, Route finds nothing.
func Route(entry string) Key {
	return Func(entry, func(r *http.Request) (string, bool) { return r.Pattern, r.Pattern != "" })
}

// Func is a key with the value that a function returns. If ok is false, it finds nothing. The function
// must be safe for concurrent use.
func Func(entry string, value func(*http.Request) (value string, ok bool)) Key {
	return middleware.Func(entry, value)
}

// Address is a key with the address of the client: the peer of the connection, or if that is a trusted
// proxy, the last address in X-Forwarded-For that is not one. So a client cannot choose its address.
// trusted are addresses and prefixes, such as 10.0.0.0/8. See [middleware.Address].
//
// A client with IPv6 usually has 2^64 addresses: [Network] limits them together.
func Address(entry string, trusted ...string) Key { return middleware.Address(entry, peer, trusted...) }

// Network is a key with the network of the [Address], such as 192.0.2.0/24 or 2001:db8::/64. bits4
// and bits6 are the lengths of its prefix. Envoy makes the same values in masked_remote_address.
func Network(entry string, bits4, bits6 int, trusted ...string) Key {
	return middleware.Network(entry, bits4, bits6, peer, trusted...)
}

func peer(r *http.Request) (address string, forwarded []string) {
	return r.RemoteAddr, r.Header["X-Forwarded-For"]
}
