package accesslog

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A format is a format of lines: what each of its fields is.
type format struct {
	name  string
	slots []Attribute
	names []string    // of the fields of JSON, by slot
	text  *textFormat // of a format that is not JSON
	// written is true for a format of Envoy's configuration.
	written bool
	// nginxTime is true if a line is likely only if its duration is written as by nginx.
	nginxTime bool
}

// A decoder makes records of the lines of one file.
type decoder struct {
	parser       parser
	line         fields
	seen         []bool // slots that a line of the file has had; nil: every line has all slots
	headers      []int  // slots of headers, of which Caddy redacts some
	wants        []derivation
	addresses    []int // of the wants, those that should be addresses
	start, emit  []timeSlot
	duration     derivation
	method, path derivation
	scratch      []byte
	isEnd        bool  // the last record has the time of its end
	isWhole      bool  // the time in its line has no parts of a second
	written      int64 // the time in its line
}

// A timeSlot is a slot with a time.
type timeSlot struct {
	slot   int
	layout string
	usual  bool // any of the usual forms, not the layout
}

// read reads a text as a time.
func (t *timeSlot) read(text []byte) (int64, bool) {
	if t.usual {
		return parseTime(text)
	}
	return parseLayout(t.layout, text)
}

// newDecoder returns a decoder for records with values for the wanted attributes.
func (f *format) newDecoder(want []Attribute) (*decoder, error) {
	slots, names := f.slots, f.names
	d := &decoder{
		line:     fields{values: make([]Value, len(slots)), times: make([]int64, len(slots))},
		duration: derive(Duration, slots),
		method:   derive(Method, slots),
		path:     append(derive(PathOnly, slots), derive(Path, slots)...),
	}
	for i, a := range want {
		d.wants = append(d.wants, derive(a, slots))
		if a == Client || a == Peer {
			d.addresses = append(d.addresses, i)
		}
	}
	for slot, a := range slots {
		t, kind, err := timeOf(a)
		t.slot = slot
		switch {
		case err != nil:
			return nil, err
		case kind == StartTime:
			d.start = append(d.start, t)
		case kind == EmitTime:
			d.emit = append(d.emit, t)
		}
	}
	if len(d.start)+len(d.emit) == 0 {
		return nil, fmt.Errorf("the format %s does not say when a request came; it needs %s", f.name, StartTime)
	}
	if f.text == nil {
		d.parser, d.seen = newJSONParser(names), make([]bool, len(slots))
		for slot, name := range names {
			if f.name == caddyName && strings.HasPrefix(name, caddyHeaders) {
				d.headers = append(d.headers, slot)
				d.seen[slot] = true // Caddy writes all headers that a request has
			}
		}
	} else {
		d.parser = newTextParser(f.text)
	}
	return d, nil
}

// IsTime reports whether an attribute says when a request came. The error says what is wrong with
// its format of times.
func (a Attribute) IsTime() (bool, error) {
	_, kind, err := timeOf(a)
	return kind != "", err
}

// timeOf returns which time an attribute is, StartTime or EmitTime, and how it is written.
func timeOf(a Attribute) (t timeSlot, kind Attribute, err error) {
	name, argument, _ := strings.Cut(string(a), "(")
	switch Attribute(name) {
	case StartTime, startTimeLocal:
		kind = StartTime
	case EmitTime, emitTimeLocal:
		kind = EmitTime
	default:
		return t, "", nil
	}
	argument = strings.TrimSuffix(argument, ")")
	if t.usual = argument == ""; !t.usual {
		t.layout, err = layoutOf(argument)
	}
	return t, kind, err
}

// An outcome is what a line is.
type outcome uint8

const (
	isRequest outcome = iota
	isNoRequest
	isBroken
)

// decode reads a line. Its values stay valid until the next call. If the line is broken, fault says
// why, without a part of the line.
func (d *decoder) decode(line []byte) (at int64, is outcome, fault string) {
	clear(d.line.values)
	clear(d.line.times)
	d.scratch = d.scratch[:0]
	if fault := d.parser.parse(line, &d.line); fault != "" {
		return 0, isBroken, fault
	}
	for slot := range d.seen {
		if d.line.values[slot].State != Unreported {
			d.seen[slot] = true
		} else if d.seen[slot] {
			d.line.values[slot].State = Absent
		}
	}
	for _, slot := range d.headers {
		if v := &d.line.values[slot]; string(v.Text) == "REDACTED" {
			*v = Value{}
		}
	}
	if at, fault = d.time(); fault != "" {
		return 0, isBroken, fault
	}
	if d.isSilent() {
		return at, isNoRequest, ""
	}
	return at, isRequest, ""
}

