package unary_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// limits are the options of both servers.
var limits = unary.Options{
	MaxMessageBytes: 4096, MaxStreams: 8, MaxHeaderBytes: 8192,
	Lifetime: unary.Lifetime{
		MinPingInterval: time.Nanosecond, // and scripts let time pass before each PING
		WriteTimeout:    time.Hour,       // longer than any script leaves windows closed
	},
}

// A step is one action of a script. After it the script waits until the server is idle.
type step struct {
	what string
	do   func(*scriptRun)
	last bool // unary ends the connection here
}

// A scriptRun is a script that runs against one server.
type scriptRun struct {
	s *testServer
	p *testClient

	opened  map[uint32]string // the requests by stream
	window  int64             // what the server may send on the connection
	initial int64             // and on a stream, without updates
	updates map[uint32]int64
	givenUp map[uint32]bool // streams that the script has reset before their answer was over
	faults  []string
}

// An outcome is what a script has received.
type outcome struct {
	streams map[uint32]answer
	asked   map[uint32]string
	pongs   int
	acked   int
	goAway  []http2.ErrCode
	closed  bool
	faults  []string
}

// play runs a script against a server. It does not fail the test: it returns faults, so
// that rapid can shrink the script.
func (script script) servicePath(t *testing.T, k serverKind) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		l := pipes()
		s := startServer(t, k, limits, l)
		m := onlyReading
		if script.acknowledging {
			m = acknowledging
		}
		r := &scriptRun{
			s: s, p: newClient(t, l.dial(t), m), opened: map[uint32]string{}, window: 65535, initial: 65535,
			updates: map[uint32]int64{}, givenUp: map[uint32]bool{},
		}
		_ = r.p.tryToSend(func(w *frameWriter) { w.preface() })
		synctest.Wait()
		for _, st := range script.steps {
			if st.last {
				o = r.outcome() // the outcome up to this step
				st.do(r)
				synctest.Wait()
				o.goAway, o.closed = r.outcome().goAway, !r.p.alive()
				r.p.close()
				synctest.Wait()
				return
			}
			st.do(r)
			synctest.Wait()
			r.checkWindows(script.acknowledging)
		}
		// At the end the gate and the windows open, so that every call is answered.
		if !script.acknowledging {
			r.write(func(w *frameWriter) {
				w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
				w.update(0, 1<<24)
			})
			synctest.Wait()
		}
		s.openGate()
		synctest.Wait()
		o = r.outcome()
		r.p.close()
		synctest.Wait()
	})
	return o
}

// write sends what f writes. It ignores errors: the server may have closed the connection.
func (r *scriptRun) write(f func(*frameWriter)) { _ = r.p.tryToSend(f) }

// reset resets a stream. The answer to a reset stream is compared only if it was over
// before.
func (r *scriptRun) reset(id uint32, code http2.ErrCode) {
	r.p.mu.Lock()
	if a := r.p.read.answers[id]; a == nil || !a.over() {
		r.givenUp[id] = true
	}
	r.p.mu.Unlock()
	r.write(func(w *frameWriter) { w.reset(id, code) })
}

// checkWindows checks that the server stays within the client's windows.
func (r *scriptRun) checkWindows(acknowledging bool) {
	if acknowledging {
		return
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if int64(r.p.read.data) > r.window {
		r.faults = append(r.faults, fmt.Sprintf("%d bytes on a window of %d", r.p.read.data, r.window))
	}
	for id, a := range r.p.read.answers {
		// A window that shrinks does not take back what was sent before.
		if most := max(r.initial, 65535) + r.updates[id]; int64(len(a.data)) > most {
			r.faults = append(r.faults, fmt.Sprintf("%d bytes on a stream's window of %d", len(a.data), most))
		}
	}
}

func (r *scriptRun) outcome() outcome {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	o := outcome{
		streams: map[uint32]answer{}, asked: maps.Clone(r.opened), pongs: len(r.p.read.pongs), acked: r.p.read.acked,
		closed: r.p.read.err != nil, faults: append(slices.Clone(r.faults), r.p.read.faults...),
	}
	for id, a := range r.p.read.answers {
		if !r.givenUp[id] {
			o.streams[id] = *a
		}
	}
	for _, g := range r.p.read.goAways {
		o.goAway = append(o.goAway, g.code)
	}
	return o
}

// A script is a sequence of steps.
type script struct {
	acknowledging bool // the client acknowledges and gives windows back
	steps         []step
}

// String describes the script for a failing test.
func (script script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "acknowledging: %v\n", script.acknowledging)
	for i, s := range script.steps {
		fmt.Fprintf(&b, "%2d. %s\n", i+1, s.what)
	}
	return b.String()
}

