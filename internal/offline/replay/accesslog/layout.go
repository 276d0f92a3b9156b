package accesslog

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/text/clientaddr"
)

// A parser takes lines of one format apart.
type parser interface {
	// parse sets the values of a line, all of which are Unreported before. It returns why it cannot,
	// without a part of the line. The values are valid until the next call.
	parse(line []byte, out *fields) (fault string)
}

// fields are the values of one line, by slot.
type fields struct {
	values []Value
	times  []int64 // what the parser has already read of times; 0: nothing
}

// known returns the value of a text that a log has. Logs write an absent value as nothing or as -.
func known(text []byte) Value {
	if len(text) == 0 || (len(text) == 1 && text[0] == '-') {
		return Value{State: Absent}
	}
	return Value{Text: text, State: Present}
}

func indexByte(b []byte, c byte) int { return bytes.IndexByte(b, c) }

// A transform makes the value of one attribute of the value of another.
type transform uint8

const (
	asIs transform = iota
	withoutQuery
	withoutPort
	portOnly
	ofSeconds // in milliseconds
	ofMicros
	ofNanos
	methodOfLine
	pathOfLine
	pathOnlyOfLine
	protocolOfLine
)

// A source is an attribute from which another one can be had.
type source struct {
	attribute Attribute
	how       transform
}

// sourcesOf returns from what an attribute can be had without loss, the best source first.
func sourcesOf(want Attribute) []source {
	switch want {
	case Path, OriginalOrPath:
		return []source{{OriginalOrPath, asIs}, {originalPath, asIs}, {Path, asIs}, {RequestLine, pathOfLine}}
	case PathOnly:
		return []source{
			{PathOnly, asIs},
			{OriginalOrPath, withoutQuery},
			{originalPathOnly, asIs},
			{originalPath, withoutQuery},
			{rewrittenPathOnly, asIs},
			{Path, withoutQuery},
			{RequestLine, pathOnlyOfLine},
		}
	case Method:
		return []source{{Method, asIs}, {RequestLine, methodOfLine}}
	case Protocol:
		return []source{{Protocol, asIs}, {RequestLine, protocolOfLine}}
	case Client:
		return []source{{Client, withoutPort}, {clientWithPort, withoutPort}}
	case Peer:
		return []source{{Peer, withoutPort}, {peerWithPort, withoutPort}}
	case LocalPort:
		return []source{{LocalPort, asIs}, {localWithPort, portOnly}}
	case Duration:
		return []source{{Duration, asIs}, {Seconds, ofSeconds}, {inMicros, ofMicros}, {inNanos, ofNanos}}
	}
	return []source{{want, asIs}}
}

// A derivation says how to get an attribute from the slots of a format.
type derivation []derived

type derived struct {
	slot int
	how  transform
}

// derive returns how to get want from slots with these attributes. It is empty if that cannot be.
func derive(want Attribute, slots []Attribute) derivation {
	var d derivation
	for _, s := range sourcesOf(want) {
		for slot, a := range slots {
			if a == s.attribute {
				d = append(d, derived{slot, s.how})
			}
		}
	}
	if len(d) > 0 {
		return d
	}
	// The first of two headers that is there: both must be known.
	inner, _ := strings.CutPrefix(string(want), "REQ(")
	if first, second, ok := strings.Cut(strings.TrimSuffix(inner, ")"), "?"); ok {
		if a, b := derive(Header(first), slots), derive(Header(second), slots); len(a) > 0 && len(b) > 0 {
			return slices.Concat(a, b)
		}
	}
	return nil
}

// of returns the value of a derivation: the first that is there.
func (d derivation) of(values []Value, scratch *[]byte) Value {
	var v Value
	for _, s := range d {
		switch values[s.slot].State {
		case Present:
			return s.how.of(values[s.slot], scratch)
		case Absent:
			v.State = Absent
		}
	}
	return v
}

// of applies t to a value that is present.
func (t transform) of(v Value, scratch *[]byte) Value {
	switch t {
	case withoutQuery:
		if i := indexByte(v.Text, '?'); i >= 0 {
			v.Text = v.Text[:i]
		}
	case withoutPort:
		v.Text = clientaddr.Host(v.Text)
	case portOnly:
		v.Text = portOf(v.Text)
	case ofSeconds, ofMicros, ofNanos:
		duration, ok := t.duration(v.Text)
		if !ok {
			return Value{State: Absent}
		}
		start := len(*scratch)
		*scratch = strconv.AppendInt(*scratch, duration/1e6, 10)
		v.Text = slices.Clip((*scratch)[start:])
	case methodOfLine, pathOfLine, pathOnlyOfLine, protocolOfLine:
		return partOfLine(v.Text, t)
	}
	if len(v.Text) == 0 {
		return Value{State: Absent}
	}
	return v
}

// portOf returns the port of an address, which is empty if the address has none.
func portOf(text []byte) []byte {
	if at := bytes.LastIndexByte(text, ':'); at >= len(clientaddr.Host(text)) {
		return text[at+1:]
	}
	return nil
}

// units are the nanoseconds in the unit of a duration.
var units = map[transform]float64{asIs: 1e6, ofSeconds: 1e9, ofMicros: 1e3, ofNanos: 1}

// duration returns a duration in nanoseconds.
func (t transform) duration(b []byte) (nanos int64, ok bool) {
	const most = 1e18 // some thirty years
	f, err := strconv.ParseFloat(string(b), 64)
	f = math.Round(f * units[t])
	return int64(f), err == nil && f >= 0 && f < most
}

// partOfLine returns a part of a line such as GET /a?b HTTP/1.1. A line of another form is no
// request.
func partOfLine(line []byte, part transform) Value {
	first := indexByte(line, ' ')
	if first <= 0 {
		return Value{State: Absent}
	}
	last := bytes.LastIndexByte(line, ' ')
	protocol := line[last+1:]
	if last == first || !bytes.HasPrefix(protocol, []byte("HTTP/")) {
		last, protocol = len(line), nil // HTTP/0.9 has none
	}
	switch part {
	case methodOfLine:
		return known(line[:first])
	case protocolOfLine:
		return known(protocol)
	}
	path := line[first+1 : last]
	if part == pathOnlyOfLine {
		if i := indexByte(path, '?'); i >= 0 {
			path = path[:i]
		}
	}
	return known(path)
}
