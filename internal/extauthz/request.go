package extauthz

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/slidegate/slidegate/internal/reuse"
)

// request is what is asked about, from either protocol. It implements
// wire.Decoder: of a CheckRequest it reads no more than this.
type request struct {
	method, host string
	path         string // with the query
	peer         string // the other end of the proxy's connection, as text
	context      []text // of several with one name the last counts
	crowded      bool   // there are more than maxContext entries of context
	oversized    bool   // there is more of it than maxLines and maxHeader allow
	size         int    // bytes of path, host and header fields
	read         int    // fields of the message
	fields       fields
}

// maxLines bounds the header fields of a request. Envoy takes 100 unless it is told
// to take more.
const maxLines = 4096

// maxHeader bounds the path, the host and the header fields together, in bytes. They
// are gone through once for each place of a credential. Envoy takes 60 KiB unless it is
// told to take more.
const maxHeader = 128 << 10

// grow counts bytes of the header. It returns errOver if they are too many.
func (r *request) grow(n int) error {
	if r.size += n; r.size > maxHeader {
		r.oversized = true
		return errOver
	}
	return nil
}

// maxContext bounds the entries of a context. An operator writes it, and needs a few.
const maxContext = 256

// tell adds an entry to the context. It returns errOver if there is no room for it.
func (r *request) tell(t text) error {
	if len(r.context) == maxContext {
		r.crowded = true
		return errOver
	}
	r.context = append(r.context, t)
	return nil
}

// text is a text with a name.
type text struct{ name, value string }

// fields are the header fields of a request in one of two forms.
type fields struct {
	// lines are those of Envoy, in its map with repeated ones joined by a comma, or
	// each by itself.
	lines []text
	http  http.Header
}

// get returns a field by its name in lower case, and how many lines it has. Several
// are joined.
func (f *fields) get(name, separator string) (value string, lines int) {
	size := 0
	f.each(name, func(line string) {
		value = line
		lines++
		size += len(separator) + len(line)
	})
	if lines <= 1 {
		return value, lines
	}
	var joined strings.Builder // there may be many: each is copied once
	joined.Grow(size)
	first := true
	f.each(name, func(line string) {
		if !first {
			joined.WriteString(separator)
		}
		first = false
		joined.WriteString(line)
	})
	return joined.String(), lines
}

// each calls found for each line of a field.
func (f *fields) each(name string, found func(line string)) {
	for i := range f.lines {
		if l := &f.lines[i]; len(l.name) == len(name) && strings.EqualFold(l.name, name) {
			found(l.value)
		}
	}
	if f.http != nil {
		for _, line := range f.http[http.CanonicalHeaderKey(name)] {
			found(line)
		}
	}
}

// says returns what the context says under a name.
func (r *request) says(name string) (value string, ok bool) {
	for i := len(r.context) - 1; i >= 0; i-- {
		if r.context[i].name == name {
			return r.context[i].value, true
		}
	}
	return "", false
}

// forget leaves nothing but memory for the next request.
func (r *request) forget() {
	*r = request{context: reuse.Slice(r.context), fields: fields{lines: reuse.Slice(r.fields.lines)}}
}

// query returns the query of the path.
func (r *request) query() string {
	path, _, _ := strings.Cut(r.path, "#") // behind it a ? is the fragment's
	_, query, _ := strings.Cut(path, "?")
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
