package replay

import (
	"cmp"
	"maps"
	"slices"
)

// maxVariedBytes bounds the logs of all limits that a what-if varies, and the callers that these have
// denied.
const maxVariedBytes = 256 << 20

// A memory bounds what the variants of one what-if hold: logs, and denied callers. Above its bound,
// the variants with the most bytes keep only the logs whose hashes end with one more zero. What the
// kept logs count then stands for the others too.
type memory struct {
	held, most int // bytes
	all        []*variants
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
	n := deniedBytes * len(v.deniedLogs)
	for i := range v.groups {
		n += v.groups[i].bytes
	}
	return n
}

// halve keeps one of two logs.
func (v *variants) halve() {
	v.level++
	before := len(v.deniedLogs)
	maps.DeleteFunc(v.deniedLogs, func(hash, _ uint64) bool { return hash&(v.weight()-1) != 0 })
	v.memory.held -= deniedBytes * (before - len(v.deniedLogs))
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
	deniedBytes = 32 // of a log that was denied
)

func (l *variedLog) bytes() int {
	n := variedBytes + cap(l.log)
	for i := range l.apart {
		n += l.apart[i].bytes()
	}
	return n
}

func (a *apart) bytes() int { return apartBytes + cap(a.log) }
