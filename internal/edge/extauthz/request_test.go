package extauthz

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// read decodes a message into r.
func read(t testing.TB, r *request, in *authv3.CheckRequest) {
	t.Helper()
	if err := r.Decode(encode(t, in)); err != nil {
		t.Fatal(err)
	}
}

// FuzzDecode compares Decode with the protobuf library.
func FuzzDecode(f *testing.F) {
	socket := asked("/", nil, new(authv3.AttributeContext_HttpRequest))
	socket.Attributes.Source.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}
	for _, in := range []*authv3.CheckRequest{
		{}, socket, ask("/a?b", map[string]string{"a": "b", "": "c"}, "x: y", "cookie: "), askRaw("/", nil, "x: \xff", "x: y", "z: "),
	} {
		b := encode(f, in)
		f.Add([]byte(b))
		f.Add([]byte(b + b)) // protobuf merges both messages
		f.Add([]byte(b[:len(b)/2]))
	}
	f.Add(header(13, 1, "\x0a\x01x\x1a\x01r\x12\x01v")) // a value after the raw value
	f.Add(header(3, 0, "\x0a\x01x\x12\x01v\x1a\x01r"))  // an unknown field in a map entry
	f.Fuzz(func(t *testing.T, b []byte) {
		r, in := new(request), new(authv3.CheckRequest)
		err := r.Decode(string(b))
		if proto.Unmarshal(b, in) != nil {
			return // Decode skips fields that need not be valid
		}
		if err != nil {
			if r.read > wire.MaxFields {
				return
			}
			t.Fatalf("Decode = %v, want a message that proto.Unmarshal reads", err)
		}
		if r.oversized || r.manyEntries {
			return
		}
		h := in.GetAttributes().GetRequest().GetHttp()
		got := []string{r.method, r.path, r.host, r.peer}
		want := []string{h.GetMethod(), h.GetPath(), h.GetHost(), in.GetAttributes().GetSource().GetAddress().GetSocketAddress().GetAddress()}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		context := make(map[string]string)
		for _, c := range r.context {
			context[c.name], _ = r.contextOf(c.name)
		}
		if extensions := in.GetAttributes().GetContextExtensions(); !maps.Equal(context, extensions) {
			t.Errorf("context %v, want %v", r.context, extensions)
		}
		for name, value := range h.GetHeaders() {
			if !slices.Contains(r.fields.lines, text{name, value}) {
				t.Errorf("%q, want %q: %q in it", r.fields.lines, name, value)
			}
		}
		for _, line := range h.GetHeaderMap().GetHeaders() {
			value := line.GetValue()
			if len(line.GetRawValue()) > 0 {
				value = string(line.GetRawValue())
			}
			if !slices.Contains(r.fields.lines, text{line.GetKey(), value}) {
				t.Errorf("%q, want %q: %q in it", r.fields.lines, line.GetKey(), value)
			}
		}
	})
}

// TestManyLines proves that joining many lines copies each one once.
func TestManyLines(t *testing.T) {
	const lines = 10_000
	var f fields
	for range lines {
		f.lines = append(f.lines, text{"x-api-key", "a"})
	}
	if value, n := f.get("x-api-key", ","); n != lines || value != strings.Repeat("a,", lines-1)+"a" {
		t.Errorf("%d lines, %d bytes", n, len(value))
	}
	if got := testing.AllocsPerRun(10, func() { f.get("x-api-key", ",") }); got > 1 {
		t.Errorf("%v allocations for %d lines: they are copied again and again", got, lines)
	}
	f.lines = []text{{"a", ""}, {"b", "x"}, {"A", ""}, {"a", "y"}}
	if value, n := f.get("a", ","); n != 3 || value != ",,y" {
		t.Errorf("%d lines, %q", n, value)
	}
}

// header returns an encoded message with a header field in a field of its HTTP request. If
// inside is not 0, the header field is in that field of the former.
func header(field, inside protowire.Number, encoded string) []byte {
	b := []byte(encoded)
	for _, f := range []protowire.Number{inside, field, 2, 4, 1} {
		if f != 0 {
			b = protowire.AppendBytes(protowire.AppendTag(nil, f, protowire.BytesType), b)
		}
	}
	return b
}

