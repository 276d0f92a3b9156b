package xds

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that newCodec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// codec is the protobuf codec, except that it refuses a message with very many short fields: a
// resource of two bytes takes a hundred once it is decoded.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// maxFields is how many fields a message may have whatever its length.
const maxFields = 1 << 14

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	most := max(maxFields, data.Len()/bytesAMessage)
	all := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer all.Free()
	rest := all.ReadOnlyData()
	for fields := 0; len(rest) > 0; fields++ {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			break // the error of the wrapped codec says why
		}
		if fields == most {
			return fmt.Errorf("a response has more than %d resources of less than %d bytes each", most, bytesAMessage)
		}
		rest = rest[n:]
	}
	return c.CodecV2.Unmarshal(data, v) //nolint:wrapcheck // it is the error of the codec
}
