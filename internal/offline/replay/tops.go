package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/apache/datasketches-go/frequencies"
)

const (
	// topBits is the binary logarithm of the entries of a sketch, of which it uses three quarters.
	topBits    = 12
	minTopBits = 3
	// topRows is the length of a list in a report.
	topRows = 20
)

// tops counts the logs that are denied most often, in bounded memory.
type tops struct {
	sketch *frequencies.LongsSketch
	logs   map[int64]*topLog
}

// A topLog is a log that was denied lately, or that the sketch has.
type topLog struct {
	DeniedSubject               // without its times
	fresh         int64         // how often it was denied since the last flush
	first, last   time.Duration // since 1970
	second        time.Duration // the last one that was counted, since 1970
}

func newTops() *tops {
	sketch, _ := frequencies.NewLongsSketch(topBits, minTopBits) // the sizes are constants
	return &tops{sketch: sketch, logs: make(map[int64]*topLog)}
}

// add counts a log at a time. name returns whose log it is; it is called for a log that is new.
func (t *tops) add(hash uint64, at time.Duration, name func() DeniedSubject) {
	id := int64(hash >> 1) // the sketch sees numbers from zero
	l := t.logs[id]
	if l == nil {
		t.forget()
		l = &topLog{DeniedSubject: name(), first: at, second: -1}
		t.logs[id] = l
	}
	l.fresh++
	l.last = at
	if at-l.second >= time.Second || l.second < 0 {
		l.second = floor(at, time.Second)
		l.Seconds++
	}
}

// flush adds to the sketch how often each log was denied, in an order that is the same each time.
func (t *tops) flush() {
	for _, id := range slices.Sorted(maps.Keys(t.logs)) {
		l := t.logs[id]
		_ = t.sketch.UpdateMany(id, l.fresh) // counts are never below zero
		l.fresh = 0
	}
}

// forget drops logs that the sketch does not have any more, when there are too many.
func (t *tops) forget() {
	if len(t.logs) < 2<<topBits {
		return
	}
	t.flush()
	for id := range t.logs {
		if known, _ := t.sketch.GetLowerBound(id); known == 0 {
			delete(t.logs, id)
		}
	}
}

// rows returns the logs that were denied most often.
func (t *tops) rows() []DeniedSubject {
	t.flush()
	found, _ := t.sketch.GetFrequentItems(frequencies.ErrorTypeEnum.NoFalseNegatives) // fails for no other type
	rows := make([]DeniedSubject, 0, len(found))
	named := make(map[DeniedSubject]int) // index of a row by its names; addresses of a network share one
	for _, r := range found {
		l := t.logs[r.GetItem()]
		if l == nil {
			continue
		}
		denied, too := uint64(r.GetUpperBound()), uint64(r.GetUpperBound()-r.GetLowerBound())
		name := DeniedSubject{Subject: l.Subject, Rule: l.Rule, Tier: l.Tier}
		i, known := named[name]
		if !known {
			named[name] = len(rows)
			row := l.DeniedSubject
			row.Denied, row.Error, row.First, row.Last = denied, too, at(l.first), at(l.last)
			rows = append(rows, row)
			continue
		}
		row := &rows[i]
		row.Denied, row.Error, row.Seconds = row.Denied+denied, row.Error+too, max(row.Seconds, l.Seconds)
		if first := at(l.first); first.Before(row.First) {
			row.First = first
		}
		if last := at(l.last); last.After(row.Last) {
			row.Last = last
		}
	}
	slices.SortFunc(rows, func(a, b DeniedSubject) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject), a.First.Compare(b.First))
	})
	return rows[:min(len(rows), topRows)]
}
