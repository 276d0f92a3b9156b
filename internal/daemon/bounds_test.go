package daemon

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// A hostileMessage costs as much as a client can make it cost.
type hostileMessage struct {
	name, method string
	message      []byte
	packed       bool   // it is sent compressed
	code         string // of the answer
}

// inside returns a field that holds b.
func inside(field protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
}

// hostileMessages are of most bytes at most, sent or unpacked. The domain has rules.
func hostileMessages(name string, most int) []hostileMessage {
	const (
		limit = rlsv3.RateLimitService_ShouldRateLimit_FullMethodName
		check = authv3.Authorization_Check_FullMethodName
		// header is as much of a header as authorization reads.
		header = 127 << 10
	)
	domain := inside(1, []byte(name))
	// What is left for the rest, beside the domain and the lengths around it.
	room := most - 64
	fill := func(b []byte) []byte { return bytes.Repeat(b, room/len(b)) }
	describe := func(entries []byte) []byte { return append(slices.Clone(domain), inside(2, entries)...) }
	entry := func(key, value string) []byte {
		return inside(1, append(inside(1, []byte(key)), inside(2, []byte(value))...))
	}
	override := inside(2, binary.AppendUvarint([]byte{16, 1, 8}, 1<<32-1)) // a limit that is not reached, each second
	long := describe(append(entry("k", strings.Repeat("v", room-64)), override...))
	var each []byte // descriptors of long values, each with a limit of its own
	for i := range window.MaxChecks {
		each = append(each, inside(2, append(entry(fmt.Sprint("api_key", i%2), fmt.Sprint(i, strings.Repeat("v", room/window.MaxChecks-64))), override...))...)
	}
	full := describe(append(bytes.Repeat(entry("k", strings.Repeat("v", room/4096-16)), 4096), override...))
	http := func(b []byte) []byte { return inside(1, inside(4, inside(2, b))) }
	line := func(name, value string) []byte {
		return inside(3, append(inside(1, []byte(name)), inside(2, []byte(value))...))
	}
	path := func(p string) []byte { return inside(4, []byte(p)) }
	// template is a check whose route has a template that names one entry as often as it can.
	template := func(entry, separator, value string, fields []byte) []byte {
		attributes := inside(4, inside(2, fields))
		for name, text := range map[string]string{
			"anonymous": "true", "domain": name, "x": value,
			"descriptors": strings.TrimSuffix(strings.Repeat(entry+separator, 4096/len(entry+separator)), separator),
		} {
			attributes = append(attributes, inside(10, append(inside(1, []byte(name)), inside(2, []byte(text))...))...)
		}
		return inside(1, attributes)
	}
	var all []hostileMessage
	for _, m := range []hostileMessage{
		{"empty entries", limit, describe(fill([]byte{0x0a, 0})), false, "0"},
		{"empty descriptors", limit, append(slices.Clone(domain), fill([]byte{0x12, 0})...), false, "0"},
		{"empty domains", limit, fill([]byte{0x0a, 0}), false, "13"},
		{"unknown fields", limit, append(describe(entry("k", "v")), bytes.Repeat([]byte{15 << 3, 1}, room/2-16)...), false, "13"},
		{"groups in groups", limit, append(bytes.Repeat([]byte{15<<3 | 3}, room/2), bytes.Repeat([]byte{15<<3 | 4}, room/2)...), false, "13"},
		{"limits", limit, describe(fill([]byte{0x12, 0})), false, "13"},
		{"one long value", limit, long, false, "0"},
		{"as many limits of long values as a request may have", limit, append(slices.Clone(domain), each...), false, "0"},
		{"too many limits of long values", limit, append(slices.Clone(domain), noisy(256, room/256-64, override)...), false, "0"},
		{"too many limits, half a message", limit, append(slices.Clone(domain), noisy(120, room/256-64, override)...), false, "0"},
		{"4096 long entries", limit, full, false, "0"},
		{"empty header fields", check, http(fill([]byte{0x1a, 0})), false, "0"},
		{"empty context", check, inside(1, fill([]byte{0x52, 0})), false, "0"},
		{"4096 header fields", check, http(bytes.Repeat(line("x-api-key", strings.Repeat("v", header/4096-10)), 4096)), false, "0"},
		{"cookies", check, http(line("cookie", strings.Repeat("a;", header/2))), false, "0"},
		{"parameters", check, http(path("/?" + strings.Repeat("a&", header/2))), false, "0"},
		{"escaped parameters", check, http(path("/?" + strings.Repeat("%61;", header/4))), false, "0"},
		{"schemes", check, http(line("authorization", strings.Repeat("a,", header/2))), false, "0"},
		{"a long path", check, http(path("/" + strings.Repeat("a", room-32))), false, "0"},
		{"a long host in each entry", check, template("host", ",", "", inside(5, bytes.Repeat([]byte("A"), header))), false, "0"},
		{"a long host in each descriptor", check, template("host", ";", "", inside(5, bytes.Repeat([]byte("A"), header))), false, "0"},
		{"a long header field in each descriptor", check, template("a=%REQ(a)%", ";", "", bytes.Repeat(line("a", strings.Repeat("v", header/4-8)), 4)), false, "0"},
		{"4096 header fields for each descriptor", check, template("a=%REQ(aaaaaaab)%", ";", "", bytes.Repeat(line("aaaaaaaa", ""), 4096)), false, "0"},
		{"a long key in each descriptor", check, template("api_key=%CONTEXT(x)%", ";", strings.Repeat("v", room-8<<10), nil), false, "0"},
		{"a long value in each descriptor", check, template("remote_address=%CONTEXT(x)%", ";", strings.Repeat("v", room-8<<10), nil), false, "0"},
		{"a short value in each descriptor", check, template("x", ";", "v", nil), false, "0"},
		{"noise", limit, append(slices.Clone(domain), noisy(window.MaxChecks, room/window.MaxChecks-64, override)...), false, "0"},
		{"noise again and again", limit, append(slices.Clone(domain), bytes.Repeat(noisy(2, room/window.MaxChecks-64, override), window.MaxChecks/2)...), false, "0"},
		{"metadata", check, inside(1, inside(11, fill([]byte{0x0a, 0}))), false, "0"},
	} {
		all = append(all, m)
		m.name, m.packed = m.name+", packed", true
		all = append(all, m)
	}
	return all
}

