package wire

import (
	"errors"
	"fmt"

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

// MaxFields bounds the fields of a message, including those of inner messages. Envoy's
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

// More reports whether there is another field.
func (m *Message) More() bool { return len(m.s) > 0 }

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

// errTooManyFields means that a message has more than MaxFields fields.
var errTooManyFields = fmt.Errorf("the message has more than %d fields", MaxFields)

// Next reads the next field of m. m must have one (see [Message.More]).
func (m *Message) Next() (f Field, err error) {
	if f.Tag, err = m.tag(); err != nil {
		return f, err
	}
	switch kind := protowire.Type(f.Tag & 7); kind {
	case protowire.VarintType:
		f.Number, err = m.varint()
	case protowire.BytesType:
		f.Message.fields = m.fields
		f.Message.s, err = m.bytes()
	case protowire.StartGroupType:
		err = m.skipGroup(f.Tag >> 3)
	default:
		err = m.skipFixed(kind)
	}
	return f, err
}

// Each calls read with every field of m.
func (m Message) Each(read func(Field) error) error {
	for m.More() {
		f, err := m.Next()
		if err == nil {
			err = read(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tag reads a tag and counts its field.
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

// varint reads a number.
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

// bytes reads a length and as many bytes.
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

// skipFixed skips a number of fixed length.
func (m *Message) skipFixed(kind protowire.Type) error {
	n := 0
	switch kind {
	case protowire.Fixed32Type:
		n = 4
	case protowire.Fixed64Type:
		n = 8
	default:
		return fmt.Errorf("%w: a field is of the unknown kind %d", ErrMalformed, kind)
	}
	if len(m.s) < n {
		return errCutOff
	}
	m.s = m.s[n:]
	return nil
}

// maxGroups bounds the nesting of groups.
const maxGroups = 100

// skipGroup skips the rest of a group with the field number n. Envoy sends no groups.
func (m *Message) skipGroup(n uint64) error {
	for open := []uint64{n}; len(open) > 0; {
		tag, err := m.tag()
		if err != nil {
			return err
		}
		switch kind := protowire.Type(tag & 7); kind {
		case protowire.VarintType:
			_, err = m.varint()
		case protowire.BytesType:
			_, err = m.bytes()
		case protowire.StartGroupType:
			if len(open) == maxGroups {
				return fmt.Errorf("groups are nested more than %d deep", maxGroups)
			}
			open = append(open, tag>>3)
		case protowire.EndGroupType:
			if tag>>3 != open[len(open)-1] {
				return fmt.Errorf("%w: a group ends that is not the innermost", ErrMalformed)
			}
			open = open[:len(open)-1]
		default:
			err = m.skipFixed(kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unreadable returns the status of a call whose message cannot be read because of err. It
// equals that of grpc-go.
func Unreadable(err error) error {
	return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
}
