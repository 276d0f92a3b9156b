package middleware

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/clientaddr"
)

// A Key makes one entry of a descriptor from a request. [Func], [Field], [Value], [Address] and
// [Network] make one.
type Key[R any] struct {
	entry    string
	value    func(R) (value string, ok bool)
	optional bool
	err      error // New reports it
}

// Optional returns the key, so that a request in which it finds nothing loses only its entry, and not
// the whole descriptor. The idempotency key of charge_once needs it: without it, requests that have
// no such key would not be limited.
func (k Key[R]) Optional() Key[R] {
	k.optional = true
	return k
}

// Entry returns the key of the descriptor's entry.
func (k Key[R]) Entry() string { return k.entry }

// check returns what is wrong with a key.
func (k *Key[R]) check() error {
	switch {
	case k.err != nil:
		return k.err
	case k.entry == "":
		return errors.New("it has no entry: name the key of the descriptor's entry")
	case k.value == nil:
		return errors.New("the function is nil")
	}
	return nil
}

// Func is a key with the value that a function returns. If ok is false, it finds nothing. The function
// must be safe for concurrent use.
func Func[R any](entry string, value func(R) (value string, ok bool)) Key[R] {
	return Key[R]{entry: entry, value: value}
}

// Field is a key with the value of a field of a request, such as a header. The function returns all
// values of the field. The first one counts, because handlers read that one. So a client gains nothing
// with a second one.
func Field[R any](entry, name string, values func(r R, name string) []string) Key[R] {
	if values == nil {
		return Func[R](entry, nil) // New refuses it
	}
	k := Func(entry, func(r R) (string, bool) {
		if all := values(r, name); len(all) > 0 {
			return all[0], true
		}
		return "", false
	})
	if name == "" {
		k.err = errors.New("the field has no name")
	}
	return k
}

// Value is a key with a constant value.
func Value[R any](entry, value string) Key[R] {
	return Func(entry, func(R) (string, bool) { return value, true })
}

// Address is a key with the address of the client. It is the peer of the connection, unless that
// is a trusted proxy: then it is the last address in X-Forwarded-For that is not one. So a client
// cannot choose its address. trusted are addresses and prefixes, such as 10.0.0.0/8.
//
// peer returns the address of the peer, with a port or without, and all values of X-Forwarded-For.
//
// An entry of X-Forwarded-For that is no address ends the search: the client is then the proxy that
// added it. A server on a unix socket has no addresses: Address trusts the peer then if trusted has
// "unix", and otherwise finds nothing.
func Address[R any](entry string, peer func(R) (address string, forwarded []string), trusted ...string) Key[R] {
	return address(entry, peer, trusted, netip.Addr.String)
}

// Network is a key with the network of [Address], such as 192.0.2.0/24 or 2001:db8::/64. bits4 and
// bits6 are the lengths of its prefix. A client with IPv6 usually has 2^64 addresses, so limit
// networks with 64 bits: a limit of each address does not stop it. Envoy makes the same values in
// masked_remote_address.
func Network[R any](entry string, bits4, bits6 int, peer func(R) (address string, forwarded []string), trusted ...string) Key[R] {
	k := address(entry, peer, trusted, func(a netip.Addr) string {
		bits := bits6
		if a.Is4() {
			bits = bits4
		}
		network, _ := a.Prefix(bits) // the bits are checked
		return network.String()
	})
	for _, b := range []struct{ bits, most int }{{bits4, 32}, {bits6, 128}} {
		if b.bits < 0 || b.bits > b.most {
			k.err = errors.Join(k.err, fmt.Errorf("a network of %d of %d bits", b.bits, b.most))
		}
	}
	return k
}

func address[R any](entry string, peer func(R) (string, []string), trusted []string, text func(netip.Addr) string) Key[R] {
	if peer == nil {
		return Func[R](entry, nil) // New refuses it
	}
	var p proxies
	var err error
	for _, t := range trusted {
		err = errors.Join(err, p.add(t))
	}
	k := Func(entry, func(r R) (string, bool) {
		a, ok := p.client(peer(r))
		if !ok {
			return "", false
		}
		return text(a), true
	})
	k.err = err
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
	return slices.ContainsFunc(p.prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(a) })
}

// client returns the address of the client.
func (p *proxies) client(peer string, forwarded []string) (client netip.Addr, ok bool) {
	client, ok = clientaddr.Parse(peer)
	if ok && !p.trust(client) || !ok && !p.unix {
		return client, ok
	}
	for i := len(forwarded) - 1; i >= 0; i-- {
		for rest, more := forwarded[i], true; more; {
			text := rest
			at := strings.LastIndexByte(rest, ',')
			if more = at >= 0; more {
				rest, text = rest[:at], rest[at+1:]
			}
			a, valid := clientaddr.Parse(text)
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
