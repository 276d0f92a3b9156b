package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// maxTops bounds the logs of which a list knows how often they were denied.
	maxTops = 8 << 10
	// topRows is the length of a list in a report.
	topRows = 20
)

// tops counts the logs that are denied most often, in bounded memory.
type tops struct {
	logs    map[uint64]*topLog
	dropped uint64 // how often a log was denied at most that is not known any more
}

// A topLog is a log that was denied.
type topLog struct {
	DeniedSubject               // without its times
	first, last   time.Duration // since 1970
	second        time.Duration // the last one that was counted, since 1970
}

func newTops() *tops { return &tops{logs: make(map[uint64]*topLog)} }

// add counts a log at a time. name returns whose log it is; it is called for a log that is new.
func (t *tops) add(hash uint64, at time.Duration, name func() DeniedSubject) {
	l := t.logs[hash]
	if l == nil {
		t.forget()
		l = &topLog{DeniedSubject: name(), first: at, second: -1}
		l.Denied, l.Error = t.dropped, t.dropped
		t.logs[hash] = l
	}
	l.Denied++
	l.last = at
	if at-l.second >= time.Second || l.second < 0 {
		l.second = at.Truncate(time.Second)
		l.Seconds++
	}
}

// forget drops the half of the logs that was denied least, when there are too many.
func (t *tops) forget() {
	if len(t.logs) < maxTops {
		return
	}
	var counts []uint64
	for _, l := range t.logs {
		counts = append(counts, l.Denied)
	}
	slices.Sort(counts)
	t.dropped = counts[len(counts)/2]
	maps.DeleteFunc(t.logs, func(_ uint64, l *topLog) bool { return l.Denied <= t.dropped })
}

// rows returns the logs that were denied most often.
func (t *tops) rows() []DeniedSubject {
	named := make(map[DeniedSubject]*DeniedSubject) // by their names; addresses of a network share one
	for _, l := range t.logs {
		name := DeniedSubject{Subject: l.Subject, Rule: l.Rule, Tier: l.Tier}
		row, first, last := named[name], at(l.first), at(l.last)
		if row == nil {
			row = &DeniedSubject{Subject: l.Subject, Rule: l.Rule, Tier: l.Tier, First: first, Last: last}
			named[name] = row
		}
		row.Denied, row.Error, row.Seconds = row.Denied+l.Denied, row.Error+l.Error, max(row.Seconds, l.Seconds)
		if first.Before(row.First) {
			row.First = first
		}
		if last.After(row.Last) {
			row.Last = last
		}
	}
	rows := make([]DeniedSubject, 0, len(named))
	for _, row := range named {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b DeniedSubject) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Tier, b.Tier))
	})
	return rows[:min(len(rows), topRows)]
}