// TestTooManyContextEntries refuses a request whose context has too many entries, and keeps no more
// entries than the bound.
func TestTooManyContextEntries(t *testing.T) {
	context := map[string]string{"anonymous": "true"}
	for i := range maxContext - 1 {
		context[fmt.Sprint(i)] = "x"
	}
	s := newService(t, nil, nil)
	if out := s.check(t, ask("/", context)); out.GetStatus().GetCode() != 0 {
		t.Errorf("answer = %v, want OK", out)
	}
	context["more"] = "x"
	if out := s.check(t, ask("/", context)); out.GetErrorResponse().GetStatus().GetCode() != 500 || s.meters.results[Misconfigured] != 1 {
		t.Errorf("answer = %v, want an error response", out)
	}
	query := make(url.Values)
	for name, value := range context {
		query.Set(name, value)
	}
	if w := s.get(t, "/authz?"+query.Encode()); w.Code != http.StatusInternalServerError {
		t.Errorf("HTTP: %d, want 500", w.Code)
	}
	r := new(request)
	for range 100 * maxContext {
		_ = r.addContext(text{"a", "b"}) // an error above the bound
	}
	if len(r.context) != maxContext {
		t.Errorf("%d entries are kept, want %d", len(r.context), maxContext)
	}
}

// TestOversized refuses a request with too many header fields, and does not read the rest of
// it.
func TestOversized(t *testing.T) {
	lines := func(n int, name protowire.Number, inside protowire.Number) []byte {
		b := bytes.Repeat([]byte{byte(name<<3 | protowire.Number(protowire.BytesType)), 0}, n)
		for _, f := range []protowire.Number{inside, 2, 4, 1} {
			if f != 0 {
				b = protowire.AppendBytes(protowire.AppendTag(nil, f, protowire.BytesType), b)
			}
		}
		return b
	}
	for name, message := range map[string][]byte{
		"a map of them":        lines(1_000_000, 3, 0),
		"a list of them":       lines(1_000_000, 1, 13),
		"with garbage behind":  append(lines(maxLines+1, 3, 0), 0xff),
		"in several requests":  append(lines(maxLines, 3, 0), lines(1, 3, 0)...),
		"in both of the forms": append(lines(maxLines, 3, 0), lines(1, 1, 13)...),
	} {
		s := newService(t, nil, nil)
		answer, err := adaptertest.WithoutWaiting(t, s.Service, message)
		out := new(authv3.CheckResponse)
		if err != nil || proto.Unmarshal(answer, out) != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if out.GetDeniedResponse().GetStatus().GetCode() != 431 || s.meters.results[Oversized] != 1 {
			t.Errorf("%s: answered %v, want 431", name, out)
		}
	}
	r := new(request)
	if err := r.Decode(string(lines(maxLines, 3, 0))); err != nil || r.oversized || len(r.fields.lines) != maxLines {
		t.Errorf("%v, %d lines are kept, want all %d", err, len(r.fields.lines), maxLines)
	}
	if err := r.Decode(string(bytes.Repeat([]byte{15 << 3, 1}, wire.MaxFields+1))); err == nil {
		t.Error("a message of nothing but unknown fields is read to its end")
	}
}