// A randomRequest is a request that may be framed in any way.
type randomRequest struct {
	method   string
	more     []string // see request
	body     []byte
	chunks   []int // lengths of DATA frames; one more frame has the rest
	split    []int // lengths of header fragments, likewise
	pad      bool
	priority bool
	end      endStream
}

// An endStream says which frame has END_STREAM.
type endStream int

const (
	onHeaders endStream = iota
	onData
	onEmptyData
	never
)

func (e endStream) String() string { return [...]string{"HEADERS", "DATA", "empty DATA", "nowhere"}[e] }

func (a randomRequest) String() string {
	b := fmt.Sprintf("%x", a.body)
	if len(b) > 40 {
		b = b[:40] + "…"
	}
	return fmt.Sprintf("%s %.300q body %s (%d) in %v, headers in %v, padded %v, priority %v, END_STREAM on %v",
		a.method, a.more, b, len(a.body), a.chunks, a.split, a.pad, a.priority, a.end)
}

// write writes the request on stream id.
func (a randomRequest) write(w *frameWriter, id uint32) {
	block := w.fields(request(a.method, a.more...))
	param := http2.HeadersFrameParam{StreamID: id, EndStream: a.end == onHeaders}
	if a.priority {
		param.Priority = http2.PriorityParam{StreamDep: 0, Weight: 7, Exclusive: true}
	}
	if a.pad {
		param.PadLength = 9
	}
	fragments := split(block, a.split)
	param.BlockFragment, param.EndHeaders = fragments[0], len(fragments) == 1
	must(w.fr.WriteHeaders(param))
	for i, f := range fragments[1:] {
		must(w.fr.WriteContinuation(id, i == len(fragments)-2, f))
	}
	if a.end == onHeaders {
		return
	}
	parts := split(a.body, a.chunks)
	for i, part := range parts {
		end := a.end == onData && i == len(parts)-1
		if a.pad {
			must(w.fr.WriteDataPadded(id, end, part, make([]byte, 11)))
		} else {
			w.data(id, end, part)
		}
	}
	if a.end == onEmptyData {
		w.data(id, true, nil)
	}
}

// split cuts b into chunks of these lengths, and one chunk of the rest.
func split(b []byte, lengths []int) [][]byte {
	var out [][]byte
	for _, n := range lengths {
		n = min(n, len(b))
		out = append(out, b[:n])
		b = b[n:]
	}
	return append(out, b)
}

// oneOf draws one of some values.
func oneOf[T any](t *rapid.T, label string, of ...T) T { return rapid.SampledFrom(of).Draw(t, label) }

// oneIn draws true once in n.
func oneIn(t *rapid.T, label string, n int) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

// drawHeaders draws extra header fields. Most are valid.
func drawHeaders(t *rapid.T) []string {
	var more []string
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		more = append(more, oneOf(t, "field",
			"user-agent: test/1", "x-text: some text", "x-text: other  text", "x-empty: ", "grpc-accept-encoding: gzip, identity",
			"x-bin: AQI", "x-bin: AQID", "x-bin: AQ==", "x-bin: ", "grpc-trace-bin: AAAA", "grpc-timeout: 5S", "grpc-timeout: 99999999H",
			"grpc-timeout: 1000000u", "te: trailers", "-te", "host: other", "x-long: "+strings.Repeat("long ", 600), "set-fail: 1",
			"content-type: application/grpc+proto", "content-type: application/grpc;charset=utf-8", "content-type: application/grpc+",
			"grpc-encoding: identity", "grpc-encoding: gzip", "grpc-previous-rpc-attempts: 1", "grpc-status: 5", "grpc-message-type: x",
			"cookie: a=b", "cookie: c=d", "x-forwarded-for: 1.2.3.4"))
	}
	if oneIn(t, "odd", 3) {
		more = append(more, oneOf(t, "odd field",
			"content-type: text/plain", "-content-type", "content-type: application/grpcx", "content-type: Application/grpc",
			"grpc-timeout: 0S", "grpc-timeout: 0n", "grpc-timeout: S", "grpc-timeout: 5", "grpc-timeout: ", "grpc-timeout: 5x", "grpc-timeout: -5S", "grpc-timeout: 123456789S",
			"grpc-timeout: +5S", "grpc-timeout: 5 S", "grpc-timeout: 1n",
			"grpc-encoding: snappy", "grpc-encoding: GZIP", "grpc-encoding: ",
			"x-bin: AQ,Ag", "x-bin: A", "x-bin: ****", "x-bin: AQ=", "x-bin: _-8=", "x-bin: AR",
			"-:authority", ":method: GET", ":method: post", "connection: close")) // not a field that alone is too long: then grpc-go ends the connection
	}
	return more
}

