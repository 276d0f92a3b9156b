package wire

import (
	"errors"
	"fmt"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Decoder is a message that decodes itself.
type Decoder interface {
	// Decode reads a whole encoded message. The texts of the message are parts of encoded
	// and keep it in memory.
	Decode(encoded string) error
}

// The wire types of fields that are read. A tag is number<<3 | wire type. Skip a field with
// another wire type like an unknown field, as proto.Unmarshal does.
const (
	AsVarint = uint64(protowire.VarintType)
	AsBytes  = uint64(protowire.BytesType)
)

// MaxFields bounds the fields of a message, including the fields of inner messages. Envoy's
// largest request has a few thousand. A field can be two bytes long, so without this bound
// reading a megabyte takes longer than a call may take.
const MaxFields = 32 << 10

// Message is the unread rest of an encoded message. Its texts are parts of the encoded
// string. They need not be UTF-8.
type Message struct {
	s string
	// fields counts the fields read, of this message and of all messages around it.
	fields *int
}

// NewMessage returns the message that s encodes. It counts the fields that are read in
// fields, which must be zero.
func NewMessage(s string, fields *int) Message { return Message{s, fields} }

// Text returns the bytes of the message as a text.
func (m *Message) Text() string { return m.s }

// Field is one field: a number, or bytes as a message.
type Field struct {
	Tag     uint64
	Number  uint64
	Message Message
}

// ErrMalformed means that the bytes are not a message.
var ErrMalformed = errors.New("not a valid protobuf message")

var errTooManyFields = fmt.Errorf("the message has more than %d fields", MaxFields)

// Each calls read with every field of m, until it returns an error, which Each returns.
func (m Message) Each(read func(Field) error) error {
	for len(m.s) > 0 {
		f, err := m.next()
		if err == nil {
			err = read(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Pair reads a message whose fields 1 and 2 are texts, such as an entry of a map.
func (m Message) Pair() (name, value string, err error) {
	err = m.Each(func(f Field) error {
		switch f.Tag {
		case 1<<3 | AsBytes:
			name = f.Message.Text()
		case 2<<3 | AsBytes:
			value = f.Message.Text()
		}
		return nil
	})
	return name, value, err
}

func (m *Message) next() (f Field, err error) {
	if f.Tag, err = m.tag(); err != nil {
		return f, err
	}
	switch protowire.Type(f.Tag & 7) {
	case protowire.VarintType:
		f.Number, err = m.varint()
	case protowire.BytesType:
		f.Message.fields = m.fields
		f.Message.s, err = m.bytes()
	default:
		err = m.skip(f.Tag)
	}
	return f, err
}

func (m *Message) tag() (uint64, error) {
	if *m.fields++; *m.fields > MaxFields {
		return 0, errTooManyFields
	}
	tag, err := m.varint()
	if err != nil {
		return 0, err
	}
	if n := tag >> 3; n > uint64(protowire.MaxValidNumber) || n == 0 {
		return 0, fmt.Errorf("%w: there is no field number %d", ErrMalformed, n)
	}
	return tag, nil
}

func (m *Message) varint() (v uint64, err error) {
	for i := 0; i < len(m.s); i++ {
		b := m.s[i]
		if i == 9 && b > 1 {
			return 0, fmt.Errorf("%w: a number has more than 64 bits", ErrMalformed)
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			m.s = m.s[i+1:]
			return v, nil
		}
	}
	return 0, errCutOff
}

var errCutOff = fmt.Errorf("%w: it ends too early", ErrMalformed)

func (m *Message) bytes() (string, error) {
	n, err := m.varint()
	if err != nil {
		return "", err
	}
	if n > uint64(len(m.s)) {
		return "", errCutOff
	}
	b := m.s[:n]
	m.s = m.s[n:]
	return b, nil
}

// skip skips the value of a field that nothing reads: a number of fixed length, or a group, which
// counts as one field. Envoy sends no groups.
func (m *Message) skip(tag uint64) error {
	number, kind := protowire.DecodeTag(tag)
	rest := unsafe.Slice(unsafe.StringData(m.s), len(m.s)) //nolint:gosec // protowire only reads it
	n := protowire.ConsumeFieldValue(number, kind, rest)
	if n < 0 {
		return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
	}
	m.s = m.s[n:]
	return nil
}

// Unreadable returns the status of a call whose message cannot be read because of err. It
// equals that of grpc-go.
func Unreadable(err error) error {
	return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
}
