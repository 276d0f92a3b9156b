package adapter

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec falls back on
	"google.golang.org/grpc/mem"

	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

// Codec is the protobuf codec, except that it lets messages decode themselves
// (wire.Decoder) and passes on encoded answers (wire.Encoded). Install it with
// grpc.ForceServerCodecV2. It is safe for concurrent use.
type Codec struct {
	proto encoding.CodecV2
	most  int
}

// NewCodec returns a Codec.
func NewCodec() Codec { return NewBoundedCodec(math.MaxInt) }

// NewBoundedCodec returns a Codec that gives a [Call] at most the first most bytes of a message. A
// longer message exceeds a bound ([Call.Describe]), so that the rules decide it: Envoy lets a
// request pass if the server refuses its message.
func NewBoundedCodec(most int) Codec { return Codec{encoding.GetCodecV2("proto"), most} }

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
	length := data.Len()
	kept := min(length, c.most)
	var encoded strings.Builder
	encoded.Grow(kept)
	for _, b := range data {
		part := b.ReadOnlyData()
		encoded.Write(part[:min(len(part), kept-encoded.Len())])
	}
	call, ok := v.(Call)
	if !ok || length == kept {
		return m.Decode(encoded.String())
	}
	_ = call.Decode(encoded.String()) // a beginning may end in the middle of a field
	call.Describe(&unary.Call{Exceeds: fmt.Sprintf("received message larger than max (%d vs. %d)", length, c.most)})
	return nil
}