// drawBody draws the body of a request, mostly one whole message.
func drawBody(t *rapid.T, method string) []byte {
	message := func() []byte {
		switch method {
		case "Large", "Bulk":
			return value(oneOf(t, "size", "0", "1", "100", "16379", "16384", "70000", "x"))
		case "Fail", "Refuse":
			return value(oneOf(t, "failure", "1:", "2:text", "13:100% é\n", "5:bad \xff utf", "plain", "deadline", "canceled", "wrapped", "details", "0:fine", "99:strange", "x"))
		}
		return value(oneOf(t, "text", "", "x", "hello", strings.Repeat("long", 300), "\x00\xff"))
	}
	if !oneIn(t, "odd body", 3) {
		return framed(0, message())
	}
	return oneOf(t, "body", func() []byte { return nil },
		func() []byte { return framed(0, message())[:rapid.IntRange(0, 5).Draw(t, "cut")] },
		func() []byte { m := framed(0, message()); return m[:rapid.IntRange(0, len(m)-1).Draw(t, "cut")] },
		func() []byte { return framed(0, []byte("\x0a\xffnot protobuf")) },
		func() []byte { return framed(1, message()) },
		func() []byte { return framed(byte(rapid.IntRange(2, 255).Draw(t, "flag")), message()) },
		func() []byte { return framed(0, value(strings.Repeat("a", 4096))) },
		func() []byte { return framed(0, make([]byte, 4096)) },
		func() []byte { return binary.BigEndian.AppendUint32([]byte{0}, 1<<31) },
		func() []byte { return append(framed(0, message()), framed(0, message())...) },
		func() []byte { return append(framed(0, message()), 0, 0) },
		func() []byte { return append(framed(0, message()), framed(0, []byte("\x0a\xff"))...) },
		func() []byte { return append(framed(0, message()), 0, 0xff, 0, 0, 0) },
	)()
}

var methods = []string{
	"Echo", "Echo", "Ready", "Ready", "Tell", "Tell", "Set", "Fail", "Refuse", "Large", "Bulk", "Panic", "Crash", "Break",
	"Gate", "Slow", "Wait", "Stream", "None", "/test.None/Echo", "/Echo", "/", "//", "/test.Play/", "/a/test.Play/Echo", "*",
}

func drawRequest(t *rapid.T) randomRequest {
	a := randomRequest{method: rapid.SampledFrom(methods).Draw(t, "method"), more: drawHeaders(t)}
	if !strings.HasPrefix(a.method, "/") && a.method == "*" {
		a.more, a.method = append(a.more, ":path: "+oneOf(t, "path", "*", "Echo", "test.Play/Echo")), "Echo"
	}
	a.body = drawBody(t, a.method)
	a.chunks = rapid.SliceOfN(rapid.IntRange(0, 9), 0, 4).Draw(t, "chunks")
	a.split = rapid.SliceOfN(rapid.IntRange(0, 30), 0, 3).Draw(t, "split")
	a.pad, a.priority = oneIn(t, "pad", 4), oneIn(t, "priority", 4)
	a.end = oneOf(t, "end", onData, onData, onData, onData, onEmptyData, never, onHeaders)
	return a
}

