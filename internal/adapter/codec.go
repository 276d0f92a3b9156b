package adapter

import (
	"strings"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec falls back on
	"google.golang.org/grpc/mem"

	"github.com/slidegate/slidegate/internal/wire"
)

// Codec is the protobuf codec, except that it lets messages decode themselves
// (wire.Decoder) and passes on encoded answers (wire.Encoded). Install it with
// grpc.ForceServerCodecV2. It is safe for concurrent use.
type Codec struct{ proto encoding.CodecV2 }

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Name returns "proto": the bytes on the wire are the same.
func (c Codec) Name() string { return c.proto.Name() }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if encoded, ok := v.(wire.Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(encoded)}, nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. v keeps no part of data.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(wire.Decoder)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	// Copy data once. With a second copy a call could take more than twice the memory of
	// the largest message.
	var encoded strings.Builder
	encoded.Grow(data.Len())
	for _, b := range data {
		encoded.Write(b.ReadOnlyData())
	}
	return m.Decode(encoded.String())
}