// noisy returns descriptors of one entry each, with values that cannot be compressed.
func noisy(n, length int, override []byte) (all []byte) {
	source := rand.NewChaCha8([32]byte{})
	for range n {
		value := make([]byte, length)
		_, _ = source.Read(value) // never fails
		entry := inside(1, append(inside(1, []byte("k")), inside(2, value)...))
		all = append(all, inside(2, append(entry, override...))...)
	}
	return all
}

// A hostileClient makes calls over one connection and allocates next to nothing.
type hostileClient struct {
	conn    net.Conn
	framer  *http2.Framer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
	block   bytes.Buffer
	id      uint32
	window  int // of the connection
	initial int // of streams
	status  string
}

func newHostileClient(t testing.TB, address string) *hostileClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // all answers have come
	c := &hostileClient{conn: conn, framer: http2.NewFramer(conn, conn), id: 1, window: 64<<10 - 1, initial: 64<<10 - 1}
	c.framer.SetReuseFrames()
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" {
			c.status = f.Value
		}
	})
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.framer.WriteSettings(), c.framer.WritePing(false, [8]byte{1})); err != nil {
		t.Fatal(err)
	}
	for { // until the server has answered all of this
		f, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		c.take(f)
		if f, ok := f.(*http2.PingFrame); ok && f.IsAck() {
			return c
		}
	}
}

// take heeds a frame, and returns by how much the window of the current stream grows.
func (c *hostileClient) take(f http2.Frame) (more int) {
	switch f := f.(type) {
	case *http2.WindowUpdateFrame:
		if f.StreamID != 0 {
			return int(f.Increment)
		}
		c.window += int(f.Increment)
	case *http2.SettingsFrame:
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			more, c.initial = int(v)-c.initial, int(v)
		}
		if !f.IsAck() {
			_ = c.framer.WriteSettingsAck() // the next write tells
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = c.framer.WritePing(true, f.Data) // the next write tells
		}
	case *http2.DataFrame:
		if f.Length > 0 {
			_ = c.framer.WriteWindowUpdate(0, f.Length) // the next write tells
		}
	case *http2.HeadersFrame:
		_, _ = c.decoder.Write(f.HeaderBlockFragment()) // without a status the call fails
	}
	return more
}

// call makes a call with a message behind its prefix, and returns the status.
func (c *hostileClient) call(method string, body []byte, packed bool) (string, error) {
	id := c.id
	c.id, c.status = id+2, ""
	c.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	if packed {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
	}
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true}); err != nil {
		return "", err
	}
	window := c.initial
	for {
		for n := 1; len(body) > 0 && n > 0; {
			if n = min(len(body), 16<<10, window, c.window); n > 0 {
				if err := c.framer.WriteData(id, n == len(body), body[:n]); err != nil {
					return "", err
				}
				body, window, c.window = body[n:], window-n, c.window-n
			}
		}
		f, err := c.framer.ReadFrame()
		if err != nil {
			return "", err
		}
		window += c.take(f)
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				return c.status, nil
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "", fmt.Errorf("there came %v", f)
		}
	}
}

