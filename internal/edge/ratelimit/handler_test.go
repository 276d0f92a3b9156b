package ratelimit

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// check sends in through a service.
func check(t testing.TB, way adaptertest.Way, s *Service, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	out := new(rlsv3.RateLimitResponse)
	if err := adaptertest.Ask(t, way, s, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// TestNothingOfARequestIsKept proves that the memory for the next request is empty, after
// every kind of request.
func TestNothingOfARequestIsKept(t *testing.T) {
	for name, store := range map[string]window.Store{"": nil, "gone: ": adaptertest.FailingStore{Err: errors.New("gone")}} {
		s, _ := setup{store: store, waits: store == nil, echo: true, rules: []rules.Rule{perMinute("api_key", 3), perMinute("a", 1)}}.serve(t)
		s.opts.PlainKeys = true
		many := ask()
		for range maxDescriptors + 1 {
			many.Descriptors = append(many.Descriptors, descriptor("a=x b=y"))
		}
		for what, in := range map[string][]byte{
			"allowed":      encode(t, ask(descriptor("api_key=acme-key"), descriptor("a=1", limit(5, 1), costs(2)))),
			"denied":       encode(t, ask(descriptor("api_key=acme-key", costs(9)), descriptor("remote_address=192.0.2.7"))),
			"other domain": encode(t, &rlsv3.RateLimitRequest{Domain: "other", Descriptors: full().Descriptors}),
			"refused":      encode(t, &rlsv3.RateLimitRequest{Descriptors: full().Descriptors}),
			"too many":     encode(t, many),
			"unreadable":   append(encode(t, full()), 0xff),
		} {
			for _, w := range []adaptertest.Way{adaptertest.Standard, adaptertest.Unary} {
				for range 4 {
					_, _ = w(t, s.Service, in)
				}
			}
			t.Run(name+what, func(t *testing.T) { adaptertest.Pool(t, s.handler.Get) })
		}
	}
	c := &call{state: state{echo: make([]byte, reuse.MaxBytes+1), limits: make([]window.Limit, reuse.MaxBytes)}}
	if c.Forget(); c.echo != nil || c.limits != nil {
		t.Error("the memory of a large request is kept")
	}
}

// TestPanics proves that the memory of a request that panicked is never used again.
func TestPanics(t *testing.T) {
	in := encode(t, ask(descriptor("api_key=acme-key")))
	for name, store := range map[string]window.Store{"with waiting": adaptertest.WaitingStore{Store: adaptertest.PanickingStore{}}, "without waiting": adaptertest.PanickingStore{}} {
		t.Run(name, func(t *testing.T) {
			s, _ := setup{store: store, rules: []rules.Rule{perMinute("api_key", 3)}}.serve(t)
			adaptertest.Panics(t, s.Service, in)
			for range 80 {
				if c := s.handler.Get(); c.in.entries != nil {
					t.Error("the memory of a request that panicked was put back")
				}
			}
		})
	}
}

// rawCodec is a codec for messages that are already encoded.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// TestHandleAnswersAsGRPC sends valid and invalid bytes through a server of grpc-go and
// through Handle, and compares the answers.
func TestHandleAnswersAsGRPC(t *testing.T) {
	s := setup{rules: []rules.Rule{perMinute("a", 1)}}
	served, _ := s.serve(t)
	asked, _ := s.serve(t)
	conn := adaptertest.Serve(t, served, func(r grpc.ServiceRegistrar) {
		rlsv3.RegisterRateLimitServiceServer(r, rlsv3.UnimplementedRateLimitServiceServer{})
	}, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	good := encode(t, ask(descriptor("a=x")))
	for _, in := range [][]byte{
		good, good, // allowed and denied
		good[:len(good)-1],
		{0xff},
		{0x00, 0x01},
		{0x0a, 0x7f},
		{0x0b},
		{},
		[]byte("\x0a\x04edge"), []byte("\x12\x00"),
	} {
		var want []byte
		wantErr := conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, in, &want)
		got, err := adaptertest.Unary(t, asked.Service, in)
		if status.Code(err) != status.Code(wantErr) || status.Convert(err).Message() != status.Convert(wantErr).Message() {
			t.Errorf("% x: %v, want %v", in, err, wantErr)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Errorf("% x: % x, want % x", in, got, want)
		}
	}
}

// TestEchoIsAsItWasSent proves that an answer repeats addresses as sent, although rules
// compare them in another form. The answer can be read although the request is not UTF-8.
func TestEchoIsAsItWasSent(t *testing.T) {
	s, _ := setup{echo: true}.serve(t)
	in := replace(t, encode(t, ask(descriptor("remote_address=::ffff:192.0.2.7 b=0123"))), "0123", "\xff\xfe12")
	for name, w := range map[string]adaptertest.Way{"standard": adaptertest.Standard, "unary": adaptertest.Unary} {
		b, err := w(t, s.Service, in)
		if err != nil {
			t.Fatal(err)
		}
		out := new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(b, out); err != nil {
			t.Fatalf("%s: the answer cannot be read: %v", name, err)
		}
		want := map[string]any{"domain": "edge", "descriptors": []any{map[string]any{"entries": []any{"remote_address=::ffff:192.0.2.7", "b=\uFFFD12"}}}}
		if diff := cmp.Diff(want, out.GetDynamicMetadata().AsMap()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		// A request that is too long is not repeated.
		b, err = w(t, s.Service, encode(t, ask(descriptor("b="+strings.Repeat("x", maxEcho)))))
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := proto.Unmarshal(b, out); err != nil || len(out.GetDynamicMetadata().GetFields()) > 0 || len(out.GetStatuses()) != 1 {
			t.Errorf("%s: %v, an answer of %d bytes with metadata", name, err, len(b))
		}
	}
}

// FuzzShouldRateLimit sends arbitrary messages to three services with the same history. It
// calls one through the handler of grpc-go, and two through Handle. One of these always has
// to wait. All give the same answer: OK, OVER_LIMIT or an error, with a status for each
// descriptor and no value that breaks a response.
func FuzzShouldRateLimit(f *testing.F) {
	// The rules are of every kind. Their keys are short, so that the fuzzer finds them.
	kinds := setup{echo: true, styles: []string{rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimitEpoch}, rules: []rules.Rule{
		perMinute("api_key", 3, func(r *rules.Rule) { r.ByTier = map[string]rules.Terms{"pro": {Unlimited: true}} }),
		perMinute("route", 2, quota, func(r *rules.Rule) { r.Answer.Metadata = map[string]any{"m": []any{nil, 1.5}} }),
		perMinute("a", 1, quota), perMinute("b", 1, watched), perMinute("c", 1, always), perMinute("d", 1, unlimited),
		perMinute("e", 0, func(r *rules.Rule) { r.Answer.Denial = rules.Denial{Body: "no", ContentType: "text/x"} }),
		perMinute("f", 1, func(r *rules.Rule) { r.Replaces = []string{"a"} }),
		perMinute("remote_address", 1),
	}}
	for _, in := range []*rlsv3.RateLimitRequest{
		full(), fromJSON(f, byKey),
		{},
		ask(descriptor("a=x"), descriptor("route=x"), descriptor("f=x")),
		ask(descriptor("b=x"), descriptor("c=x", costs(1<<63)), descriptor("d=x"), descriptor("api_key=acme-key")),
		ask(descriptor("e=x"), descriptor("a=x", refund), descriptor("a=x", costs(0))),
		ask(descriptor("remote_address=::ffff:192.0.2.7 a=x", limit(5, 1, 2))),
	} {
		f.Add(encode(f, in))
	}
	oracle, _ := kinds.serve(f)
	without, _ := kinds.serve(f)
	kinds.waits = true
	waits, _ := kinds.serve(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		// The headers depend on the clock.
		now := time.Duration(time.Now().UnixNano())
		oracle.now, without.now, waits.now = now, now, now
		raw, err := adaptertest.Standard(t, oracle.Service, b)
		for name, s := range map[string]*Service{"without waiting": without.Service, "with waiting": waits.Service} {
			got, gotErr := adaptertest.Unary(t, s, b)
			if status.Code(gotErr) != status.Code(err) || status.Convert(gotErr).Message() != status.Convert(err).Message() {
				t.Errorf("%s: %v, want %v", name, gotErr, err)
			}
			if err == nil && !sameAnswer(t, raw, got) {
				t.Errorf("%s: %q, want %q", name, got, raw)
			}
		}
		m, unreadable := unmarshal(t, b)
		if err != nil {
			if c := status.Code(err); c != codes.InvalidArgument && (c != codes.Internal || unreadable == nil) {
				t.Fatalf("error = %v, want INVALID_ARGUMENT", err)
			}
			return
		}
		out := new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(raw, out); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if c := out.GetOverallCode(); c != rlsv3.RateLimitResponse_OK && c != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("overall code = %v", c)
		}
		if len(out.GetStatuses()) != len(m.descriptors) {
			t.Errorf("%d statuses for %d descriptors", len(out.GetStatuses()), len(m.descriptors))
		}
		for _, h := range out.GetResponseHeadersToAdd() {
			if strings.ContainsAny(h.GetKey()+h.GetValue(), "\r\n\x00") || h.GetValue() == "" {
				t.Errorf("header %q: %q", h.GetKey(), h.GetValue())
			}
		}
	})
}

// sameAnswer compares answers, except for the epoch: the second may change in between.
func sameAnswer(t testing.TB, a, b []byte) bool {
	t.Helper()
	if bytes.Equal(a, b) {
		return true
	}
	var messages [2]*rlsv3.RateLimitResponse
	for i, raw := range [][]byte{a, b} {
		messages[i] = new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(raw, messages[i]); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		for _, h := range messages[i].ResponseHeadersToAdd {
			if h.Key == "x-ratelimit-reset" {
				h.Value = ""
			}
		}
	}
	return proto.Equal(messages[0], messages[1])
}

// questions returns the requests of the benchmarks.
func questions(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"allowed": encode(t, fromJSON(t, `{"domain":"edge","descriptors":[{"entries":[{"key":"huge","value":"1"}]}]}`)),
		"key":     encode(t, fromJSON(t, strings.Replace(byKey, `"descriptors"`, `"hitsAddend":1,"descriptors"`, 1))),
		"denied":  encode(t, fromJSON(t, strings.Replace(byKey, `"descriptors"`, `"hitsAddend":9,"descriptors"`, 1))),
		"three": encode(t, fromJSON(t, `{"domain":"edge","descriptors":[{"entries":[{"key":"huge","value":"1"}]},
			{"entries":[{"key":"huge","value":"2"}]},{"entries":[{"key":"huge","value":"3"}]}]}`)),
	}
}

// TestAllocations bounds the allocations of a request. It allocates its texts, an API key
// and its fingerprint, the key of a log, and the header fields.
func TestAllocations(t *testing.T) {
	s := newService(t, nil)
	most := map[string]float64{"allowed": 3, "key": 5, "denied": 5, "three": 5}
	for name, in := range questions(t) {
		if got := adaptertest.Allocations(t, s, in, s.wait); got > most[name] {
			t.Errorf("%s: %v allocations, want %v", name, got, most[name])
		}
	}
}

// wait advances the clock past the window of an API key.
func (s *testService) wait() { s.now += 10 * time.Second }
