package accesslog

import "bytes"

// A jsonTemplate is an object of an earlier line. Nearly all lines of a log have the same members in
// the same order, and many of the same values. So the bytes between the values that differ are
// compared at once, with the names, commas and values in them.
type jsonTemplate struct {
	text    []byte // of the object, behind its brace
	members []jsonMember
	whole   bool // members has all of the object
	steps   []jsonStep
	sets    []int // the members that steps set, in their order

	followed, missed int // objects since it was learned
}

// A jsonMember is a member of a template.
type jsonMember struct {
	field    *jsonField
	from, to int // of its value, in the text of the template
	// differs is true if an object had another value, or if the value must be read each time.
	differs bool

	// What the field gets of a value that does not differ.
	textFrom, textTo int
	state            State
}

// A jsonStep is what lies behind a value that differs, up to the next such value.
type jsonStep struct {
	text            []byte
	from            int // of text, in the text of the template
	first           int // the first member in it
	member          int // the one whose value comes then; at the end of the object, how many there are
	setFrom, setEnd int // of the sets of the template
}

const (
	maxMembers  = 64
	maxTemplate = 16 << 10 // bytes
	// A template is learned anew after mostFollowed objects, or mostMissed with other members.
	mostFollowed, mostMissed = 1024, 16
)

// due reports whether the template is to be learned.
func (t *jsonTemplate) due() bool {
	return len(t.steps) == 0 || t.followed >= mostFollowed || t.missed >= mostMissed
}

// begin begins to learn an object.
func (t *jsonTemplate) begin() {
	t.members, t.steps, t.whole, t.followed, t.missed = t.members[:0], t.steps[:0], true, 0, 0
}

// learn adds a member whose value is in b[from:to].
func (t *jsonTemplate) learn(b []byte, from, to int, field *jsonField) {
	if len(t.members) == maxMembers {
		t.whole = false
		return
	}
	m := jsonMember{field: field, from: from, to: to}
	if field != nil {
		raw := b[from:to]
		m.textFrom, m.textTo = from, to
		switch raw[0] {
		case '"':
			m.textFrom, m.textTo = from+1, to-1
			m.differs = bytes.IndexByte(raw, '\\') >= 0
		case 'n':
			m.textTo = from
		case '[':
			m.differs = true
		}
		v := told(b[m.textFrom:m.textTo])
		m.textTo, m.state = m.textFrom+len(v.Text), v.State
		m.differs = m.differs || field.below != nil
	}
	t.members = append(t.members, m)
}

// end ends learning. The object was b[from:to]; to is -1 if it is broken.
func (t *jsonTemplate) end(b []byte, from, to int) {
	if to < 0 {
		return
	}
	if !t.whole {
		last := &t.members[len(t.members)-1]
		last.differs = true // the byte behind a number says whether the number ends
		to = last.to
	}
	if to-from > maxTemplate {
		return
	}
	t.text = append(t.text[:0], b[from:to]...)
	for k := range t.members {
		m := &t.members[k]
		m.from, m.to, m.textFrom, m.textTo = m.from-from, m.to-from, m.textFrom-from, m.textTo-from
	}
	t.link()
}

// link makes the steps.
func (t *jsonTemplate) link() {
	t.steps, t.sets = t.steps[:0], t.sets[:0]
	s := jsonStep{}
	add := func(to, member int) {
		s.text, s.member, s.setEnd = t.text[s.from:to], member, len(t.sets)
		t.steps = append(t.steps, s)
	}
	for k := range t.members {
		switch m := &t.members[k]; {
		case m.differs:
			add(m.from, k)
			s = jsonStep{from: m.to, first: k + 1, setFrom: len(t.sets)}
		case m.field != nil:
			t.sets = append(t.sets, k)
		}
	}
	add(len(t.text), len(t.members))
}

// differ finds the member in a step that has another value in an object, which goes on with b, and
// makes a step end there. It returns false if the object has other members.
func (t *jsonTemplate) differ(b []byte, s *jsonStep) bool {
	from, to := s.from, s.from+len(s.text)
	for k := s.first; k < s.member; k++ {
		m := &t.members[k]
		if !bytes.HasPrefix(b, t.text[from:m.from]) {
			return false
		}
		b = b[m.from-from:]
		// With the byte behind it, 1 is not the beginning of 12.
		if !bytes.HasPrefix(b, t.text[m.from:min(m.to+1, to)]) {
			m.differs = true
			t.link()
			return true
		}
		b, from = b[m.to-m.from:], m.to
	}
	return false
}

// follow reads an object whose brace is behind i by a template. It returns the index behind it, or
// -1. If more is true, it returns the index behind the last value that it has read, or i, because the
// object does not go on like the template.
func (p *jsonParser) follow(b []byte, i int, t *jsonTemplate, depth int) (end int, more bool) {
	t.followed++
	for at := 0; at < len(t.steps); at++ {
		s := &t.steps[at]
		for !bytes.HasPrefix(b[i:], s.text) {
			if !t.differ(b[i:], s) {
				t.missed++
				return i, true
			}
			s = &t.steps[at]
		}
		for _, k := range t.sets[s.setFrom:s.setEnd] {
			m := &t.members[k]
			p.set(m.field, Value{Text: b[i+m.textFrom-s.from : i+m.textTo-s.from], State: m.state})
		}
		i += len(s.text)
		if s.member == len(t.members) {
			break
		}
		if i = p.value(b, skipSpace(b, i), t.members[s.member].field, depth); i < 0 {
			return -1, false
		}
	}
	return i, !t.whole
}
