package ratelimit

import (
	"strings"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec falls back on
	"google.golang.org/grpc/mem"

	"github.com/slidegate/slidegate/internal/wire"
)

// Codec is the protobuf codec, but for messages that read themselves
// (wire.Decoder), and for answers that are encoded already (wire.Encoded). Install
// it with grpc.ForceServerCodecV2. It is stateless and safe for concurrent use.
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

// Unmarshal implements encoding.CodecV2. Texts are copied out of data.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(wire.Decoder)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	// One copy, whatever the number of buffers: with a second one, a call could take
	// more than twice the largest message.
	var encoded strings.Builder
	encoded.Grow(data.Len())
	for _, b := range data {
		encoded.Write(b.ReadOnlyData())
	}
	return m.Decode(encoded.String())
}
