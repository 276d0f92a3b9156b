package ratelimit

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

// full returns a request with every field that Envoy can send.
func full() *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{
		Domain:     "edge",
		HitsAddend: 7,
		Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{
			{
				Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "route", Value: "search"}, {Key: "api_key", Value: ""}},
				Limit: &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 600, Unit: typev3.RateLimitUnit_MINUTE, UnitMultiplier: wrapperspb.UInt32(10),
				},
				HitsAddend:     wrapperspb.UInt64(1 << 63),
				IsNegativeHits: true,
			},
			{},
			{HitsAddend: wrapperspb.UInt64(0)},
		},
	}
}

// used returns an empty message that reuses the memory of another one.
func used(t testing.TB) *message {
	t.Helper()
	m := new(message)
	if err := adapter.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encode(t, full()))}, m); err != nil {
		t.Fatal(err)
	}
	m.forget()
	return m
}

// unmarshal reads a message with the codec.
func unmarshal(t testing.TB, b []byte) (*message, error) {
	t.Helper()
	m := used(t)
	err := adapter.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	return m, err
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// asProto returns the same message as one of the library.
func (m *message) asProto() *rlsv3.RateLimitRequest {
	out := &rlsv3.RateLimitRequest{Domain: m.domain, HitsAddend: m.hitsAddend}
	rest := m.entries
	for _, d := range m.descriptors {
		one := &ratelimitcommonv3.RateLimitDescriptor{IsNegativeHits: d.refund}
		for _, e := range rest[:d.entries] {
			one.Entries = append(one.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		rest = rest[d.entries:]
		if d.hasAddend {
			one.HitsAddend = wrapperspb.UInt64(d.hitsAddend)
		}
		if d.limited {
			one.Limit = &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: d.limit.requestsPerUnit, Unit: d.limit.unit}
			if d.limit.multiplied {
				one.Limit.UnitMultiplier = wrapperspb.UInt32(d.limit.multiplier)
			}
		}
		out.Descriptors = append(out.Descriptors, one)
	}
	return out
}

func TestCodecReadsEveryField(t *testing.T) {
	want := full()
	got, err := unmarshal(t, encode(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.asProto(), protocmp.Transform()); diff != "" {
		t.Errorf("Unmarshal (-want +got):\n%s", diff)
	}
}

func TestCodecReadsWhatIsNotUTF8(t *testing.T) {
	const value = "k\xff\xfe"
	m := full()
	m.Descriptors[0].Entries[1].Value = "0123456789"
	b := encode(t, m)
	// proto.Marshal cannot write such a string, so overwrite another one.
	b = replace(t, b, "0123456789", value+"3456789")
	if err := proto.Unmarshal(b, new(rlsv3.RateLimitRequest)); err == nil {
		t.Fatal("proto.Unmarshal reads the message, so this test proves nothing")
	}
	got, err := unmarshal(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if v := got.entries[1].Value; v != value+"3456789" {
		t.Errorf("value = %q, want the bytes as they were sent", v)
	}
}

// field returns a tag, and repeat returns n fields with a value of one byte.
func field(tag uint64) []byte                 { return []byte{byte(tag)} }
func repeat(tag uint64, b byte, n int) []byte { return bytes.Repeat([]byte{byte(tag), b}, n) }

// TestBoundsOfAMessage proves that reading stops where a message exceeds a bound, and that
// the message names the bound.
func TestBoundsOfAMessage(t *testing.T) {
	entries := func(n int) []byte { // of one descriptor, all empty
		return protowire.AppendBytes(field(requestDescriptors), repeat(descriptorEntries, 0, n))
	}
	for _, tt := range []struct {
		name                 string
		message              []byte
		over                 string
		descriptors, entries int // the numbers that are kept
	}{
		{"descriptors", repeat(requestDescriptors, 0, maxDescriptors), "", maxDescriptors, 0},
		{"too many descriptors", repeat(requestDescriptors, 0, maxDescriptors+1), "it has more than 256 descriptors: send fewer in one request", maxDescriptors, 0},
		{"what follows too many descriptors is not read", append(repeat(requestDescriptors, 0, maxDescriptors+1), 0xff), "it has more than 256 descriptors: send fewer in one request", maxDescriptors, 0},
		{"entries", entries(maxEntries), "", 1, maxEntries},
		{"too many entries", entries(1_000_000), "its descriptors have more than 4096 entries together: send fewer in one request", 0, maxEntries},
		{"too many entries of several descriptors", append(entries(maxEntries), entries(1)...), "its descriptors have more than 4096 entries together: send fewer in one request", 1, maxEntries},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := unmarshal(t, tt.message)
			if err != nil || m.over != tt.over || len(m.descriptors) != tt.descriptors || len(m.entries) != tt.entries {
				t.Errorf("%v, %q, %d descriptors and %d entries are kept; want %q, %d and %d",
					err, m.over, len(m.descriptors), len(m.entries), tt.over, tt.descriptors, tt.entries)
			}
			m.forget()
			reusetest.NothingIn(t, "message", reflect.ValueOf(m).Elem())
		})
	}
}

// TestBoundOfFields proves that reading stops after MaxFields fields of any kind.
func TestBoundOfFields(t *testing.T) {
	const n = wire.MaxFields
	in := func(outer uint64, b []byte) []byte { return protowire.AppendBytes(field(outer), b) }
	for name, message := range map[string][]byte{
		"domains":           repeat(requestDomain, 0, n+1),
		"addends":           repeat(requestHitsAddend, 1, n+1),
		"unknown numbers":   bytes.Repeat([]byte{15 << 3, 1}, n+1),
		"unknown texts":     bytes.Repeat([]byte{15<<3 | 2, 0}, n+1),
		"unknown fixed32":   bytes.Repeat([]byte{15<<3 | 5, 0, 0, 0, 0}, n+1),
		"groups":            bytes.Repeat([]byte{15<<3 | 3, 15<<3 | 4}, n+1),
		"limits":            in(requestDescriptors, repeat(descriptorLimit, 0, n)),
		"multipliers":       in(requestDescriptors, in(descriptorLimit, repeat(overrideUnitMultiplier, 0, n))),
		"own addends":       in(requestDescriptors, repeat(descriptorHitsAddend, 0, n)),
		"values of addends": in(requestDescriptors, in(descriptorHitsAddend, repeat(wrapperValue, 1, n))),
		"keys of one entry": in(requestDescriptors, in(descriptorEntries, repeat(1<<3|wire.AsBytes, 0, n))),
	} {
		if _, err := unmarshal(t, message); err == nil || !strings.Contains(err.Error(), "more than 32768 fields") {
			t.Errorf("%s: %v, want an error that says how many fields may be", name, err)
		}
	}
}

func replace(t *testing.T, b []byte, from, to string) []byte {
	t.Helper()
	for i := range b {
		if i+len(from) <= len(b) && string(b[i:i+len(from)]) == from {
			copy(b[i:], to)
			return b
		}
	}
	t.Fatalf("%q is not in the message", from)
	return nil
}

func TestCodecLeavesOtherMessagesAlone(t *testing.T) {
	c := adapter.NewCodec()
	if c.Name() != "proto" {
		t.Errorf("Name = %q, want proto: clients ask for it", c.Name())
	}
	answer := &rlsv3.RateLimitResponse{
		OverallCode:         rlsv3.RateLimitResponse_OVER_LIMIT,
		RequestHeadersToAdd: []*corev3.HeaderValue{{Key: "k", RawValue: []byte("v\xff")}},
		Quota:               &rlsv3.RateLimitResponse_Quota{Requests: 7, Id: "q"},
	}
	answer.ProtoReflect().SetUnknown(protoreflect.RawFields{0xf8, 0x07, 1}) // field 127
	for _, want := range []proto.Message{wrapperspb.String("x"), answer} {
		b, err := c.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := want.ProtoReflect().New().Interface()
		if err := c.Unmarshal(b, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("round trip = %v, %v, want %v", got, err, want)
		}
	}
	if _, err := c.Marshal("no message"); err == nil {
		t.Error("Marshal of a string: got no error")
	}
}

// FuzzCodec compares the codec with proto.Unmarshal. If both read a message, the results are
// equal. Only the codec may read a message that is not UTF-8.
func FuzzCodec(f *testing.F) {
	b := encode(f, full())
	f.Add(b)
	f.Add([]byte{})
	f.Add(b[:len(b)-1])
	f.Add([]byte("\x0a\x02k\xff"))
	f.Add([]byte{3<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8})      // a known number with another wire type
	f.Add([]byte{12<<3 | 3, 12<<3 | 4})                  // an unknown group
	f.Add([]byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 1}) // a number of more than 32 bits
	// A limit, its multiplier and an addend occur twice and are merged.
	f.Add([]byte{0x12, 26, 0x12, 6, 0x08, 5, 0x1a, 2, 0x08, 7, 0x12, 4, 0x10, 2, 0x1a, 0, 0x1a, 2, 0x08, 9, 0x1a, 0, 0x0a, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		want := new(rlsv3.RateLimitRequest)
		wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
		got, err := unmarshal(t, b)
		if wantErr == nil && err != nil && got.fields <= wire.MaxFields {
			t.Fatalf("Unmarshal = %v, want a message that proto.Unmarshal reads", err)
		}
		if wantErr != nil && err == nil && got.over == "" && !strings.Contains(wantErr.Error(), "UTF-8") {
			t.Fatalf("Unmarshal reads what proto.Unmarshal refuses with %v", wantErr)
		}
		if wantErr == nil && got.over == "" {
			if diff := cmp.Diff(want, got.asProto(), protocmp.Transform()); diff != "" {
				t.Errorf("Unmarshal (-want +got):\n%s", diff)
			}
		}
		got.forget()
		reusetest.NothingIn(t, "message", reflect.ValueOf(got).Elem())
	})
}
