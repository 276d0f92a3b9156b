package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encoded is an encoded message. The codec of the gRPC server passes it on as it
// is.
type Encoded []byte

// AppendNumber appends a number, unless it is zero: that is what its absence
// means.
func AppendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// AppendText appends a text, unless it is empty.
func AppendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return AppendAnyText(b, field, text)
}

// AppendAnyText appends a text, empty ones too. What is not UTF-8 in it becomes
// U+FFFD.
func AppendAnyText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), strings.ToValidUTF8(text, "\uFFFD"))
}

// AppendMessage appends a field that holds what write appends: a message, or
// plain bytes. It is there even if that is nothing.
func AppendMessage(b []byte, field protowire.Number, write func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = append(b, 0) // the length takes one byte if it is below 128, which most are
	start := len(b)
	b = write(b)
	length := len(b) - start
	if length < 1<<7 {
		b[start-1] = byte(length)
		return b
	}
	// The rest moves on to make room for a longer one.
	more := protowire.SizeVarint(uint64(length)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[start+more:], b[start:start+length])
	protowire.AppendVarint(b[:start-1], uint64(length))
	return b
}

// AppendStruct appends a field that holds a google.protobuf.Struct, whose entries
// write appends, unless there are none.
func AppendStruct(b []byte, field protowire.Number, write func([]byte) []byte) []byte {
	before := len(b)
	b = AppendMessage(b, field, write)
	if len(b) == before+protowire.SizeTag(field)+1 { // the length of nothing is one byte
		return b[:before]
	}
	return b
}
