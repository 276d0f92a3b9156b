package memstore

import (
	"sync"

	"github.com/slidegate/slidegate/pkg/window"
)

// logBytes is what a log takes besides its key and its packed bytes. It has the struct,
// its part of the buckets, and what the allocator rounds up. TestMemory compares it with
// the heap.
const logBytes = 80

// The effort of moving the hand over a bucket, and over a log in it.
const (
	bucketEffort = 1
	logEffort    = 8
)

// A shard is a part of the logs behind one mutex.
type shard struct {
	mu sync.Mutex
	table
	limit int64 // its part of the bound, in bytes; math.MaxInt64: no bound
	usual int64 // how far it is filled while there are logs that may go
	bytes int64 // memory of the logs

	// The hand goes round over the buckets. It drops expired logs and, when room is
	// scarce, collects candidates. See evict.go.
	hand       int
	seen       int  // buckets just behind the hand with no log that may go, except candidates
	skipped    bool // the hand has passed logs of the group that is being decided
	candidates candidates

	evicted, refused uint64

	owned *owned // nil: the logs have no owners
	easy  int64  // within it no call has to make room

	spare spareLogs

	_ [56]byte // keeps two shards off one cache line
}

// spareLogs are logs of streams that have ended, for the next streams. They are linked by next.
type spareLogs struct {
	first *log
	count int
}

// add makes a new log.
func (sh *shard) add(id window.LogID, hash uint32) *log {
	l := sh.insert(id, hash)
	sh.added(l)
	return l
}

// added counts a log that has come into the table, and makes the table larger if it is dense.
func (sh *shard) added(l *log) {
	sh.bytes += l.size()
	sh.count(l, l.size())
	if sh.dense() {
		// Logs that move to the last bucket must not count as seen if they were not. If
		// the seen buckets reach back past bucket 0, the last bucket is one of them.
		from := sh.split()
		if seenAtEnd := sh.seen - sh.hand; seenAtEnd > 0 && from >= sh.hand && from < sh.buckets-1-seenAtEnd {
			sh.seen = sh.hand
		}
	}
}

// keep sets the bytes of a log.
func (sh *shard) keep(l *log, packed []byte) {
	if grown := int64(cap(packed) - cap(l.packed)); grown != 0 {
		sh.bytes += grown
		sh.count(l, grown)
	}
	l.packed = packed
}

// drop deletes the log at link. The table keeps its size until the sweeper shrinks it.
func (sh *shard) drop(link **log) {
	l := *link
	sh.bytes -= l.size()
	sh.count(l, -l.size())
	if sh.owned != nil && sh.owned.newest == l {
		sh.owned.newest = nil
	}
	sh.candidates.forget(l)
	sh.unlink(link)
	if l.ofStream() {
		sh.reuse(l)
	}
}

// shrink removes up to most unneeded buckets, and reports whether none is left.
func (sh *shard) shrink(most int) bool {
	for ; sh.sparse(); most-- {
		if most == 0 {
			return false
		}
		sh.merge()
		sh.seen = 0 // the logs that moved may not have been seen
		if sh.hand >= sh.buckets {
			sh.hand = 0
		}
	}
	return true
}

// visit moves the hand over buckets until the effort is spent: over one bucket at least,
// and one round at most. It drops logs in which nothing counts at the time now, in
// microseconds. With collect, it also offers free logs as candidates. It does not change
// the logs of the group. It returns the number of buckets.
func (sh *shard) visit(effort int, now int64, group []checkState, collect bool) int {
	visited, all := 0, sh.buckets
	for ; visited < all && effort > 0; visited++ {
		complete := true
		link := sh.bucket(sh.hand)
		effort -= bucketEffort
		for *link != nil {
			l := *link
			effort -= logEffort
			var c candidate
			state := c.judge(l, now)
			switch {
			case state == limiting:
			case pinned(group, l):
				sh.skipped = true
			case state == expired:
				sh.drop(link)
				continue
			case collect:
				complete = sh.candidates.offer(c) && complete
			}
			link = &l.next
		}
		if sh.hand++; sh.hand == sh.buckets {
			sh.hand = 0
		}
		if complete {
			sh.seen = min(sh.seen+1, sh.buckets)
		} else {
			sh.seen = 0
		}
	}
	if !collect {
		sh.seen = 0
	}
	return visited
}
