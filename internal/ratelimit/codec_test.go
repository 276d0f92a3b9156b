package ratelimit

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// full sets every field that Envoy can send.
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

func unmarshal(b []byte) (*rlsv3.RateLimitRequest, error) {
	// What a message is decoded into may hold an older one.
	m := &rlsv3.RateLimitRequest{Domain: "old", HitsAddend: 99, Descriptors: full().Descriptors}
	err := NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	return m, err
}

func TestCodecReadsEveryField(t *testing.T) {
	want := full()
	b, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("Unmarshal (-want +got):\n%s", diff)
	}
}

func TestCodecReadsWhatIsNotUTF8(t *testing.T) {
	const value = "k\xff\xfe"
	m := full()
	m.Descriptors[0].Entries[1].Value = "0123456789"
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	// proto.Marshal refuses to write such a string, so it is planted.
	b = replace(t, b, "0123456789", value+"3456789")
	if err := proto.Unmarshal(b, new(rlsv3.RateLimitRequest)); err == nil {
		t.Fatal("proto.Unmarshal reads the message: this test shows nothing")
	}
	got, err := unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if v := got.Descriptors[0].Entries[1].Value; v != value+"3456789" {
		t.Errorf("value = %q, want the bytes as they were sent", v)
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
	c := NewCodec()
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

// FuzzCodec compares with proto.Unmarshal on every message: the same result
// where both read it, and where only one does, it is for the sake of UTF-8.
func FuzzCodec(f *testing.F) {
	b, err := proto.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add(b[:len(b)-1])
	f.Add([]byte("\x0a\x02k\xff"))
	f.Add([]byte{3<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8})      // a known number with another wire type
	f.Add([]byte{12<<3 | 3, 12<<3 | 4})                  // an unknown group
	f.Add([]byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 1}) // a number of more than 32 bits
	f.Fuzz(func(t *testing.T, b []byte) {
		want := new(rlsv3.RateLimitRequest)
		wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
		got, err := unmarshal(b)
		if wantErr == nil && err != nil {
			t.Fatalf("Unmarshal = %v, want a message that proto.Unmarshal reads", err)
		}
		if wantErr != nil && err == nil && !strings.Contains(wantErr.Error(), "UTF-8") {
			t.Fatalf("Unmarshal reads what proto.Unmarshal refuses with %v", wantErr)
		}
		if wantErr == nil {
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("Unmarshal (-want +got):\n%s", diff)
			}
		}
	})
}

func BenchmarkUnmarshal(b *testing.B) {
	raw, err := proto.Marshal(full())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("codec", func(b *testing.B) {
		c := NewCodec()
		data := mem.BufferSlice{mem.SliceBuffer(raw)}
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Unmarshal(data, new(rlsv3.RateLimitRequest)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("proto", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(raw, new(rlsv3.RateLimitRequest)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
