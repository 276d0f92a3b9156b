package ratelimit

import (
	"errors"
	"fmt"

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
// and without refusing strings that are not UTF-8, and for answers that are
// encoded already (wire.Encoded). Install it with
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
	m, ok := v.(*rlsv3.RateLimitRequest)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	b := buf.ReadOnlyData()
	m.Reset()
	return decodeRequest(message{b, string(b)}, m)
}

// The fields that are read, as their tags on the wire: number<<3 | wire type.
// A field that arrives with another wire type than its own is skipped like an
// unknown one, as proto.Unmarshal does.
const (
	asVarint = uint64(protowire.VarintType)
	asBytes  = uint64(protowire.BytesType)

	requestDomain      = 1<<3 | asBytes
	requestDescriptors = 2<<3 | asBytes
	requestHitsAddend  = 3<<3 | asVarint

	descriptorEntries    = 1<<3 | asBytes
	descriptorLimit      = 2<<3 | asBytes
	descriptorHitsAddend = 3<<3 | asBytes
	descriptorIsNegative = 4<<3 | asVarint

	entryKey   = 1<<3 | asBytes
	entryValue = 2<<3 | asBytes

	overrideRequestsPerUnit = 1<<3 | asVarint
	overrideUnit            = 2<<3 | asVarint
	overrideUnitMultiplier  = 3<<3 | asBytes

	wrapperValue = 1<<3 | asVarint
)

// decodeRequest reads a RateLimitRequest as proto.Unmarshal would, but takes
// strings as they are. Fields that it does not know are skipped.
func decodeRequest(in message, m *rlsv3.RateLimitRequest) error {
	for len(in.b) > 0 {
		f, err := in.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case requestDomain:
			m.Domain = f.sub.s
		case requestDescriptors:
			d := new(ratelimitcommonv3.RateLimitDescriptor)
			m.Descriptors = append(m.Descriptors, d)
			err = decodeDescriptor(f.sub, d)
		case requestHitsAddend:
			m.HitsAddend = uint32(f.number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeDescriptor(in message, d *ratelimitcommonv3.RateLimitDescriptor) error {
	for len(in.b) > 0 {
		f, err := in.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case descriptorEntries:
			e := new(ratelimitcommonv3.RateLimitDescriptor_Entry)
			d.Entries = append(d.Entries, e)
			err = decodeEntry(f.sub, e)
		case descriptorLimit:
			if d.Limit == nil {
				d.Limit = new(ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride)
			}
			err = decodeOverride(f.sub, d.Limit)
		case descriptorHitsAddend:
			if d.HitsAddend == nil {
				d.HitsAddend = new(wrapperspb.UInt64Value)
			}
			d.HitsAddend.Value, err = decodeWrapper(f.sub, d.HitsAddend.Value)
		case descriptorIsNegative:
			d.IsNegativeHits = protowire.DecodeBool(f.number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeEntry(in message, e *ratelimitcommonv3.RateLimitDescriptor_Entry) error {
	for len(in.b) > 0 {
		f, err := in.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case entryKey:
			e.Key = f.sub.s
		case entryValue:
			e.Value = f.sub.s
		}
	}
	return nil
}

func decodeOverride(in message, o *ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride) error {
	for len(in.b) > 0 {
		f, err := in.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case overrideRequestsPerUnit:
			o.RequestsPerUnit = uint32(f.number)
		case overrideUnit:
			o.Unit = typev3.RateLimitUnit(f.number)
		case overrideUnitMultiplier:
			if o.UnitMultiplier == nil {
				o.UnitMultiplier = new(wrapperspb.UInt32Value)
			}
			var v uint64
			v, err = decodeWrapper(f.sub, uint64(o.UnitMultiplier.Value))
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
func decodeWrapper(in message, old uint64) (uint64, error) {
	for len(in.b) > 0 {
		f, err := in.next()
		if err != nil {
			return 0, err
		}
		if f.tag == wrapperValue {
			old = f.number
		}
	}
	return old, nil
}

// message is what is left of an encoded message, as bytes and as a string: the
// same bytes, so that a text field is a part of s and needs no copy of its own.
type message struct {
	b []byte
	s string
}

// field is one field: a number or bytes, by the wire type in its tag.
type field struct {
	tag    uint64
	number uint64
	sub    message
}

var errMalformed = errors.New("ratelimit: the request is not a valid protobuf message")

// next takes the first field off m, which is not empty.
func (m *message) next() (f field, err error) {
	num, wire, n := protowire.ConsumeTag(m.b)
	if n < 0 {
		return f, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
	}
	if !num.IsValid() {
		return f, fmt.Errorf("%w: there is no field number %d", errMalformed, num)
	}
	m.skip(n)
	f.tag = protowire.EncodeTag(num, wire)
	switch wire {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(m.b)
	case protowire.BytesType:
		var v []byte
		if v, n = protowire.ConsumeBytes(m.b); n >= 0 {
			f.sub = message{v, m.s[n-len(v) : n]}
		}
	default:
		n = protowire.ConsumeFieldValue(num, wire, m.b)
	}
	if n < 0 {
		return f, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
	}
	m.skip(n)
	return f, nil
}

func (m *message) skip(n int) { m.b, m.s = m.b[n:], m.s[n:] }
