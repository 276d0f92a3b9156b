package ratelimit

import (
	"errors"
	"fmt"
	"slices"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// message is a RateLimitRequest as plain values. The next message reuses its memory. It
// implements wire.Decoder and reads the same as proto.Unmarshal, except that texts need not
// be UTF-8. Texts are parts of the encoded message.
type message struct {
	domain     string
	hitsAddend uint32
	// over names the bound that the message exceeds, and says what to do. Reading ends there, and
	// on_store_error decides the request. Empty if the message exceeds none.
	over        string
	fields      int // the number of fields read
	encoded     string
	descriptors []described
	// entries has the entries of all descriptors, one after the other. The decide.Request
	// uses them too.
	entries []descriptors.Entry
}

// described is one descriptor of a message. It owns the next entries of message.entries.
type described struct {
	entries    int // the number of its entries
	hitsAddend uint64
	hasAddend  bool // there is a hitsAddend, which may be zero
	refund     bool
	limited    bool // there is a limit
	limit      override
}

// The tags of the fields that are read: number<<3 | wire type. A field with another wire
// type is skipped like an unknown field, as proto.Unmarshal does.
const (
	requestDomain      = 1<<3 | wire.AsBytes
	requestDescriptors = 2<<3 | wire.AsBytes
	requestHitsAddend  = 3<<3 | wire.AsVarint

	descriptorEntries    = 1<<3 | wire.AsBytes
	descriptorLimit      = 2<<3 | wire.AsBytes
	descriptorHitsAddend = 3<<3 | wire.AsBytes
	descriptorIsNegative = 4<<3 | wire.AsVarint

	overrideRequestsPerUnit = 1<<3 | wire.AsVarint
	overrideUnit            = 2<<3 | wire.AsVarint
	overrideUnitMultiplier  = 3<<3 | wire.AsBytes

	wrapperValue = 1<<3 | wire.AsVarint
)

// The bounds of one request. Envoy sends one descriptor for each configured list of
// actions, so a few descriptors with a few entries each. More is a mistake or an attack.
const (
	maxDescriptors = 256
	maxEntries     = 4096 // of all descriptors together
)

// errOver stops the reading of a message that exceeds a bound.
var errOver = errors.New("the message exceeds a bound")

// Decode implements wire.Decoder. m must be empty. Decode skips unknown fields. At the
// first descriptor or entry above a bound it sets m.over and stops, so that the rest of the
// message takes no time.
func (m *message) Decode(encoded string) error {
	m.encoded = encoded
	err := m.decode(wire.NewMessage(encoded, &m.fields))
	if m.over != "" {
		return nil
	}
	return err
}

func (m *message) decode(in wire.Message) error {
	return in.Each(func(f wire.Field) error {
		switch f.Tag {
		case requestDomain:
			m.domain = f.Message.Text()
		case requestDescriptors:
			return m.decodeDescriptor(f.Message)
		case requestHitsAddend:
			m.hitsAddend = uint32(f.Number)
		}
		return nil
	})
}

func (m *message) decodeDescriptor(in wire.Message) error {
	if len(m.descriptors) == maxDescriptors {
		m.over = fmt.Sprintf("it has more than %d descriptors: send fewer in one request", maxDescriptors)
		return errOver
	}
	var d described
	before := len(m.entries)
	err := in.Each(func(f wire.Field) (err error) {
		switch f.Tag {
		case descriptorEntries:
			if len(m.entries) == maxEntries {
				m.over = fmt.Sprintf("its descriptors have more than %d entries together: send fewer in one request", maxEntries)
				return errOver
			}
			if n := len(m.entries); n == cap(m.entries) {
				m.entries = slices.Grow(m.entries, max(8, n)) // append alone would copy thousands five times over
			}
			var e descriptors.Entry
			e.Key, e.Value, err = f.Message.Pair()
			m.entries = append(m.entries, e)
		case descriptorLimit:
			// protobuf merges a second limit into the first.
			d.limited = true
			err = d.limit.decode(f.Message)
		case descriptorHitsAddend:
			d.hasAddend = true
			d.hitsAddend, err = decodeWrapper(f.Message, d.hitsAddend)
		case descriptorIsNegative:
			d.refund = protowire.DecodeBool(f.Number)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.entries = len(m.entries) - before
	m.descriptors = append(m.descriptors, d)
	return nil
}

func (o *override) decode(in wire.Message) error {
	return in.Each(func(f wire.Field) (err error) {
		switch f.Tag {
		case overrideRequestsPerUnit:
			o.requestsPerUnit = uint32(f.Number)
		case overrideUnit:
			o.unit = typev3.RateLimitUnit(f.Number)
		case overrideUnitMultiplier:
			o.multiplied = true
			var v uint64
			v, err = decodeWrapper(f.Message, uint64(o.multiplier))
			o.multiplier = uint32(v)
		}
		return err
	})
}

// decodeWrapper reads a message of one number, such as UInt64Value. If the message is
// empty, decodeWrapper returns old.
func decodeWrapper(in wire.Message, old uint64) (uint64, error) {
	err := in.Each(func(f wire.Field) error {
		if f.Tag == wrapperValue {
			old = f.Number
		}
		return nil
	})
	return old, err
}

// cost returns the hitsAddend of the descriptor, even if it is zero. Without one it returns
// that of the request, where zero means one.
func (m *message) cost(d *described) uint64 {
	if d.hasAddend {
		return d.hitsAddend
	}
	return max(1, uint64(m.hitsAddend))
}

// forget removes the message and keeps the memory for the next one.
func (m *message) forget() {
	*m = message{descriptors: reuse.Slice(m.descriptors), entries: reuse.Slice(m.entries)}
}
