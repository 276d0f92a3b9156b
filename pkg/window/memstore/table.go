package memstore

import (
	"math"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// A log holds the packed bytes of one window.LogID, with at least one slot. The struct has
// 64 bytes, which is a size class of the allocator.
type log struct {
	next   *log   // in its bucket
	key    string // empty: what is known of a stream
	name   name   // or the stream's id
	packed []byte
	limit  packed.Level // of the last check that could deny, or noLimit
	hash   uint32
}

// A name distinguishes logs with one key: the scope and the policy in the first byte, and the
// window in nanoseconds, which needs seven bytes at most.
type name uint64

const (
	scopeBits  = 60 // where a name has the scope
	policyBits = 56 // where it has the policy
)

func nameOf(id window.LogID) name { return kind(id.Scope, id.Policy) | name(id.Window) }

// kind returns the first byte of a name.
func kind(scope window.Scope, policy window.Policy) name {
	return name(scope)<<scopeBits | name(policy)<<policyBits
}

// scope and policy return what kind has put into a name.
func (n name) scope() window.Scope   { return window.Scope(n >> scopeBits) }
func (n name) policy() window.Policy { return window.Policy(n >> policyBits & 0xf) }

// id returns the id of a log.
func (l *log) id() window.LogID {
	if l.ofStream() {
		return streamLog(window.StreamID(l.name))
	}
	return window.LogID{Key: l.key, Window: l.name.window(), Policy: l.name.policy(), Scope: l.name.scope()}
}

// noLimit is the limit of a log that only checks which never deny have named.
const noLimit = packed.NoLevel

// size returns the memory that a log takes, in bytes.
func (l *log) size() int64 { return logBytes + int64(len(l.key)) + int64(cap(l.packed)) }

// segmentBuckets is how many buckets are made at once. A table has at least as many.
const segmentBuckets = 64

// A table finds logs by their id. It is a hash table that grows and shrinks by one bucket
// at a time (linear hashing), so no call waits while all logs move. The hand can walk it
// in chunks, bucket by bucket, and it frees memory. Go's map can do neither.
//
// Let 2^k be the smallest power of two that is not below the number of buckets. A log with
// hash h is in bucket h mod 2^k or, if that bucket does not exist yet, in h mod 2^(k-1).
// So a new bucket takes its logs from one other bucket, and a removed bucket gives them
// back to the same one.
type table struct {
	segments []*[segmentBuckets]*log
	buckets  int
	mask     uint32 // 2^k - 1
	logs     int
}

func newTable() table {
	return table{
		segments: []*[segmentBuckets]*log{new([segmentBuckets]*log)},
		buckets:  segmentBuckets,
		mask:     segmentBuckets - 1,
	}
}

// bucket returns a pointer to the first log of bucket i.
func (t *table) bucket(i int) **log {
	return &t.segments[i/segmentBuckets][i%segmentBuckets]
}

// at returns a pointer to the first log of the bucket of a hash.
func (t *table) at(hash uint32) **log {
	i := hash & t.mask
	if int(i) >= t.buckets {
		i &= t.mask >> 1
	}
	return t.bucket(int(i))
}

// find returns a log, or nil if there is none.
func (t *table) find(id window.LogID, hash uint32) *log {
	key, n := address(id)
	return t.lookUp(key, n, hash)
}

// window returns the length of the window, which a name has next to the policy.
func (n name) window() time.Duration { return time.Duration(n & (1<<policyBits - 1)) }

// address returns the key and the name that a log has in the table.
func address(id window.LogID) (key string, n name) {
	if id.Policy == streams {
		return "", name(streamOf(id))
	}
	return id.Key, nameOf(id)
}

// lookUp is find for a log's key and its name.
func (t *table) lookUp(key string, n name, hash uint32) *log {
	for l := *t.at(hash); l != nil; l = l.next {
		if l.hash == hash && l.name == n && l.key == key {
			return l
		}
	}
	return nil
}

// insert makes a new log without bytes.
func (t *table) insert(id window.LogID, hash uint32) *log {
	key, n := address(id)
	l := &log{
		key:  strings.Clone(key), // it may be part of a much longer message
		name: n,
		hash: hash,
	}
	t.link(l)
	return l
}

// link adds a log to the table.
func (t *table) link(l *log) {
	first := t.at(l.hash)
	l.next, *first = *first, l
	t.logs++
}

// unlink removes the log at link from the table.
func (t *table) unlink(link **log) {
	l := *link
	*link = l.next
	l.next = nil
	t.logs--
}

// dense reports whether there are more logs than buckets, so that split is due.
func (t *table) dense() bool { return t.logs > t.buckets && t.buckets < math.MaxInt32 }

// split makes one more bucket, and returns the bucket that some of its logs come from.
func (t *table) split() (from int) {
	if t.buckets%segmentBuckets == 0 {
		t.segments = append(t.segments, new([segmentBuckets]*log))
	}
	last := uint32(t.buckets)
	t.buckets++
	if last > t.mask {
		t.mask = t.mask<<1 | 1
	}
	from = int(last & (t.mask >> 1))
	into := t.bucket(int(last))
	for link := t.bucket(from); *link != nil; {
		l := *link
		if l.hash&t.mask != last {
			link = &l.next
			continue
		}
		*link = l.next
		l.next, *into = *into, l
	}
	return from
}

// sparse reports whether there are more than twice as many buckets as logs, so
// that merge is due.
func (t *table) sparse() bool { return t.buckets > segmentBuckets && t.buckets > 2*t.logs }

// merge removes the last bucket.
func (t *table) merge() {
	t.buckets--
	last := uint32(t.buckets)
	from := t.bucket(int(last))
	into := t.bucket(int(last & (t.mask >> 1)))
	for *into != nil {
		into = &(*into).next
	}
	*into, *from = *from, nil
	if last == t.mask>>1+1 {
		t.mask >>= 1
	}
	if t.buckets%segmentBuckets == 0 {
		t.segments[len(t.segments)-1] = nil
		t.segments = t.segments[:len(t.segments)-1]
	}
}
