package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// A Key makes one entry of a descriptor from a request. [Header], [Address], [Route], [Value] and
// [Func] make one.
type Key struct {
	entry string
	value func(*http.Request) (value string, ok bool)
	err   error // New reports it
}

// Header is a key with the value of a header field. If the request has the field several times, the
// value is all of them, joined with commas as Envoy joins them. Without the field it finds nothing.
//
// If entry is among secrets.entries (api_key, authorization, x-api-key), the value is an API key, and
// only its digest goes on. "Bearer k" and "k" are the same key then.
func Header(entry, name string) Key {
	k := Key{entry: entry}
	if name == "" {
		k.err = errors.New("the header has no name")
	}
	name = http.CanonicalHeaderKey(name)
	k.value = func(r *http.Request) (string, bool) {
		if name == "Host" { // net/http moves it
			return r.Host, r.Host != ""
		}
		values := r.Header[name]
		if len(values) == 1 {
			return values[0], true
		}
		return strings.Join(values, ","), len(values) > 0
	}
	return k
}

// Value is a key with a constant value.
func Value(entry, value string) Key {
	return Key{entry: entry, value: func(*http.Request) (string, bool) { return value, true }}
}

// Route is a key with the pattern of the route that [http.ServeMux] has chosen, such as
// "GET /items/{id}". So the middleware must be behind the mux: wrap the handlers of its routes. In
// front of the mux, Route finds nothing.
func Route(entry string) Key {
	return Key{entry: entry, value: func(r *http.Request) (string, bool) { return r.Pattern, r.Pattern != "" }}
}

// Func is a key with the value that a function returns. If ok is false, it finds nothing. The function
// must be safe for concurrent use.
func Func(entry string, value func(*http.Request) (value string, ok bool)) Key {
	k := Key{entry: entry, value: value}
	if value == nil {
		k.err = errors.New("the function is nil")
	}
	return k
}

// Address is a key with the address of the client. It is the peer of the connection, unless that
// is a trusted proxy: then it is the last address in X-Forwarded-For that is not one. So a client
// cannot choose its address. trusted are addresses and prefixes, such as 10.0.0.0/8.
//
// An entry of X-Forwarded-For that is no address ends the search: the client is then the proxy that
// added it. A server on a unix socket has no addresses: Address trusts the peer then if trusted has
// "unix", and otherwise finds nothing.
func Address(entry string, trusted ...string) Key {
	k := Key{entry: entry}
	var proxies proxies
	for _, text := range trusted {
		if err := proxies.add(text); err != nil {
			k.err = errors.Join(k.err, err)
		}
	}
	k.value = func(r *http.Request) (string, bool) {
		a, ok := proxies.client(r)
		if !ok {
			return "", false
		}
		return a.String(), true
	}
	return k
}

// proxies are the proxies whose X-Forwarded-For counts.
type proxies struct {
	prefixes []netip.Prefix
	unix     bool // the peers of a unix socket are
}

func (p *proxies) add(text string) error {
	if text == "unix" {
		p.unix = true
		return nil
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix.Addr().Is4In6() {
			return fmt.Errorf("trusted proxy %q: write the IPv4 prefix instead", text)
		}
		p.prefixes = append(p.prefixes, prefix.Masked())
		return nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("trusted proxy %q: expected an address or a prefix such as 10.0.0.0/8, or unix", text)
	}
	a = a.Unmap()
	p.prefixes = append(p.prefixes, netip.PrefixFrom(a, a.BitLen()))
	return nil
}

func (p *proxies) trust(a netip.Addr) bool {
	for _, prefix := range p.prefixes {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// client returns the address of the client.
func (p *proxies) client(r *http.Request) (client netip.Addr, ok bool) {
	client, ok = parseAddress(r.RemoteAddr)
	if ok && !p.trust(client) || !ok && !p.unix {
		return client, ok
	}
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			text := rest
			at := strings.LastIndexByte(rest, ',')
			if more = at >= 0; more {
				rest, text = rest[:at], rest[at+1:]
			}
			a, valid := parseAddress(strings.Trim(text, " \t"))
			if !valid {
				return client, ok
			}
			if client, ok = a, true; !p.trust(a) {
				return client, ok
			}
		}
	}
	return client, ok
}

// parseAddress reads an address, with a port or without.
func parseAddress(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}
