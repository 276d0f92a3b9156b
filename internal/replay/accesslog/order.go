package accesslog

import (
	"math"
	"slices"
)

const (
	bucketBits = 30 // a bucket has the records of 2^30 ns, about a second
	indexBits  = 64 - bucketBits

	bucketCost = 256 // beside its records, in bytes
	entryCost  = 24  // of a record beside its bytes
	lateCost   = 64
	spareMost  = 64
)

// An order holds records until all that started before them have come, and gives them back by the
// time of their start. What it holds is counted in bytes.
type order struct {
	buckets map[int64]*bucket
	keys    []int64 // of the buckets, as a heap
	last    *bucket // which the last record went into
	spare   []*bucket

	// current is the bucket whose records are given back now, sorted; nil: none. Records that belong
	// before the end of the last such bucket and come now are in extra, a heap.
	current *bucket
	begun   int64 // the key of the last such bucket
	next    int
	extra   []late

	held   int64 // bytes of the buckets and of extra
	spares int64 // bytes of spare
	seq    uint64
}

// A bucket has the records of a piece of the time, in the order in which they came.
type bucket struct {
	key     int64
	data    []byte // of all records
	entries []entry
	sorted  []uint64 // time within the bucket and index
}

// An entry is a record in a bucket. It begins where the one before it ends.
type entry struct {
	at  int64
	end int
}

// A late record came when its bucket had begun to be given back.
type late struct {
	at  int64
	seq uint64 // in which order they came
	buf []byte
}

func (a late) before(b late) bool { return a.at < b.at || (a.at == b.at && a.seq < b.seq) }

func newOrder() *order { return &order{buckets: make(map[int64]*bucket), begun: math.MinInt64} }

// add copies a record into the order. at is in nanoseconds since 1970.
func (o *order) add(at int64, record []byte) {
	key := at >> bucketBits
	if key <= o.begun {
		o.seq++
		o.held += lateCost + int64(len(record))
		push(&o.extra, late{at, o.seq, slices.Clone(record)}, late.before)
		return
	}
	b := o.last
	if b == nil || b.key != key {
		if b = o.buckets[key]; b == nil {
			b = o.newBucket(key)
		}
		o.last = b
	}
	bytes, entries := cap(b.data), cap(b.entries)
	b.data = append(b.data, record...)
	b.entries = append(b.entries, entry{at, len(b.data)})
	o.held += int64(cap(b.data)-bytes) + entryCost*int64(cap(b.entries)-entries)
}

func (o *order) newBucket(key int64) *bucket {
	b := new(bucket)
	if n := len(o.spare); n > 0 {
		b, o.spare = o.spare[n-1], o.spare[:n-1]
		o.spares -= b.size()
	}
	b.key = key
	o.buckets[key] = b
	o.held += b.size()
	push(&o.keys, key, func(a, b int64) bool { return a < b })
	return b
}

// size returns the memory of the bucket, in bytes.
func (b *bucket) size() int64 {
	return bucketCost + int64(cap(b.data)) + entryCost*int64(cap(b.entries))
}

// take returns the record that started first, of the current bucket and of those that came late. It
// is valid until the next call of advance.
func (o *order) take() (at int64, record []byte, ok bool) {
	if b := o.current; b != nil && o.next < len(b.sorted) {
		i := b.sorted[o.next] & (1<<indexBits - 1)
		e := &b.entries[i]
		if len(o.extra) == 0 || e.at <= o.extra[0].at {
			o.next++
			begin := 0
			if i > 0 {
				begin = b.entries[i-1].end
			}
			return e.at, b.data[begin:e.end], true
		}
	}
	if len(o.extra) == 0 {
		return 0, nil, false
	}
	l := pop(&o.extra, late.before)
	o.held -= lateCost + int64(len(l.buf))
	return l.at, l.buf, true
}

// advance makes the first bucket the current one, if it ends before until. All of the one before
// must be taken. most bounds what is held and what is spare, in bytes.
func (o *order) advance(until, most int64) bool {
	if b := o.current; b != nil {
		o.current = nil
		o.held -= b.size()
		if size := b.size(); len(o.spare) < spareMost && o.held+o.spares+size <= most && len(b.data) >= cap(b.data)/4 {
			b.data, b.entries = b.data[:0], b.entries[:0]
			o.spare, o.spares = append(o.spare, b), o.spares+size
		}
	}
	if len(o.keys) == 0 || (o.keys[0]+1)<<bucketBits > until {
		return false
	}
	key := pop(&o.keys, func(a, b int64) bool { return a < b })
	b := o.buckets[key]
	delete(o.buckets, key)
	o.last = nil
	b.sorted = b.sorted[:0]
	for i := range b.entries {
		b.sorted = append(b.sorted, b.place(i))
	}
	slices.Sort(b.sorted)
	o.current, o.begun, o.next = b, key, 0
	return true
}

// place returns the time of a record within the bucket, and its index.
func (b *bucket) place(i int) uint64 { return uint64(b.entries[i].at)<<indexBits | uint64(i) }

// push and pop keep a heap.
func push[T any](heap *[]T, v T, before func(a, b T) bool) {
	h := append(*heap, v)
	*heap = h
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !before(h[i], h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func pop[T any](heap *[]T, before func(a, b T) bool) T {
	h := *heap
	top, n := h[0], len(h)-1
	h[0] = h[n]
	var none T
	h[n] = none
	h = h[:n]
	*heap = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			return top
		}
		if child+1 < n && before(h[child+1], h[child]) {
			child++
		}
		if !before(h[child], h[i]) {
			return top
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
