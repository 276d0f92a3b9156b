package ratelimit

import (
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec falls back on
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/wire"
)

// Codec is the protobuf codec, but for RateLimitRequest, which it reads itself
// and without refusing strings that are not UTF-8, for messages that read
// themselves (wire.Decoder), and for answers that are encoded already
// (wire.Encoded). Install it with
// grpc.ForceServerCodecV2. It is stateless and safe for concurrent use.
type Codec struct{ proto encoding.CodecV2 }

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Name returns "proto": on the wire nothing differs.
func (c Codec) Name() string { return c.proto.Name() }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if answer, ok := v.(wire.Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(answer)}, nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. Strings are copied out of data.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *rlsv3.RateLimitRequest:
		m.Reset()
		return decode(data, func(in wire.Message) error { return decodeRequest(in, m) })
	case wire.Decoder:
		return decode(data, m.Decode)
	default:
		return c.proto.Unmarshal(data, v)
	}
}

func decode(data mem.BufferSlice, read func(wire.Message) error) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return read(wire.NewMessage(buf.ReadOnlyData()))
}

// The fields that are read, as their tags on the wire: number<<3 | wire type.
// A field that arrives with another wire type than its own is skipped like an
// unknown one, as proto.Unmarshal does.
const (
	requestDomain      = 1<<3 | wire.AsBytes
	requestDescriptors = 2<<3 | wire.AsBytes
	requestHitsAddend  = 3<<3 | wire.AsVarint

	descriptorEntries    = 1<<3 | wire.AsBytes
	descriptorLimit      = 2<<3 | wire.AsBytes
	descriptorHitsAddend = 3<<3 | wire.AsBytes
	descriptorIsNegative = 4<<3 | wire.AsVarint

	entryKey   = 1<<3 | wire.AsBytes
	entryValue = 2<<3 | wire.AsBytes

	overrideRequestsPerUnit = 1<<3 | wire.AsVarint
	overrideUnit            = 2<<3 | wire.AsVarint
	overrideUnitMultiplier  = 3<<3 | wire.AsBytes

	wrapperValue = 1<<3 | wire.AsVarint
)

// decodeRequest reads a RateLimitRequest as proto.Unmarshal would, but takes
// strings as they are. Fields that it does not know are skipped.
func decodeRequest(in wire.Message, m *rlsv3.RateLimitRequest) error {
	for in.More() {
		f, err := in.Next()
		if err != nil {
			return err
		}
		switch f.Tag {
		case requestDomain:
			m.Domain = f.Message.Text()
		case requestDescriptors:
			d := new(ratelimitcommonv3.RateLimitDescriptor)
			m.Descriptors = append(m.Descriptors, d)
			err = decodeDescriptor(f.Message, d)
		case requestHitsAddend:
			m.HitsAddend = uint32(f.Number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeDescriptor(in wire.Message, d *ratelimitcommonv3.RateLimitDescriptor) error {
	for in.More() {
		f, err := in.Next()
		if err != nil {
			return err
		}
		switch f.Tag {
		case descriptorEntries:
			e := new(ratelimitcommonv3.RateLimitDescriptor_Entry)
			d.Entries = append(d.Entries, e)
			err = decodeEntry(f.Message, e)
		case descriptorLimit:
			if d.Limit == nil {
				d.Limit = new(ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride)
			}
			err = decodeOverride(f.Message, d.Limit)
		case descriptorHitsAddend:
			if d.HitsAddend == nil {
				d.HitsAddend = new(wrapperspb.UInt64Value)
			}
			d.HitsAddend.Value, err = decodeWrapper(f.Message, d.HitsAddend.Value)
		case descriptorIsNegative:
			d.IsNegativeHits = protowire.DecodeBool(f.Number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeEntry(in wire.Message, e *ratelimitcommonv3.RateLimitDescriptor_Entry) error {
	for in.More() {
		f, err := in.Next()
		if err != nil {
			return err
		}
		switch f.Tag {
		case entryKey:
			e.Key = f.Message.Text()
		case entryValue:
			e.Value = f.Message.Text()
		}
	}
	return nil
}

func decodeOverride(in wire.Message, o *ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride) error {
	for in.More() {
		f, err := in.Next()
		if err != nil {
			return err
		}
		switch f.Tag {
		case overrideRequestsPerUnit:
			o.RequestsPerUnit = uint32(f.Number)
		case overrideUnit:
			o.Unit = typev3.RateLimitUnit(f.Number)
		case overrideUnitMultiplier:
			if o.UnitMultiplier == nil {
				o.UnitMultiplier = new(wrapperspb.UInt32Value)
			}
			var v uint64
			v, err = decodeWrapper(f.Message, uint64(o.UnitMultiplier.Value))
			o.UnitMultiplier.Value = uint32(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeWrapper reads a message of one number, such as UInt64Value. It returns
// old where the message does not have it.
func decodeWrapper(in wire.Message, old uint64) (uint64, error) {
	for in.More() {
		f, err := in.Next()
		if err != nil {
			return 0, err
		}
		if f.Tag == wrapperValue {
			old = f.Number
		}
	}
	return old, nil
}