// prefixed is a message as it is sent.
func (m *hostileMessage) prefixed() []byte {
	message, flag := m.message, byte(0)
	if m.packed {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(message); err != nil || w.Close() != nil {
			panic("memory cannot be written to")
		}
		message, flag = b.Bytes(), 1
	}
	n := len(message)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// TestWhatACallTakes makes 40 calls at a time with the messages that cost the most. No
// call may have the process allocate more than twice the largest message.
func TestWhatACallTakes(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s settings.Settings) {
		if s.GRPC.Transport == settings.TransportStandard && !random.Long() {
			return // what it proves takes long, and grpc-go changes rarely
		}
		testWhatACallTakes(t, s)
	})
}

func testWhatACallTakes(t *testing.T, s settings.Settings) {
	calls := random.Steps(t, 8, 40) // at a time
	r := start(t, s)
	const maxMessage = 1 << 20 // of both servers
	bound := 2 * uint64(maxMessage)
	if underRace() {
		bound += bound / 2
	}
	clients := make([]*hostileClient, calls)
	for i := range clients {
		clients[i] = newHostileClient(t, r.GRPC[0])
	}
	for _, m := range hostileMessages("edge", maxMessage) {
		if m.packed && s.GRPC.Transport == settings.TransportUnary {
			continue // it is UNIMPLEMENTED
		}
		t.Run(m.name, func(t *testing.T) {
			body := m.prefixed()
			all := func() {
				var wg sync.WaitGroup
				for _, c := range clients {
					wg.Go(func() {
						if code, err := c.call(m.method, body, m.packed); err != nil || code != m.code && !m.packed {
							t.Errorf("answered %q, %v; want %s", code, err, m.code)
						}
					})
				}
				wg.Wait()
			}
			// The least of several rounds: grpc-go keeps the buffers that messages come in
			// for the next ones, so the first rounds also pay for those. A collection would
			// let go of them.
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			defer runtime.GC()
			grown := uint64(math.MaxUint64)
			for round := 0; round < 4 && grown > bound; round++ {
				before := allocatedSoFar()
				all()
				grown = min(grown, (allocatedSoFar()-before)/uint64(calls))
			}
			if grown > bound {
				t.Errorf("a call of %d bytes takes %d kB, more than %d kB", len(body), grown>>10, bound>>10)
			}
		})
	}
}

// underRace reports whether the race detector is on. It makes allocations larger, and
// sync.Pool lose some of what it is given.
func underRace() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func allocatedSoFar() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestContainerMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"not Linux":              {nil, 0},
		"version 2":              {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20},
		"version 2, no limit":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, a unit":      {map[string]string{"proc/self/cgroup": "0::/system.slice/rls.service\n", "sys/fs/cgroup/system.slice/rls.service/memory.max": "1000000\n", "sys/fs/cgroup/system.slice/memory.max": "max\n"}, 1000000},
		"version 2, group above": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "3000000\n", "sys/fs/cgroup/a/memory.max": "2000000\n"}, 2000000},
		"version 2, not seen":    {map[string]string{"proc/self/cgroup": "0::/../docker/x\n", "sys/fs/cgroup/memory.max": "5000000\n"}, 5000000},
		"version 1":              {map[string]string{"proc/self/cgroup": "9:name=systemd:/x\n4:cpu,memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000000\n"}, 7000000},
		"version 1, no limit":    {map[string]string{"proc/self/cgroup": "4:memory:/x\n0::/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"garbage":                {map[string]string{"proc/self/cgroup": "a\n:\n::\n4:memory\n", "sys/fs/cgroup/memory.max": "-5\n"}, 0},
	} {
		system := make(fstest.MapFS)
		for file, text := range tt.files {
			system[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := containerMemory(system); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	container := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("4000000000\n")},
	}
	limit := func(environment string, system fstest.MapFS) (int64, string) {
		t.Setenv("GOMEMLIMIT", environment)
		debug.SetMemoryLimit(before)
		core, logs := observer.New(zapcore.InfoLevel)
		limitMemory(system, zap.New(core))
		from := ""
		if logs.Len() > 0 {
			from = logs.All()[0].ContextMap()["from"].(string)
		}
		return debug.SetMemoryLimit(-1), from
	}
	if n, from := limit("", container); n != 3_600_000_000 || from != "container" {
		t.Errorf("a container: %d from %q", n, from)
	}
	if n, from := limit("", nil); n != before || from != "" {
		t.Errorf("nothing bounds it: %d from %q", n, from)
	}
	if n, from := limit("off", container); n != before || from != "environment" {
		t.Errorf("GOMEMLIMIT: %d from %q", n, from)
	}
}
