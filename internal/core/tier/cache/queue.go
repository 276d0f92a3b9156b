package cache

// A class says why a look-up waits. The classes are in the order of their precedence.
type class uint8

const (
	ahead   class = iota // the record is still valid
	first                // no record of a subject
	again                // the same, and a second request asked for the key
	expired              // the record of a subject has expired
	begun                // the look-up no longer waits
)

// A queue has the look-ups that wait for a slot, and counts the questions under way.
// First look-ups and look-ups with an earlier answer each have a quarter of the slots for
// themselves, and take turns at the others. So neither invented keys nor expired records
// stop the other kind. Refreshes of valid records get only slots that no other look-up
// wants.
//
// If a class is full, its oldest look-up is dropped. A client that invents keys asks once
// for each. A key that is asked for again is more likely a customer's, so it is first.
type queue struct {
	slots   int
	most    [begun]int // waiting look-ups of each class
	waiting [begun][]*flight
	under   struct{ known, unknown int } // questions under way
	turn    bool                         // a question for known subjects was the last to begin
}

// push lets a flight wait in its class. It returns the flight that is dropped for it, or
// nil.
func (q *queue) push(f *flight) (dropped *flight) {
	q.waiting[f.class] = append(q.waiting[f.class], f)
	if len(q.waiting[f.class]) > q.most[f.class] {
		return q.shift(f.class)
	}
	return nil
}

// promote moves a waiting flight to a higher class, because another request wants it.
func (q *queue) promote(f *flight, want class) (dropped *flight) {
	if f.class == first && want == first {
		want = again
	}
	if want <= f.class {
		return nil
	}
	f.class = want // it stays in the old line, where shift ignores it
	return q.push(f)
}

// shift removes the first of a line, and returns it unless it was promoted.
func (q *queue) shift(c class) *flight {
	line := &q.waiting[c]
	f := (*line)[0]
	(*line)[0] = nil
	*line = (*line)[1:]
	if f.class != c {
		return nil
	}
	f.class = begun
	return f
}

// take returns the look-ups of the next question, most at the largest. It returns none if
// there are none or if there is no slot for them.
func (q *queue) take(most int) (batch []*flight, known bool) {
	if q.under.known+q.under.unknown >= q.slots {
		return nil, false
	}
	classSlots := max(1, q.slots-(q.slots+3)/4)
	for _, known := range [...]bool{!q.turn, q.turn} {
		switch {
		case known && q.under.known < classSlots:
			batch = q.shiftAll(most, expired)
		case !known && q.under.unknown < classSlots:
			batch = q.shiftAll(most, again, first)
		}
		if len(batch) > 0 {
			q.turn = known
			q.count(known, 1)
			return batch, known
		}
	}
	if q.under.known < classSlots {
		batch = q.shiftAll(most, ahead)
	}
	if len(batch) > 0 {
		q.count(true, 1)
	}
	return batch, true
}

// shiftAll removes up to most flights from the lines of these classes.
func (q *queue) shiftAll(most int, classes ...class) (batch []*flight) {
	for _, c := range classes {
		for len(q.waiting[c]) > 0 && len(batch) < most {
			if f := q.shift(c); f != nil {
				batch = append(batch, f)
			}
		}
	}
	return batch
}

// count counts questions that begin or end.
func (q *queue) count(known bool, n int) {
	if known {
		q.under.known += n
	} else {
		q.under.unknown += n
	}
}
