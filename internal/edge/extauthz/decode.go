package extauthz

import (
	"errors"

	"github.com/slidegate/slidegate/internal/edge/wire"
)

// The tags of the fields of a CheckRequest that are read, by message.
const (
	checkAttributes = 1<<3 | wire.AsBytes

	attributesSource  = 1<<3 | wire.AsBytes
	attributesRequest = 4<<3 | wire.AsBytes
	attributesContext = 10<<3 | wire.AsBytes

	peerAddress = 1<<3 | wire.AsBytes

	addressSocket   = 1<<3 | wire.AsBytes
	addressPipe     = 2<<3 | wire.AsBytes
	addressInternal = 3<<3 | wire.AsBytes

	socketAddress = 2<<3 | wire.AsBytes

	requestHTTP = 2<<3 | wire.AsBytes

	httpMethod    = 2<<3 | wire.AsBytes
	httpHeaders   = 3<<3 | wire.AsBytes
	httpPath      = 4<<3 | wire.AsBytes
	httpHost      = 5<<3 | wire.AsBytes
	httpHeaderMap = 13<<3 | wire.AsBytes

	headerMapHeaders = 1<<3 | wire.AsBytes

	lineName  = 1<<3 | wire.AsBytes
	lineValue = 2<<3 | wire.AsBytes
	lineRaw   = 3<<3 | wire.AsBytes
)

// errOver stops the reading of a message that exceeds a bound.
var errOver = errors.New("the message exceeds a bound")

// Decode implements wire.Decoder. r must be empty. At the first header field or context
// entry above a bound it sets r.oversized or r.manyEntries and stops, so that the rest of the
// message takes no time.
func (r *request) Decode(encoded string) error {
	err := r.decode(wire.NewMessage(encoded, &r.read))
	if r.oversized || r.manyEntries {
		return nil
	}
	return err
}

func (r *request) decode(in wire.Message) error {
	return within(in, checkAttributes, r.decodeAttributes)
}

// within calls read with every field of the messages in that have a tag.
func within(in wire.Message, tag uint64, read func(wire.Field) error) error {
	return in.Each(func(f wire.Field) error {
		if f.Tag != tag {
			return nil
		}
		return f.Message.Each(read)
	})
}

func (r *request) decodeAttributes(f wire.Field) error {
	switch f.Tag {
	case attributesSource:
		return within(f.Message, peerAddress, r.decodeAddress)
	case attributesRequest:
		return within(f.Message, requestHTTP, r.decodeHTTP)
	case attributesContext:
		t, err := decodeEntry(f.Message)
		if err != nil {
			return err
		}
		return r.addContext(t)
	}
	return nil
}

func (r *request) decodeAddress(f wire.Field) error {
	switch f.Tag {
	case addressSocket:
		return f.Message.Each(func(f wire.Field) error {
			if f.Tag == socketAddress {
				r.peer = f.Message.Text()
			}
			return nil
		})
	case addressPipe, addressInternal:
		r.peer = ""
	}
	return nil
}

func (r *request) decodeHTTP(f wire.Field) error {
	switch f.Tag {
	case httpMethod:
		r.method = f.Message.Text()
	case httpPath:
		r.path = f.Message.Text()
		return r.grow(len(r.path))
	case httpHost:
		r.host = f.Message.Text()
		return r.grow(len(r.host))
	case httpHeaders:
		return r.addLine(f.Message, decodeEntry)
	case httpHeaderMap:
		return f.Message.Each(func(f wire.Field) error {
			if f.Tag != headerMapHeaders {
				return nil
			}
			return r.addLine(f.Message, decodeLine)
		})
	}
	return nil
}

func (r *request) addLine(in wire.Message, decode func(wire.Message) (text, error)) error {
	if len(r.fields.lines) == maxLines {
		r.oversized = true
		return errOver
	}
	t, err := decode(in)
	if err != nil {
		return err
	}
	r.fields.lines = append(r.fields.lines, t)
	return r.grow(len(t.name) + len(t.value))
}

func decodeEntry(in wire.Message) (t text, err error) {
	t.name, t.value, err = in.Pair()
	return t, err
}

// decodeLine reads a header field. If it has a raw value, that counts.
func decodeLine(in wire.Message) (t text, err error) {
	raw := ""
	err = in.Each(func(f wire.Field) error {
		switch f.Tag {
		case lineName:
			t.name = f.Message.Text()
		case lineValue:
			t.value = f.Message.Text()
		case lineRaw:
			raw = f.Message.Text()
		}
		return nil
	})
	if raw != "" {
		t.value = raw
	}
	return t, err
}