// drawStep draws the next step. ids is the next stream to open.
func drawStep(t *rapid.T, ids *uint32, acknowledging bool) step {
	some := func() uint32 { return uint32(rapid.IntRange(0, int(*ids/2)).Draw(t, "stream"))*2 + 1 } // may not be open yet
	old := func() uint32 { return min(some(), *ids-2) }
	ask := func() step {
		a, id := drawRequest(t), *ids
		*ids += 2
		return step{what: fmt.Sprintf("stream %d: %v", id, a), do: func(r *scriptRun) {
			r.opened[id] = a.String()
			r.write(func(w *frameWriter) { a.write(w, id) })
		}}
	}
	if *ids == 1 {
		return ask()
	}
	steps := []func() step{
		ask, ask, ask, ask, ask,
		func() step {
			id, code := old(), oneOf(t, "code", http2.ErrCodeCancel, http2.ErrCodeNo, http2.ErrCode(0xbad))
			return step{what: fmt.Sprintf("reset %d with %v", id, code), do: func(r *scriptRun) { r.reset(id, code) }}
		},
		func() step {
			id, n := some(), uint32(rapid.IntRange(1, 9).Draw(t, "dependency"))
			return step{what: fmt.Sprintf("priority of %d", id), do: func(r *scriptRun) {
				r.write(func(w *frameWriter) {
					must(w.fr.WritePriority(id, http2.PriorityParam{StreamDep: n*2 + id, Weight: 3}))
				})
			}}
		},
		func() step {
			typ, flags := http2.FrameType(rapid.IntRange(0x20, 0xff).Draw(t, "type")), http2.Flags(rapid.IntRange(0, 255).Draw(t, "flags"))
			return step{what: fmt.Sprintf("a frame of type %d", typ), do: func(r *scriptRun) {
				r.write(func(w *frameWriter) { w.raw(typ, flags, 1, []byte("whatever")) })
			}}
		},
		func() step {
			return step{what: "ping", do: func(r *scriptRun) {
				time.Sleep(time.Minute)
				r.write(func(w *frameWriter) { must(w.fr.WritePing(false, [8]byte{1, 2, 3})) })
			}}
		},
		func() step {
			n := oneOf(t, "table", 0, 1, 100, 4096, 65536)
			return step{what: fmt.Sprintf("header table of %d", n), do: func(r *scriptRun) {
				r.write(func(w *frameWriter) { w.settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(n)}) })
			}}
		},
		func() step {
			n := oneOf(t, "frame", 16384, 20000, 1<<24-1)
			return step{what: fmt.Sprintf("frames of up to %d", n), do: func(r *scriptRun) {
				r.p.frames(n)
				r.write(func(w *frameWriter) {
					w.settings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: uint32(n)}, http2.Setting{ID: 0x99, Val: 7})
				})
			}}
		},
		func() step {
			d := oneOf(t, "time", time.Millisecond, 2*time.Second, 10*time.Second)
			return step{what: "time passes: " + d.String(), do: func(*scriptRun) { time.Sleep(d) }}
		},
		func() step {
			return step{what: "GOAWAY of the client", do: func(r *scriptRun) {
				r.write(func(w *frameWriter) { must(w.fr.WriteGoAway(0, http2.ErrCodeNo, []byte("bye"))) })
			}}
		},
	}
	if !acknowledging {
		steps = append(
			steps,
			func() step {
				n := oneOf(t, "window", 0, 1, 10, 1000, 65535, 200000)
				return step{what: fmt.Sprintf("windows of %d", n), do: func(r *scriptRun) {
					r.initial = max(r.initial, int64(n)) // bytes that were sent before still count
					r.write(func(w *frameWriter) { w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)}) })
				}}
			},
			func() step {
				id, n := old(), rapid.IntRange(1, 70000).Draw(t, "update")
				if oneIn(t, "connection", 2) {
					id = 0
				}
				return step{what: fmt.Sprintf("window of %d: %d more", id, n), do: func(r *scriptRun) {
					if id == 0 {
						r.window += int64(n)
					} else {
						r.updates[id] += int64(n)
					}
					r.write(func(w *frameWriter) { w.update(id, uint32(n)) })
				}}
			})
	}
	return rapid.SampledFrom(steps).Draw(t, "step")()
}

func drawScript(t *rapid.T) script {
	s := script{acknowledging: rapid.Bool().Draw(t, "acknowledging")}
	ids := uint32(1)
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		s.steps = append(s.steps, drawStep(t, &ids, s.acknowledging))
	}
	return s
}

// A difference is a case that the two servers may answer differently.
type difference struct {
	name, why string
	// equalize makes the answers equal if they differ only in this case.
	equalize func(asked string, ours, grpcGo *answer)
}

