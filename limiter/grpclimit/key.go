package grpclimit

import (
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/slidegate/slidegate/limiter/middleware"
)

// A Key makes one entry of a descriptor from a call. [Metadata], [Address], [Network], [Method],
// [Value] and [Func] make one.
type Key = middleware.Key[*Call]

// Metadata is a key with the value of a field of the call's metadata. If the call has the field several
// times, the first one counts. Without the field the key finds nothing.
//
// If entry is among secrets.entries (api_key, authorization, x-api-key), the value is an API key, and
// only its digest goes on. "Bearer k" and "k" are the same key then.
func Metadata(entry, name string) Key {
	return middleware.Field(entry, strings.ToLower(name), func(c *Call, name string) []string {
		return metadata.ValueFromIncomingContext(c.Context, name)
	})
}

// Value is a key with a constant value.
func Value(entry, value string) Key { return middleware.Value[*Call](entry, value) }

// Method is a key with the name of the method, such as /shop.Orders/Create.
func Method(entry string) Key {
	return Func(entry, func(c *Call) (string, bool) { return c.Method, true })
}

// Func is a key with the value that a function returns. If ok is false, it finds nothing. The function
// must be safe for concurrent use.
func Func(entry string, value func(*Call) (value string, ok bool)) Key {
	return middleware.Func(entry, value)
}

// Address is a key with the address of the client: the peer of the connection, or if that is a trusted
// proxy, the last address in x-forwarded-for that is not one. So a client cannot choose its address.
// trusted are addresses and prefixes, such as 10.0.0.0/8. See [middleware.Address].
func Address(entry string, trusted ...string) Key {
	return middleware.Address(entry, addressOf, trusted...)
}

// Network is a key with the network of the [Address], such as 192.0.2.0/24 or 2001:db8::/64. bits4
// and bits6 are the lengths of its prefix.
func Network(entry string, bits4, bits6 int, trusted ...string) Key {
	return middleware.Network(entry, bits4, bits6, addressOf, trusted...)
}

func addressOf(c *Call) (address string, forwarded []string) {
	if p, ok := peer.FromContext(c.Context); ok && p.Addr != nil {
		address = p.Addr.String()
	}
	return address, metadata.ValueFromIncomingContext(c.Context, "x-forwarded-for")
}
