// Package clientaddr reads addresses of clients, in each form in which proxies, servers and logs
// write them: with ports, brackets, zones and spaces. All of its functions are safe for concurrent
// use.
package clientaddr

import "net/netip"

// Parse returns the address in a text that [Host] reads. The same client has one address: without
// a zone, and with IPv4 not mapped into IPv6. ok is false if the text has no address, as unknown and
// the names of RFC 7239 have none.
func Parse(text string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(Host(text))
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}

// Host returns the address of a text without blanks, quotes, brackets and port: 192.0.2.1:443,
// [2001:db8::1]:443 or "[2001:db8::1]". It does not check the address. If a text has another form,
// Host returns it without the blanks at its ends.
func Host[T string | []byte](text T) T {
	for len(text) > 0 && isBlank(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isBlank(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	host := text
	if n := len(host); n > 1 && host[0] == '"' && host[n-1] == '"' {
		host = host[1 : n-1]
	}
	colon, colons, end := len(host), 0, -1
	for i := range len(host) {
		switch host[i] {
		case ':':
			colon = i
			colons++
		case ']':
			end = i
		}
	}
	switch {
	case end > 0 && host[0] == '[' && end == len(host)-1:
		return host[1:end]
	case end > 0 && host[0] == '[' && end+1 == colon && isPort(host[colon+1:]):
		return host[1:end]
	case end < 0 && colons == 1 && isPort(host[colon+1:]):
		return host[:colon]
	case end < 0 && colons != 1:
		return host
	}
	return text
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isPort reports whether a text is a port: a number, nothing, or a name as RFC 7239 has it.
func isPort[T string | []byte](text T) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case '0' <= c && c <= '9':
		case text[0] == '_' && (c == '_' || c == '.' || c == '-' || 'a' <= c|0x20 && c|0x20 <= 'z'):
		default:
			return false
		}
	}
	return true
}
