package unary

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
)

// A head is the decoded header list of one call, or of its trailers. It is reused for
// the next frame.
type head struct {
	pseudo                pseudoFields
	contentType, encoding string
	timeout               timeout
	declared              int64 // content-length; below zero: none
	hosts                 int
	regular               bool                // the list has a field that is not a pseudo field
	bad                   bool                // a field is malformed, or must not be there
	badBinary             string              // a field of binary metadata that is not base64
	fields                []hpack.HeaderField // what becomes metadata
	kept                  [MaxKept]string     // as in Call
	size                  uint32
	long                  bool // the list is larger than MaxHeaderBytes; the rest was ignored
}

// timeout is the field grpc-timeout of a header list.
type timeout struct {
	set       bool
	after     time.Duration
	malformed string // the answer to a malformed value
}

// pseudoFields are the pseudo fields of a header list.
type pseudoFields struct {
	method, path, authority string
	seen                    pseudo
}

// pseudo is a set of pseudo fields.
type pseudo uint8

const (
	pseudoMethod pseudo = 1 << iota
	pseudoScheme
	pseudoPath
	pseudoAuthority

	pseudoNeeded = pseudoMethod | pseudoScheme | pseudoPath
)

// reset empties the head. It releases the memory of a long list.
func (h *head) reset() {
	clear(h.fields)
	*h = head{fields: h.fields[:0], declared: -1}
	if cap(h.fields) > maxFieldsKept {
		h.fields = nil
	}
}

const maxFieldsKept = 64

// emit takes a field from the decoder.
func (r *reader) emit(f hpack.HeaderField) {
	h := &r.head
	h.size += f.Size()
	if h.size > r.server.o.MaxHeaderBytes {
		h.long = true
		r.decoder.SetEmitEnabled(false) // the decoder goes on, to keep its table up to date
		return
	}
	if strings.HasPrefix(f.Name, ":") {
		h.addPseudo(f)
		return
	}
	h.regular = true
	switch f.Name {
	case "content-type":
		h.contentType = f.Value
		h.fields = append(h.fields, f)
	case "grpc-timeout":
		d, ok := parseTimeout(f.Value)
		if h.timeout.after, h.timeout.set = d, true; !ok {
			h.timeout.malformed = fmt.Sprintf("malformed grpc-timeout: %q", brief(f.Value))
		}
	case "grpc-encoding":
		h.encoding = f.Value
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || h.declared >= 0 && h.declared != int64(n) {
			h.bad = true
		}
		h.declared = int64(n)
		h.fields = append(h.fields, f)
	case "te":
		h.bad = h.bad || f.Value != "trailers"
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		h.bad = true // fields of HTTP/1
	case "grpc-message-type", "grpc-message", "grpc-status":
		// The protocol reserves these fields, but requests do not use them.
	case "host":
		h.hosts++
		h.fields = append(h.fields, f)
	default:
		h.bad = h.bad || !validName(f.Name)
		for i := range r.server.o.Keep {
			if keep := &r.server.o.Keep[i]; keep.Name == f.Name && h.kept[i] == "" {
				h.kept[i] = keep.Value(f.Value)
			}
		}
		if strings.HasSuffix(f.Name, binarySuffix) {
			if _, err := decodeBinary(f.Value); err != nil {
				h.badBinary = f.Name
			}
		}
		h.fields = append(h.fields, f)
	}
	h.bad = h.bad || !httpguts.ValidHeaderFieldValue(f.Value)
}

func (h *head) addPseudo(f hpack.HeaderField) {
	var which pseudo
	switch f.Name {
	case ":method":
		which, h.pseudo.method = pseudoMethod, f.Value
	case ":scheme":
		which = pseudoScheme
	case ":path":
		which, h.pseudo.path = pseudoPath, f.Value
	case ":authority":
		which, h.pseudo.authority = pseudoAuthority, f.Value
	default:
		h.bad = true
	}
	if h.regular || h.pseudo.seen&which != 0 || !httpguts.ValidHeaderFieldValue(f.Value) {
		h.bad = true // a pseudo field behind others, twice, or with an invalid value
	}
	h.pseudo.seen |= which
}

// validName reports whether name is the name of a field: a token in lower case.
func validName(name string) bool {
	for i := range len(name) {
		if b := name[i]; !httpguts.IsTokenRune(rune(b)) || 'A' <= b && b <= 'Z' {
			return false
		}
	}
	return name != ""
}

// malformed reports whether the header of a request is malformed by RFC 9113, section
// 8.3.
func (h *head) malformed() bool {
	return h.bad || h.pseudo.seen&pseudoNeeded != pseudoNeeded || h.pseudo.path == ""
}

