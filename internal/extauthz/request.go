package extauthz

import (
	"net/http"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

// request is what is asked about, from either protocol.
type request struct {
	method, host string
	path         string // with the query
	peer         string // the other end of the proxy's connection, as text
	context      map[string]string
	fields       fields
}

// fields are the header fields of a request in one of three forms.
type fields struct {
	joined map[string]string     // repeated ones joined by a comma; lower case
	raw    []*corev3.HeaderValue // one for each line
	http   http.Header
}

// get returns a field by its name in lower case, and how many lines it has: of a
// joined one always one. Several are joined.
func (f *fields) get(name, separator string) (value string, lines int) {
	add := func(line string) {
		if lines++; lines == 1 {
			value = line
		} else {
			value += separator + line
		}
	}
	switch {
	case f.raw != nil:
		for _, h := range f.raw {
			if !strings.EqualFold(h.GetKey(), name) {
				continue
			}
			if raw := h.GetRawValue(); len(raw) > 0 {
				add(string(raw))
			} else {
				add(h.GetValue())
			}
		}
	case f.http != nil:
		for _, line := range f.http[http.CanonicalHeaderKey(name)] {
			add(line)
		}
	default:
		if line, ok := f.joined[name]; ok {
			return line, 1
		}
	}
	return value, lines
}

// read makes r of a message, any part of which may be missing.
func (r *request) read(in *authv3.CheckRequest) {
	a := in.GetAttributes()
	h := a.GetRequest().GetHttp()
	*r = request{
		method: h.GetMethod(), host: h.GetHost(), path: h.GetPath(),
		peer:    a.GetSource().GetAddress().GetSocketAddress().GetAddress(),
		context: a.GetContextExtensions(),
		fields:  fields{joined: h.GetHeaders(), raw: h.GetHeaderMap().GetHeaders()},
	}
}

// query returns the query of the path.
func (r *request) query() string {
	_, query, _ := strings.Cut(r.path, "?")
	query, _, _ = strings.Cut(query, "#")
	return query
}

// plainPath returns the path without query and fragment.
func (r *request) plainPath() string {
	if i := strings.IndexAny(r.path, "?#"); i >= 0 {
		return r.path[:i]
	}
	return r.path
}

// AddressFrom says where a client's address is read.
type AddressFrom int

// The places.
const (
	// Peer: the other end of the proxy's connection.
	Peer AddressFrom = iota
	// ExternalAddress: x-envoy-external-address, which Envoy sets.
	ExternalAddress
	// ForwardedFor: x-forwarded-for.
	ForwardedFor
)

// AddressRule says which address is the client's. Whatever it names must be
// written by a proxy that is trusted: clients can send the same headers. A field
// that is not there, or holds no address, leaves the peer's.
type AddressRule struct {
	From AddressFrom
	// Hops is which entry of x-forwarded-for counts, from the right: the number of
	// trusted proxies that have added one. Below 1 it is 1.
	Hops int
}

const (
	headerExternalAddress = "x-envoy-external-address"
	headerForwardedFor    = "x-forwarded-for"
)

// address returns the client's address, not valid where there is none, as on a
// Unix socket.
func (r *request) address(rule AddressRule) netip.Addr {
	switch rule.From {
	case ExternalAddress:
		if text, lines := r.fields.get(headerExternalAddress, ","); lines == 1 {
			if a := parseAddress(text); a.IsValid() {
				return a
			}
		}
	case ForwardedFor:
		if text, lines := r.fields.get(headerForwardedFor, ","); lines > 0 {
			if a := parseAddress(entryFromRight(text, max(1, rule.Hops))); a.IsValid() {
				return a
			}
		}
	}
	return parseAddress(r.peer)
}

// entryFromRight returns the n-th entry of a list from its end, "" where it is
// shorter.
func entryFromRight(list string, n int) string {
	for ; n > 1; n-- {
		i := strings.LastIndexByte(list, ',')
		if i < 0 {
			return ""
		}
		list = list[:i]
	}
	return list[strings.LastIndexByte(list, ',')+1:]
}

// parseAddress reads an address in its one form, without a zone, with a port or
// without.
func parseAddress(text string) netip.Addr {
	text = strings.Trim(text, " \t")
	a, err := netip.ParseAddr(text)
	if err != nil {
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}
		}
		a = ap.Addr()
	}
	return a.Unmap().WithZone("")
}
