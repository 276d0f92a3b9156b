package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Decoder is a message that reads itself.
type Decoder interface {
	// Decode reads a whole message. Texts are parts of it, and keep it in memory.
	Decode(Message) error
}

// The kinds of fields that are read, for tags: number<<3 | kind. A field that
// arrives as another kind than its own is to be skipped like an unknown one, as
// proto.Unmarshal does.
const (
	AsVarint = uint64(protowire.VarintType)
	AsBytes  = uint64(protowire.BytesType)
)

// Message is what is left of an encoded message, as bytes and as a string: the
// same bytes, so that a text field is a part of the string and needs no copy of
// its own. Nothing is required to be UTF-8.
type Message struct {
	b []byte
	s string
}

// NewMessage returns the message in b, which must not change while it is read.
func NewMessage(b []byte) Message { return Message{b, string(b)} }

// More reports whether there is another field.
func (m *Message) More() bool { return len(m.b) > 0 }

// Text returns the message as the text that it is.
func (m *Message) Text() string { return m.s }

// Field is one field: a number, or bytes as a message.
type Field struct {
	Tag     uint64
	Number  uint64
	Message Message
}

// ErrMalformed says that bytes are no message.
var ErrMalformed = errors.New("not a valid protobuf message")

// Next takes the first field off m, which has one.
func (m *Message) Next() (f Field, err error) {
	num, wire, n := protowire.ConsumeTag(m.b)
	if n < 0 {
		return f, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
	}
	if !num.IsValid() {
		return f, fmt.Errorf("%w: there is no field number %d", ErrMalformed, num)
	}
	m.skip(n)
	f.Tag = protowire.EncodeTag(num, wire)
	switch wire {
	case protowire.VarintType:
		f.Number, n = protowire.ConsumeVarint(m.b)
	case protowire.BytesType:
		var v []byte
		if v, n = protowire.ConsumeBytes(m.b); n >= 0 {
			f.Message = Message{v, m.s[n-len(v) : n]}
		}
	default:
		n = protowire.ConsumeFieldValue(num, wire, m.b)
	}
	if n < 0 {
		return f, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
	}
	m.skip(n)
	return f, nil
}

func (m *Message) skip(n int) { m.b, m.s = m.b[n:], m.s[n:] }

// Unreadable is the status of a call whose message cannot be read for err, as
// grpc-go answers it.
func Unreadable(err error) error {
	return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
}