// refuse returns the answer to a request whose header already decides it. Nil: a handler
// decides.
func (s *Server) refuse(h *head, m *method) *response {
	switch {
	case h.long:
		return refusal(codes.ResourceExhausted, fmt.Sprintf("the header list is larger than %d bytes", s.o.MaxHeaderBytes))
	case h.hosts > 1:
		return &response{http: http.StatusBadRequest, code: codes.Internal, text: "there are several hosts"}
	case !isGRPC(h.contentType):
		return &response{http: http.StatusUnsupportedMediaType, code: codes.InvalidArgument, text: fmt.Sprintf("invalid gRPC request content-type %q", brief(h.contentType))}
	case h.timeout.malformed != "":
		return &response{http: http.StatusBadRequest, code: codes.Internal, text: h.timeout.malformed}
	case h.badBinary != "":
		return &response{http: http.StatusBadRequest, code: codes.Internal, text: fmt.Sprintf("malformed binary metadata in header %q", brief(h.badBinary))}
	case h.pseudo.seen&pseudoAuthority == 0 && h.hosts == 0:
		return &response{http: http.StatusBadRequest, code: codes.Internal, text: "no host or :authority header present"}
	case h.pseudo.method != http.MethodPost:
		return &response{http: http.StatusMethodNotAllowed, code: codes.Internal, text: fmt.Sprintf("the method is %q and not POST", brief(h.pseudo.method))}
	case h.timeout.set && h.timeout.after <= 0:
		return refusal(codes.DeadlineExceeded, "the deadline has passed already")
	case m == nil:
		return refusal(codes.Unimplemented, "unknown method "+brief(h.pseudo.path))
	case h.encoding != "" && h.encoding != identity:
		res := refusal(codes.Unimplemented, fmt.Sprintf("grpc-encoding %q is not understood: do not compress messages", brief(h.encoding)))
		res.trailer = []hpack.HeaderField{{Name: "grpc-accept-encoding", Value: identity}}
		return res
	}
	return nil
}

// brief returns the beginning of what a client has sent, to quote it in a message.
func brief(text string) string { return text[:min(len(text), maxBrief)] }

const maxBrief = 200

const contentType = "application/grpc"

// isGRPC reports whether a content type is a gRPC one, such as application/grpc+proto.
func isGRPC(t string) bool {
	rest, ok := strings.CutPrefix(t, contentType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// subtype returns what follows application/grpc in the content type, such as +proto.
func (h *head) subtype() string {
	t, ok := strings.CutPrefix(h.contentType, contentType)
	if !ok || len(t) < 2 || t[0] != '+' {
		return ""
	}
	return t
}

// identity is the encoding of messages that are not compressed, as without an encoding. No other is
// understood: Envoy compresses nothing.
const identity = encoding.Identity

// units are the units of grpc-timeout, in the order of "numSMH".
var units = [...]time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour}

// parseTimeout reads grpc-timeout: up to 8 digits and a unit.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	last := len(text) - 1
	which := strings.IndexByte("numSMH", text[last])
	n, err := strconv.ParseUint(text[:last], 10, 63)
	if which < 0 || err != nil {
		return 0, false
	}
	if n > uint64(math.MaxInt64/units[which]) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * units[which], true
}

// binarySuffix ends the names of fields whose values are base64.
const binarySuffix = "-bin"

// readMetadata turns header fields into what handlers see.
func readMetadata(fields []hpack.HeaderField, authority string) metadata.MD {
	md := make(metadata.MD, len(fields)+1)
	for _, f := range fields {
		value := f.Value
		if strings.HasSuffix(f.Name, binarySuffix) {
			value, _ = decodeBinary(value) // emit has checked it
		}
		md[f.Name] = append(md[f.Name], value)
	}
	if authority != "" {
		md[":authority"] = []string{authority}
	} else if host := md["host"]; host != nil {
		md[":authority"] = host
	}
	delete(md, "host")
	return md
}

// named returns the fields with these names, and their size as in RFC 9113, section 6.5.2. The
// result is nil if there are none.
func (h *head) named(names []string) (md metadata.MD, size int) {
	for i := range h.fields {
		f := &h.fields[i]
		if !slices.Contains(names, f.Name) {
			continue
		}
		if md == nil {
			md = make(metadata.MD, len(names))
		}
		md[f.Name] = append(md[f.Name], f.Value)
		size += int(f.Size())
	}
	return md, size
}

// decodeBinary reads base64 with padding or without.
func decodeBinary(text string) (string, error) {
	encoding := base64.RawStdEncoding
	if len(text)%4 == 0 {
		encoding = base64.StdEncoding
	}
	b, err := encoding.DecodeString(text)
	return string(b), err
}

// appendMetadata appends what a handler has set, without the fields that the protocol
// reserves.
func appendMetadata(to []hpack.HeaderField, md metadata.MD) []hpack.HeaderField {
	for name, values := range md {
		if name = strings.ToLower(name); reserved(name) || !validName(name) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, binarySuffix) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			to = append(to, hpack.HeaderField{Name: name, Value: v})
		}
	}
	return to
}

// reserved reports whether the protocol reserves a field.
func reserved(name string) bool {
	switch name {
	case "content-type", "te", "user-agent", "grpc-encoding", "grpc-message", "grpc-message-type", "grpc-status", "grpc-status-details-bin", "grpc-timeout":
		return true
	}
	return strings.HasPrefix(name, ":")
}

// percentEncoded encodes a status message for grpc-message: all but printable ASCII is
// encoded, and bytes that are not UTF-8 become U+FFFD.
func percentEncoded(text string) string {
	if !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '%' }) {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(strings.ToValidUTF8(text, "\uFFFD")) {
		if c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
