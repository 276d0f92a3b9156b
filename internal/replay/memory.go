package replay

import (
	"cmp"
	"slices"
)

// maxVariedBytes bounds the logs of all limits that a what-if varies, and the callers that these have
// denied.
const maxVariedBytes = 256 << 20

// A memory bounds what the variants of one what-if hold: logs, and denied callers. Above its bound,
// the variants with the most bytes keep only the logs whose hashes end with one more zero, as a
// [logTable] does. What the kept logs count then stands for the others too.
type memory struct {
	held, most int // bytes
	all        []*variants
}

// hold counts the logs of variants from now on.
func (m *memory) hold(v *variants) {
	v.memory = m
	for i := range v.groups {
		v.groups[i].memory = m
	}
	m.all = append(m.all, v)
}

// free drops what variants hold that decide nothing more. What they have counted stays.
func (m *memory) free(v *variants) {
	if v.deniedLogs == nil {
		return
	}
	v.deniedBy = make([]uint64, len(v.limits))
	for i := range v.deniedBy {
		v.deniedBy[i] = v.logsDenied(i)
	}
	m.held -= v.deniedLogs.bytes()
	v.deniedLogs = nil
	for i := range v.groups {
		g := &v.groups[i]
		g.hold(-g.bytes)
		g.logs = nil
	}
	m.all = slices.DeleteFunc(m.all, func(o *variants) bool { return o == v })
}

// shrink drops logs until a quarter of the memory is free. now is in microseconds.
func (m *memory) shrink(now int64) {
	for _, v := range m.all {
		for i := range v.groups {
			v.groups[i].sweep(now)
		}
	}
	for m.held > m.most/4*3 {
		slices.MaxFunc(m.all, func(a, b *variants) int { return cmp.Compare(a.bytes(), b.bytes()) }).halve()
	}
}

// bytes returns how many bytes variants hold.
func (v *variants) bytes() int {
	n := v.deniedLogs.bytes()
	for i := range v.groups {
		n += v.groups[i].bytes
	}
	return n
}

// halve keeps one of two logs.
func (v *variants) halve() {
	v.level++
	before := v.deniedLogs.bytes()
	v.deniedLogs.sample(v.level)
	v.deniedLogs.fit()
	v.memory.held += v.deniedLogs.bytes() - before
	for i := range v.groups {
		g := &v.groups[i]
		for hash, l := range g.logs {
			if hash&(v.weight()-1) != 0 {
				g.drop(hash, l)
			}
		}
	}
}

// hold counts bytes that a group has more than before.
func (g *group) hold(bytes int) {
	g.bytes += bytes
	g.memory.held += bytes
}

// drop removes a log.
func (g *group) drop(hash uint64, l *variedLog) {
	delete(g.logs, hash)
	g.hold(-l.bytes())
}

// About the bytes of a log beside what it holds: its place in the map, and its headers.
const (
	variedBytes = 128
	apartBytes  = 48
)

func (l *variedLog) bytes() int {
	n := variedBytes + cap(l.log)
	for i := range l.apart {
		n += l.apart[i].bytes()
	}
	return n
}

func (a *apart) bytes() int { return apartBytes + cap(a.log) }