// differences are all allowed differences.
var differences = []difference{
	{
		"empty message", "grpc-go sends grpc-message also with OK, where no client reads it",
		func(_ string, ours, grpcGo *answer) {
			for _, a := range []*answer{ours, grpcGo} {
				for i, h := range a.headers {
					a.headers[i] = slices.DeleteFunc(h, func(f hpack.HeaderField) bool { return f.Name == "grpc-message" && f.Value == "" })
				}
			}
		},
	},
	{
		"accept list", "the protocol demands grpc-accept-encoding in the answer to an unknown encoding; grpc-go leaves it out",
		func(_ string, ours, _ *answer) {
			if ours.last("grpc-status") == "12" {
				for i, h := range ours.headers {
					ours.headers[i] = slices.DeleteFunc(h, func(f hpack.HeaderField) bool { return f.Name == "grpc-accept-encoding" })
				}
			}
		},
	},
	{
		"words", "a refusal of the transport has the same code, but a shorter text",
		func(_ string, ours, grpcGo *answer) {
			x, y := ours.last("grpc-message"), grpcGo.last("grpc-message")
			for _, w := range words {
				if strings.HasPrefix(x, w[0]) && strings.HasPrefix(y, w[1]) && ours.last("grpc-status") == grpcGo.last("grpc-status") {
					setLast(ours, "grpc-message", y)
				}
			}
		},
	},
	{
		"deadline", "at the deadline grpc-go resets the stream, while the handler answers DEADLINE_EXCEEDED: either may come first",
		func(asked string, ours, grpcGo *answer) {
			canceled := func(a *answer) bool { return a.reset != nil && *a.reset == http2.ErrCodeCancel }
			late := func(a *answer) bool { return a.last("grpc-status") == "4" || canceled(a) }
			if strings.Contains(asked, "grpc-timeout") && late(ours) && late(grpcGo) && (canceled(ours) || canceled(grpcGo)) {
				*ours = *grpcGo
			}
		},
	},
	{
		"patience", "unary refuses a request when it has ended or timed out; grpc-go refuses it at once, or waits without bound",
		func(asked string, ours, grpcGo *answer) {
			late := ours.last("grpc-message") == "the request is not whole in time"
			refused := grpcGo.over() && grpcGo.last("grpc-status") != "0"
			if strings.Contains(asked, "END_STREAM on nowhere") && (!ours.over() && refused || late) {
				*ours = *grpcGo
			}
		},
	},
	{
		"cardinality", "a call without a message or with two is UNIMPLEMENTED by the protocol, and INTERNAL with grpc-go",
		func(_ string, ours, grpcGo *answer) {
			const violation = "cardinality violation: "
			if strings.HasPrefix(ours.last("grpc-message"), violation) && ours.last("grpc-status") == "12" &&
				strings.HasPrefix(grpcGo.last("grpc-message"), violation) && grpcGo.last("grpc-status") == "13" {
				setLast(ours, "grpc-status", "13")
			}
		},
	},
	{
		"second message", "unary refuses a second message without reading it; grpc-go reads it, and reports its faults",
		func(asked string, ours, grpcGo *answer) {
			early := grpcGo.last("grpc-status") == "" && strings.Contains(asked, "END_STREAM on nowhere")
			refused := grpcGo.ended && grpcGo.last("grpc-status") != "0"
			if strings.HasPrefix(ours.last("grpc-message"), "cardinality violation: received multiple ") && (early || refused) {
				*ours = *grpcGo
			}
		},
	},
	{
		"several faults", "if a header list has two faults, the answer may name either",
		func(asked string, ours, grpcGo *answer) {
			malformed := ours.reset != nil && *ours.reset == http2.ErrCodeProtocol
			if strings.Contains(asked, "connection: close") && malformed && grpcGo.first(":status") == "400" {
				*ours = *grpcGo
			}
		},
	},
	{
		"subtype", "a semicolon begins a parameter of the content type; grpc-go takes it for a subtype",
		func(asked string, ours, grpcGo *answer) {
			if strings.Contains(asked, "application/grpc;") && strings.Contains(grpcGo.first("content-type"), "charset") {
				setFirst(grpcGo, "content-type", ours.first("content-type"))
			}
		},
	},
	{
		"header list", "unary answers a header list that is too long; grpc-go resets the stream",
		func(_ string, ours, grpcGo *answer) {
			if strings.HasPrefix(ours.last("grpc-message"), "the header list is larger") && grpcGo.reset != nil && *grpcGo.reset == http2.ErrCodeFrameSize {
				*ours = *grpcGo
			}
		},
	},
	{
		"streaming", "unary does not serve methods that stream",
		func(asked string, ours, grpcGo *answer) {
			if strings.HasPrefix(asked, "Stream ") && ours.last("grpc-status") == "12" && grpcGo.over() {
				*ours = *grpcGo
			}
		},
	},
}

