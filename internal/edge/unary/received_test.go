package unary_test

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An answer is what a client has received on one stream.
type answer struct {
	headers [][]hpack.HeaderField // of every HEADERS, with the pseudo header fields
	data    []byte
	frames  int  // DATA frames
	ended   bool // END_STREAM was seen
	reset   *http2.ErrCode
	resets  int // how often the server has reset the stream
}

// over reports whether the stream is closed for the server.
func (a *answer) over() bool { return a.ended || a.reset != nil }

// last returns a header field of the last HEADERS, which has the status of the call.
func (a *answer) last(name string) string {
	if len(a.headers) == 0 {
		return ""
	}
	return field(a.headers[len(a.headers)-1], name)
}

// first returns a header field of the first HEADERS.
func (a *answer) first(name string) string {
	if len(a.headers) == 0 {
		return ""
	}
	return field(a.headers[0], name)
}

func field(fields []hpack.HeaderField, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// String describes an answer for errors. It is short.
func (a *answer) String() string {
	var b strings.Builder
	for _, h := range a.headers {
		b.WriteByte('[')
		for i, f := range h {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s: %.200s", f.Name, f.Value)
		}
		b.WriteString("] ")
	}
	fmt.Fprintf(&b, "%d bytes in %d DATA", len(a.data), a.frames)
	if a.ended {
		b.WriteString(", ended")
	}
	if a.reset != nil {
		fmt.Fprintf(&b, ", reset %v", *a.reset)
	}
	return b.String()
}

// A goAway is a GOAWAY frame.
type goAway struct {
	code  http2.ErrCode
	last  uint32
	debug string
}

// received is what a client has read from a connection. Its faults are what a server must
// not send, whatever the client has sent.
type received struct {
	answers  map[uint32]*answer
	settings map[http2.SettingID]uint32
	first    bool      // a frame has been read
	acked    int       // how many SETTINGS the server has acknowledged
	pings    [][8]byte // from the server
	pongs    [][8]byte
	window   int64 // the sum of WINDOW_UPDATEs of stream 0
	windows  map[uint32]int64
	goAways  []goAway
	frame    int // the largest frame that the server may send
	data     int // bytes of the connection's window that were used
	faults   []string
	err      error // what reading ended with
}

func newReceived() *received {
	return &received{frame: 1 << 14, answers: map[uint32]*answer{}, settings: map[http2.SettingID]uint32{}, windows: map[uint32]int64{}}
}

// fault notes something that a server must not send.
func (r *received) fault(format string, args ...any) {
	if len(r.faults) > 5 {
		return
	}
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// of returns the answer on a stream.
func (r *received) of(id uint32) *answer {
	a := r.answers[id]
	if a == nil {
		a = &answer{}
		r.answers[id] = a
	}
	return a
}

// record records a frame. It does not keep the frame itself.
func (r *received) record(f http2.Frame) {
	h := f.Header()
	// A GOAWAY may come first: the client may not speak HTTP/2.
	if !r.first && h.Type != http2.FrameGoAway && (h.Type != http2.FrameSettings || h.Flags.Has(http2.FlagSettingsAck)) {
		r.fault("the first frame is not SETTINGS but %v", h)
	}
	r.first = true
	if int(h.Length) > r.frame {
		r.fault("a frame that is too large: %v", h)
	}
	if h.StreamID%2 == 0 && h.StreamID != 0 {
		r.fault("a stream of the server's own: %v", h)
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		r.headers(f)
	case *http2.DataFrame:
		a := r.of(h.StreamID)
		if len(a.headers) != 1 || a.over() {
			r.fault("DATA at the wrong time: %v, %v", h, a)
		}
		a.data = append(a.data, f.Data()...)
		a.frames++
		a.ended = a.ended || f.StreamEnded()
		r.data += int(h.Length)
	case *http2.RSTStreamFrame:
		a := r.of(h.StreamID)
		if a.resets++; a.resets == 1 {
			code := f.ErrCode
			a.reset = &code
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			r.acked++
			return
		}
		if err := f.ForeachSetting(func(s http2.Setting) error {
			r.settings[s.ID] = s.Val
			return s.Valid()
		}); err != nil {
			r.fault("settings: %v", err)
		}
	case *http2.PingFrame:
		if f.IsAck() {
			r.pongs = append(r.pongs, f.Data)
		} else {
			r.pings = append(r.pings, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if h.StreamID == 0 {
			r.window += int64(f.Increment)
		} else {
			r.windows[h.StreamID] += int64(f.Increment)
		}
	case *http2.GoAwayFrame:
		g := goAway{f.ErrCode, f.LastStreamID, string(f.DebugData())}
		if n := len(r.goAways); n > 0 && g.last > r.goAways[n-1].last {
			r.fault("GOAWAY takes back what it has said: %v after %v", g, r.goAways[n-1])
		}
		r.goAways = append(r.goAways, g)
	default:
		r.fault("a frame that no server of unary methods sends: %v", h)
	}
}

// headers records HEADERS: the first on a stream begin an answer, the second end it.
func (r *received) headers(f *http2.MetaHeadersFrame) {
	a := r.of(f.StreamID)
	if a.over() {
		r.fault("HEADERS after the end: %v", a)
	}
	a.headers = append(a.headers, slices.Clone(f.Fields))
	a.ended = f.StreamEnded()
	switch n, status := len(a.headers), f.PseudoValue("status"); {
	case n > 2:
		r.fault("HEADERS for the %dth time: %v", n, a)
	case n == 1 && (status == "" || a.first("content-type") == ""):
		r.fault("an answer without status or content-type: %v", a)
	case n == 2 && (status != "" || !a.ended):
		r.fault("trailers with a status or without END_STREAM: %v", a)
	case a.ended && a.last("grpc-status") == "":
		r.fault("an end without grpc-status: %v", a)
	}
	for _, fields := range f.Fields {
		if fields.Name != strings.ToLower(fields.Name) {
			r.fault("a name in capitals: %v", fields.Name)
		}
	}
}