func TestAddress(t *testing.T) {
	forwarded := func(hops int) settings.Authz {
		return settings.Authz{Address: settings.AddressForwardedFor, Hops: hops}
	}
	external := settings.Authz{Address: settings.AddressExternal}
	for _, tt := range []struct {
		name   string
		rule   settings.Authz
		peer   string
		fields []string
		want   string
	}{
		{"peer", settings.Authz{}, "192.0.2.7", []string{"x-forwarded-for: 198.51.100.1"}, "192.0.2.7"},
		{"peer, IPv6", settings.Authz{}, "2001:db8:1:2:3:4:5:6", nil, "2001:db8:1:2:3:4:5:6"},
		{"peer, a zone", settings.Authz{}, "fe80::1%eth0", nil, "fe80::1"},
		{"peer, a socket", settings.Authz{}, "", nil, ""},
		{"external", external, "192.0.2.7", []string{"x-envoy-external-address: 198.51.100.1"}, "198.51.100.1"},
		{"external, not there", external, "192.0.2.7", nil, "192.0.2.7"},
		{"external, no address", external, "192.0.2.7", []string{"x-envoy-external-address: me"}, "192.0.2.7"},
		{"external, twice", external, "192.0.2.7", []string{"x-envoy-external-address: 198.51.100.1", "x-envoy-external-address: 198.51.100.2"}, "192.0.2.7"},
		{"forwarded, one hop", forwarded(1), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"forwarded, none said", forwarded(0), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"forwarded, two hops", forwarded(2), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "203.0.113.9"},
		{"forwarded, two lines", forwarded(2), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9", "x-forwarded-for: 198.51.100.1"}, "203.0.113.9"},
		{"forwarded, too few", forwarded(3), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "192.0.2.7"},
		{"forwarded, no address", forwarded(1), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, unknown"}, "192.0.2.7"},
		{"forwarded, upper case and quotes", forwarded(2), "192.0.2.7", []string{`x-forwarded-for: "[2001:DB8::9]:443" , 192.0.2.8`}, "2001:db8::9"},
	} {
		for form, in := range map[string]*authv3.CheckRequest{"joined": ask("/", nil, tt.fields...), "raw": askRaw("/", nil, tt.fields...)} {
			in.Attributes.Source.Address.GetSocketAddress().Address = tt.peer
			s := newService(t, nil, func(o *Options) { o.Address, o.Hops = tt.rule.Address, tt.rule.Hops })
			c := new(call)
			read(t, &c.in, in)
			if got := s.plainValue(c, &entry{value: fromAddress}); got != tt.want {
				t.Errorf("%s, %s: %q, want %q", tt.name, form, got, tt.want)
			}
		}
	}
}

// TestUnixSocket proves that a client on a Unix socket has no address, but a subject in the
// metadata.
func TestUnixSocket(t *testing.T) {
	in := ask("/", map[string]string{"anonymous": "true", "domain": "edge"})
	in.Attributes.Source.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}
	out := newService(t, nil, nil).check(t, in)
	if got := out.GetDynamicMetadata().GetFields()["subject"].GetStringValue(); out.GetStatus().GetCode() != 0 || got != "ip:unknown" {
		t.Errorf("subject = %q in %v, want ip:unknown", got, out)
	}
}

// TestMasked proves that an anonymous subject and masked_remote_address are the client's
// network. remote_address is the whole address, as from Envoy.
func TestMasked(t *testing.T) {
	for _, tt := range []struct {
		peer            string
		prefix          int
		subject, masked string
		address         string
	}{
		{"2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::", "2001:db8:1:2::/64", "2001:db8:1:2:3:4:5:6"},
		{"2001:db8::1:2", 0, "2001:db8::1:2", "2001:db8::1:2/128", "2001:db8::1:2"},
		{"fe80::1%eth0", 64, "fe80::", "fe80::/64", "fe80::1"},
		{"::ffff:192.0.2.7", 64, "192.0.2.7", "192.0.2.7/32", "192.0.2.7"},
		{"", 64, "unknown", "", ""},
	} {
		s := newService(t, nil, func(o *Options) { o.IPv6Prefix = tt.prefix })
		c := &call{in: request{peer: tt.peer, context: []text{{"anonymous", "true"}}}}
		if s.findKeys(c) != findLimits || c.result != Anonymous || c.caller.id != "ip:"+tt.subject {
			t.Errorf("%s: %v, subject %q, want ip:%s", tt.peer, c.result, c.caller.id, tt.subject)
		}
		masked, address := s.plainValue(c, &entry{value: fromMaskedAddress}), s.plainValue(c, &entry{value: fromAddress})
		if masked != tt.masked || address != tt.address {
			t.Errorf("%s: %q and %q, want %q and %q", tt.peer, masked, address, tt.masked, tt.address)
		}
	}
}

// TestTooManyLimits proves that a request with too many limits is denied.
func TestTooManyLimits(t *testing.T) {
	s := newService(t, nil, nil)
	for _, n := range []int{window.MaxChecks, window.MaxChecks + 1} {
		context := map[string]string{"anonymous": "true", "domain": "edge", "descriptors": strings.TrimSuffix(strings.Repeat("route=login;", n), ";")}
		out := s.check(t, ask("/", context))
		denial := out.GetDeniedResponse()
		if denial.GetStatus().GetCode() != 429 || strings.Contains(denial.GetBody(), "too large") != (n > window.MaxChecks) {
			t.Errorf("%d limits: answer = %v", n, out)
		}
	}
	if got := s.meters.results[Limited]; got != 2 {
		t.Errorf("%d checks count as limited, want 2", got)
	}
}

// TestRequestsInFlight: a check takes a slot for the stream that the call names, until the end of the stream.
func TestRequestsInFlight(t *testing.T) {
	s := newService(t, nil, nil)
	encoded, err := proto.Marshal(ask("/", map[string]string{"anonymous": "true", "domain": "flight", "descriptors": "in_flight=backend"}))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a 200", "a 200", "b 200", "c 429", "end of a", "c 200", "d 429"} {
		stream, _, _ := strings.Cut(want, " ")
		if stream == "end" {
			var c decide.Call
			ended := decide.Request{Stream: inflight.NewStreamID("a"), Ending: "via_upstream", Descriptors: []decide.Descriptor{identity.EndOfStream()}}
			s.opts.Decider.Begin(&c, ended)
			if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
				t.Fatal(err)
			}
			continue
		}
		in := unary.Call{Request: string(encoded)}
		in.Kept[adapter.StreamID] = stream
		answer, _, err := s.Handle(t.Context(), window.MayWait, &in, nil)
		var out authv3.CheckResponse
		if err := errors.Join(err, proto.Unmarshal(answer, &out)); err != nil {
			t.Fatal(err)
		}
		code := 200
		if denial := out.GetDeniedResponse(); denial != nil {
			code = int(denial.GetStatus().GetCode())
		}
		if got := fmt.Sprintf("%s %d", stream, code); got != want {
			t.Errorf("check %d: %s, want %s", i+1, got, want)
		}
	}
}
