package accesslog

import (
	"math"
	"slices"
)

// An entry is a record that waits for its turn.
type entry struct {
	at  int64
	seq uint64 // in which order the lines came
	buf []byte
}

func (e entry) before(f entry) bool { return e.at < f.at || (e.at == f.at && e.seq < f.seq) }

const (
	bucketBits  = 30 // a bucket has the records of 2^30 ns, about a second
	sizeStep    = 32
	sizeClasses = 64
	entryCost   = 64 // of an entry beside its bytes
	bucketCost  = 256
	spareMost   = 64
)

// An order holds records until all that started before them have come, and gives them back by the
// time of their start. What it holds is counted in bytes.
type order struct {
	buckets map[int64]*bucket
	keys    []int64 // of the buckets, as a heap
	last    *bucket // which the last entry went into
	spare   []*bucket

	// current is the bucket whose entries are given back now, sorted. Entries that belong before its
	// end and come now are in extra, a heap.
	current *bucket
	next    int
	extra   []entry

	free      [sizeClasses][][]byte
	freeBytes int64
	held      int64
	seq       uint64
}

type bucket struct {
	key     int64
	entries []entry
	sorted  []uint64 // time within the bucket and index
}

func newOrder() *order {
	return &order{buckets: make(map[int64]*bucket), current: &bucket{key: math.MinInt64}}
}

// add copies a record into the order. at is in nanoseconds since 1970.
func (o *order) add(at int64, record []byte) {
	o.seq++
	e := entry{at: at, seq: o.seq, buf: append(o.buffer(len(record)), record...)}
	o.held += entryCost + int64(cap(e.buf))
	key := at >> bucketBits
	if key <= o.current.key {
		push(&o.extra, e, entry.before)
		return
	}
	b := o.last
	if b == nil || b.key != key {
		if b = o.buckets[key]; b == nil {
			b = o.newBucket(key)
		}
		o.last = b
	}
	b.entries = append(b.entries, e)
}

func (o *order) newBucket(key int64) *bucket {
	b := new(bucket)
	if n := len(o.spare); n > 0 {
		b, o.spare = o.spare[n-1], o.spare[:n-1]
	}
	b.key = key
	o.buckets[key] = b
	o.held += bucketCost
	push(&o.keys, key, func(a, b int64) bool { return a < b })
	return b
}

// take returns the entry that started first, if no entry that is still to come starts before the
// time until. Release its bytes after use.
func (o *order) take(until int64) (entry, bool) {
	if o.next == len(o.current.entries) && len(o.extra) == 0 && !o.nextBucket(until) {
		return entry{}, false
	}
	if o.next < len(o.current.entries) {
		e := o.current.entries[o.current.sorted[o.next]&(1<<(64-bucketBits)-1)]
		if len(o.extra) == 0 || e.before(o.extra[0]) {
			o.next++
			return e, true
		}
	}
	return pop(&o.extra, entry.before), true
}

// nextBucket makes the first bucket the current one, if it ends before until.
func (o *order) nextBucket(until int64) bool {
	if len(o.keys) == 0 || (o.keys[0]+1)<<bucketBits > until {
		return false
	}
	if cap(o.current.entries) > 0 && len(o.spare) < spareMost {
		clear(o.current.entries)
		o.current.entries, o.current.sorted = o.current.entries[:0], o.current.sorted[:0]
		o.spare = append(o.spare, o.current)
	}
	key := pop(&o.keys, func(a, b int64) bool { return a < b })
	b := o.buckets[key]
	delete(o.buckets, key)
	o.held -= bucketCost
	o.last = nil
	for i, e := range b.entries {
		b.sorted = append(b.sorted, uint64(e.at)<<(64-bucketBits)|uint64(i))
	}
	slices.Sort(b.sorted)
	o.current, o.next = b, 0
	return true
}

// buffer returns an empty slice with room for n bytes.
func (o *order) buffer(n int) []byte {
	class := (n + sizeStep - 1) / sizeStep
	if class >= sizeClasses {
		return make([]byte, 0, n)
	}
	if list := o.free[class]; len(list) > 0 {
		b := list[len(list)-1]
		o.free[class] = list[:len(list)-1]
		o.freeBytes -= int64(cap(b))
		return b
	}
	return make([]byte, 0, class*sizeStep)
}

// release takes the bytes of an entry back. most bounds what is held and what is free, in bytes.
func (o *order) release(e entry, most int64) {
	o.held -= entryCost + int64(cap(e.buf))
	if class := cap(e.buf) / sizeStep; class < sizeClasses && o.held+o.freeBytes < most {
		o.free[class] = append(o.free[class], e.buf[:0])
		o.freeBytes += int64(cap(e.buf))
	}
}

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
