package extauthz

import (
	"errors"

	"github.com/slidegate/slidegate/internal/wire"
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

	// These are the fields of an entry of a map.
	entryName  = 1<<3 | wire.AsBytes
	entryValue = 2<<3 | wire.AsBytes

	lineName  = 1<<3 | wire.AsBytes
	lineValue = 2<<3 | wire.AsBytes
	lineRaw   = 3<<3 | wire.AsBytes
)

// each calls read for every field of a message.
func each(in wire.Message, read func(tag uint64, in wire.Message) error) error {
	for in.More() {
		f, err := in.Next()
		if err != nil {
			return err
		}
		if err := read(f.Tag, f.Message); err != nil {
			return err
		}
	}
	return nil
}

// errOver stops the reading of a message that exceeds a bound.
var errOver = errors.New("the message exceeds a bound")

// Decode implements wire.Decoder. r must be empty. At the first header field or context
// entry above a bound it sets r.oversized or r.crowded and stops, so that the rest of the
// message takes no time.
func (r *request) Decode(encoded string) error {
	err := r.decode(wire.NewMessage(encoded, &r.read))
	if r.oversized || r.crowded {
		return nil
	}
	return err
}

func (r *request) decode(in wire.Message) error {
	return each(in, func(tag uint64, in wire.Message) error {
		if tag != checkAttributes {
			return nil
		}
		return each(in, r.decodeAttributes)
	})
}

func (r *request) decodeAttributes(tag uint64, in wire.Message) error {
	switch tag {
	case attributesSource:
		return each(in, func(tag uint64, in wire.Message) error {
			if tag != peerAddress {
				return nil
			}
			return each(in, r.decodeAddress)
		})
	case attributesRequest:
		return each(in, func(tag uint64, in wire.Message) error {
			if tag != requestHTTP {
				return nil
			}
			return each(in, r.decodeHTTP)
		})
	case attributesContext:
		t, err := decodeEntry(in)
		if err != nil {
			return err
		}
		return r.addContext(t)
	}
	return nil
}

func (r *request) decodeAddress(tag uint64, in wire.Message) error {
	switch tag {
	case addressSocket:
		return each(in, func(tag uint64, in wire.Message) error {
			if tag == socketAddress {
				r.peer = in.Text()
			}
			return nil
		})
	case addressPipe, addressInternal:
		r.peer = ""
	}
	return nil
}

func (r *request) decodeHTTP(tag uint64, in wire.Message) error {
	switch tag {
	case httpMethod:
		r.method = in.Text()
	case httpPath:
		r.path = in.Text()
		return r.grow(len(r.path))
	case httpHost:
		r.host = in.Text()
		return r.grow(len(r.host))
	case httpHeaders:
		return r.addLine(in, decodeEntry)
	case httpHeaderMap:
		return each(in, func(tag uint64, in wire.Message) error {
			if tag != headerMapHeaders {
				return nil
			}
			return r.addLine(in, decodeLine)
		})
	}
	return nil
}

// addLine reads a header field with decode and adds it.
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

// decodeEntry reads an entry of a map.
func decodeEntry(in wire.Message) (t text, err error) {
	err = each(in, func(tag uint64, in wire.Message) error {
		switch tag {
		case entryName:
			t.name = in.Text()
		case entryValue:
			t.value = in.Text()
		}
		return nil
	})
	return t, err
}

// decodeLine reads a header field. If it has a raw value, that counts.
func decodeLine(in wire.Message) (t text, err error) {
	raw := ""
	err = each(in, func(tag uint64, in wire.Message) error {
		switch tag {
		case lineName:
			t.name = in.Text()
		case lineValue:
			t.value = in.Text()
		case lineRaw:
			raw = in.Text()
		}
		return nil
	})
	if raw != "" {
		t.value = raw
	}
	return t, err
}