// isSilent reports whether the line says that no request came: it could have a method and a path,
// and has neither.
func (d *decoder) isSilent() bool {
	return (len(d.method) > 0 || len(d.path) > 0) &&
		(len(d.method) == 0 || d.method.of(d.line.values, &d.scratch).State == Absent) &&
		(len(d.path) == 0 || d.path.of(d.line.values, &d.scratch).State == Absent)
}

// time returns when the request started.
func (d *decoder) time() (at int64, fault string) {
	d.isEnd = false
	if at, ok := d.read(d.start); ok {
		d.isWhole, d.written = at%int64(time.Second) == 0, at
		return at, ""
	}
	at, ok := d.read(d.emit)
	d.isWhole, d.written = at%int64(time.Second) == 0, at
	if !ok {
		return 0, "has no time that can be read; times are from 1970 to 2100"
	}
	nanos, ok := d.lasted()
	if d.isEnd = !ok || nanos > at; !d.isEnd {
		at -= nanos
	}
	return at, ""
}

func (d *decoder) read(slots []timeSlot) (int64, bool) {
	for _, t := range slots {
		if at := d.line.times[t.slot]; at > 0 {
			return at, true
		}
		v := d.line.values[t.slot]
		if v.State != Present {
			continue
		}
		at, ok := t.read(v.Text)
		if ok {
			return at, true
		}
	}
	return 0, false
}

// lasted returns how long the request lasted, in nanoseconds.
func (d *decoder) lasted() (int64, bool) {
	for _, s := range d.duration {
		v := d.line.values[s.slot]
		if v.State != Present {
			continue
		}
		if nanos, ok := s.how.duration(v.Text); ok {
			return nanos, true
		}
	}
	return 0, false
}

// likely reports whether the last line says something of a request, and its values look as those of
// the format.
func (d *decoder) likely(nginxTime bool) bool {
	for _, s := range d.duration {
		if v := d.line.values[s.slot]; nginxTime && v.State == Present && !isNginxTime(v.Text) {
			return false
		}
	}
	says := slices.ContainsFunc(d.wants, func(w derivation) bool { return w.of(d.line.values, &d.scratch).State == Present })
	return says && !d.lacksAddress()
}

// lacksAddress reports whether a value that should be an address is another text.
func (d *decoder) lacksAddress() bool {
	for _, i := range d.addresses {
		if v := d.wants[i].of(d.line.values, &d.scratch); v.State == Present && !isAddress(v.Text) {
			return true
		}
	}
	return false
}

const recordHead = 8 + 4 // the number of the line, the index of the file

// appendRecord appends the record of the last line in the form that readRecord reads.
func (d *decoder) appendRecord(b []byte, file int, line int64) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(line))
	b = binary.LittleEndian.AppendUint32(b, uint32(file))
	heads := len(b)
	for range d.wants {
		b = append(b, 0, 0, 0, 0)
	}
	for i, w := range d.wants {
		var v Value
		if len(w) == 1 && w[0].how == asIs {
			v = d.line.values[w[0].slot] // most attributes
		} else {
			v = w.of(d.line.values, &d.scratch)
		}
		binary.LittleEndian.PutUint32(b[heads+4*i:], uint32(len(v.Text))<<2|uint32(v.State))
		b = append(b, v.Text...)
	}
	return b
}

// readRecord sets r from what appendRecord has made.
func readRecord(r *Record, at int64, b []byte) {
	r.At = time.Duration(at)
	r.Line = int64(binary.LittleEndian.Uint64(b))
	r.File = int(binary.LittleEndian.Uint32(b[8:]))
	texts := recordHead + 4*len(r.Values)
	for i := range r.Values {
		head := binary.LittleEndian.Uint32(b[recordHead+4*i:])
		end := texts + int(head>>2)
		r.Values[i] = Value{Text: b[texts:end:end], State: State(head & 3)}
		texts = end
	}
}
