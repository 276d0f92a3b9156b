package wire

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encoded is an encoded message. The codec of the gRPC server passes it on unchanged.
type Encoded []byte

// AppendNumber appends a number. It leaves out zero, which is what an absent number means.
func AppendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// AppendText appends a text. It leaves out an empty one.
func AppendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return AppendAnyText(b, field, text)
}

// AppendAnyText appends a text, even an empty one. Bytes that are not UTF-8 become U+FFFD.
func AppendAnyText(b []byte, field protowire.Number, text string) []byte {
	if !utf8.ValidString(text) { // this check is much faster than ToValidUTF8 with a valid text
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// AppendMessage appends a field that holds a message or plain bytes, which write appends.
// It appends the field even if they are empty.
func AppendMessage(b []byte, field protowire.Number, write func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = append(b, 0) // for the length: below 128 it takes one byte
	start := len(b)
	b = write(b)
	length := len(b) - start
	if length < 1<<7 {
		b[start-1] = byte(length)
		return b
	}
	// Move the message to make room for a longer length.
	more := protowire.SizeVarint(uint64(length)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[start+more:], b[start:start+length])
	protowire.AppendVarint(b[:start-1], uint64(length))
	return b
}

// AppendStruct appends a field that holds a google.protobuf.Struct. write appends its
// entries. AppendStruct leaves out an empty Struct.
func AppendStruct(b []byte, field protowire.Number, write func([]byte) []byte) []byte {
	before := len(b)
	b = AppendMessage(b, field, write)
	if len(b) == before+protowire.SizeTag(field)+1 { // the length of nothing is one byte
		return b[:before]
	}
	return b
}