// words are the beginnings of messages that differ: of unary, and of grpc-go.
var words = [][2]string{
	{"the deadline has passed", "context deadline exceeded"},
	{"unknown method ", "malformed method name: "},
	{"unknown method ", "unknown service "},
	{"unknown method ", "unknown method "},
	{"malformed grpc-timeout: ", "malformed grpc-timeout: "},
	{"malformed binary metadata in header ", "malformed binary metadata "},
	{"the method is ", "Received a HEADERS frame with :method "},
	{"grpc-encoding ", "grpc: Decompressor is not installed for grpc-encoding "},
	{"there are several hosts", "num values of :authority: "},
	{"received message larger than max (", "grpc: received message larger than max ("},
	{"compressed flag set with identity or empty encoding", "grpc: compressed flag set with identity or empty encoding"},
	{"received unexpected payload format ", "grpc: received unexpected payload format "},
}

// setFirst changes a field of the first HEADERS.
func setFirst(a *answer, name, value string) { change(a.headers[0], name, value) }

// setLast changes a field of the last HEADERS.
func setLast(a *answer, name, value string) { change(a.headers[len(a.headers)-1], name, value) }

func change(h []hpack.HeaderField, name, value string) {
	for i := range h {
		if h[i].Name == name {
			h[i].Value = value
		}
	}
}

// lines describes an answer in lines that can be compared.
func lines(a *answer) []string {
	var out []string
	for i, h := range a.headers {
		var lines []string
		for _, f := range h {
			lines = append(lines, fmt.Sprintf("headers %d: %s: %q", i, f.Name, f.Value))
		}
		slices.Sort(lines) // metadata has no order
		out = append(out, lines...)
	}
	out = append(out, fmt.Sprintf("data: %d bytes, %.100x", len(a.data), a.data))
	switch {
	case a.ended:
		out = append(out, "ended") // a reset behind the end only stops the request
	case a.reset != nil:
		out = append(out, "reset: "+a.reset.String())
	default:
		out = append(out, "open")
	}
	return out
}

// sameAnswers is the property: both servers answer the same.
func sameAnswers(tt *testing.T, a, b serverKind) func(*rapid.T) {
	return func(t *rapid.T) {
		s := drawScript(t)
		for _, d := range s.compare(tt, a, b) {
			t.Errorf("%s", d)
		}
		if t.Failed() {
			t.Log(s.String())
		}
	}
}

// compare runs a script against both servers, and returns the differences.
func (script script) compare(t *testing.T, a, b serverKind) []string {
	got, want := script.servicePath(t, a), script.servicePath(t, b)
	var out []string
	if a.name != grpcGo.name {
		out = got.faults
	}
	for _, id := range slices.Sorted(maps.Keys(want.asked)) {
		asked, x, y := want.asked[id], clone(got.streams[id]), clone(want.streams[id])
		if a.name != grpcGo.name && x.resets > 1 {
			out = append(out, fmt.Sprintf("stream %d was reset %d times: %v", id, x.resets, &x))
		}
		for _, d := range differences {
			d.equalize(asked, &x, &y)
		}
		if diff := cmp.Diff(lines(&y), lines(&x)); diff != "" {
			out = append(out, fmt.Sprintf("stream %d, %s\n(-%s +%s)\n%s", id, asked, b.name, a.name, diff))
		}
	}
	if got.pongs != want.pongs || got.acked != want.acked {
		out = append(out, fmt.Sprintf("%s acknowledged %d PINGs and %d SETTINGS, %s %d and %d", a.name, got.pongs, got.acked, b.name, want.pongs, want.acked))
	}
	// grpc-go closes connections without a GOAWAY.
	if got.closed != want.closed || !got.closed && len(got.goAway) != len(want.goAway) {
		out = append(out, fmt.Sprintf("%s: closed %v, GOAWAY %v; %s: %v, %v", a.name, got.closed, got.goAway, b.name, want.closed, want.goAway))
	}
	return out
}

func clone(a answer) answer {
	a.headers = slices.Clone(a.headers)
	for i := range a.headers {
		a.headers[i] = slices.Clone(a.headers[i])
	}
	a.data = slices.Clone(a.data)
	return a
}

// TestSame runs random scripts against both servers.
func TestSame(t *testing.T) { rapid.Check(t, sameAnswers(t, ours, grpcGo)) }

// TestGRPCGoIsDeterministic checks that grpc-go answers the same script the same way, so
// that what TestSame finds is no chance.
func TestGRPCGoIsDeterministic(t *testing.T) { rapid.Check(t, sameAnswers(t, grpcGo, grpcGo)) }

// FuzzSame does the same as TestSame, with scripts that the fuzzer makes.
func FuzzSame(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) { rapid.MakeFuzz(sameAnswers(t, ours, grpcGo))(t, b) })
}
