package extauthz

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/text/clientaddr"
)

// request is a client's request, from gRPC or HTTP. It implements wire.Decoder and reads
// only these parts of a CheckRequest.
type request struct {
	method, host string
	path         string // with the query
	mcp          string // what Envoy's MCP filter has read, as JSON
	peer         string // the other end of the proxy's connection, as text
	context      []text // of several entries with one name the last counts
	manyEntries  bool   // the context has more than maxContext entries
	oversized    bool   // the header exceeds maxLines or maxHeader
	size         int    // of path, host and header fields, in bytes
	read         int    // the number of fields read of the message
	fields       fields
}

// maxLines bounds the header fields of a request. Envoy accepts 100 by default.
const maxLines = 4096

// maxHeader bounds the path, the host and the header fields together, in bytes. Each
// credential is searched in all of them. Envoy accepts 60 KiB by default.
const maxHeader = 128 << 10

// grow counts n bytes of the header. It returns errOver above maxHeader.
func (r *request) grow(n int) error {
	if r.size += n; r.size > maxHeader {
		r.oversized = true
		return errOver
	}
	return nil
}

// maxContext bounds the entries of a context. Operators write a few.
const maxContext = 256

// addContext adds an entry to the context. It returns errOver above maxContext.
func (r *request) addContext(t text) error {
	if len(r.context) == maxContext {
		r.manyEntries = true
		return errOver
	}
	r.context = append(r.context, t)
	return nil
}

type text struct{ name, value string }

// fields are the header fields of a request, from Envoy or from HTTP.
type fields struct {
	// lines are from Envoy: each line by itself, or lines of one name joined by a comma.
	lines []text
	http  http.Header
}

// get returns the value of a field and how many lines it has. It joins several lines. name
// is in lower case.
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
	var joined strings.Builder // of its final size: there may be thousands of lines
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

func (r *request) contextOf(name string) (value string, ok bool) {
	for i := len(r.context) - 1; i >= 0; i-- {
		if r.context[i].name == name {
			return r.context[i].value, true
		}
	}
	return "", false
}

// forget removes the request and keeps the memory for the next one.
func (r *request) forget() {
	*r = request{context: reuse.Slice(r.context), fields: fields{lines: reuse.Slice(r.fields.lines)}}
}

// query returns the query of the path.
func (r *request) query() string {
	path, _, _ := strings.Cut(r.path, "#") // a ? in the fragment begins no query
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

const (
	headerExternalAddress = "x-envoy-external-address"
	headerForwardedFor    = "x-forwarded-for"
)

// address returns the client's address. It is invalid if there is none, as for a client on
// a Unix socket. A trusted proxy must write the header that the settings name, because clients can
// send the same header. If the header is absent or has no valid address, the address of the peer
// counts.
func (r *request) address(a *settings.Authz) netip.Addr {
	switch a.Address {
	case settings.AddressExternal:
		if text, lines := r.fields.get(headerExternalAddress, ","); lines == 1 {
			if a, ok := clientaddr.Parse(text); ok {
				return a
			}
		}
	case settings.AddressForwardedFor:
		if text, lines := r.fields.get(headerForwardedFor, ","); lines > 0 {
			if a, ok := clientaddr.Parse(entryFromRight(text, max(1, a.Hops))); ok {
				return a
			}
		}
	}
	peer, _ := clientaddr.Parse(r.peer)
	return peer
}

// entryFromRight returns the n-th entry of a list from its end, or "" if the list is
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
