package memstore

import (
	"sync"

	"github.com/slidegate/slidegate/pkg/window"
)

// logBytes is what a log takes beside its name and its packed bytes: itself, its
// part of the buckets, and what the allocator rounds up. TestMemory compares it
// with the truth.
const logBytes = 80

// What it costs to move the hand over a bucket, and over a log in it.
const (
	bucketEffort = 1
	logEffort    = 8
)

// A shard is a part of the logs behind one mutex.
type shard struct {
	mu sync.Mutex
	table
	limits limits // its share
	usual  limits // what is filled of it while there are logs that may go
	bytes  int64  // that the logs take

	// The hand goes round over the buckets: it drops what has expired, and looks
	// for what may go when there is no room. See evict.go.
	hand       int
	seen       int // buckets just behind the hand in which nothing could go but the candidates
	skipped    bool
	candidates candidates

	evicted, refused uint64

	_ [48]byte // keeps two shards off one cache line
}

// add makes a log that is not there yet.
func (sh *shard) add(id window.LogID, hash uint32) *log {
	l := sh.insert(id, hash)
	sh.bytes += l.size()
	if sh.crowded() {
		// What moves to the last bucket must not pass for seen if it was not. The
		// hand has seen what is just behind it; where that goes round, the rest is in
		// the middle.
		from := sh.split()
		if seenAtEnd := sh.seen - sh.hand; seenAtEnd > 0 && from >= sh.hand && from < sh.buckets-1-seenAtEnd {
			sh.seen = sh.hand
		}
	}
	return l
}

// keep gives a log its bytes.
func (sh *shard) keep(l *log, packed []byte) {
	sh.bytes += int64(cap(packed) - cap(l.packed))
	l.packed = packed
}

// drop forgets the log at link. The table keeps its size until it is swept.
func (sh *shard) drop(link **log) {
	l := *link
	sh.bytes -= l.size()
	sh.candidates.forget(l)
	sh.unlink(link)
}

// shrink gives back some of the buckets that are not needed any more, and reports
// whether those were all.
func (sh *shard) shrink(most int) bool {
	for ; sh.sparse(); most-- {
		if most == 0 {
			return false
		}
		sh.merge()
		sh.seen = 0 // what has moved may not have been seen
		if sh.hand >= sh.buckets {
			sh.hand = 0
		}
	}
	return true
}

// visit moves the hand over some buckets, until an effort is spent: one at least, a
// round at most. It drops logs in which nothing counts any more at the time now, in
// microseconds, and with collect makes candidates of those that deny nobody; the
// logs of the group are left alone. It returns the number of buckets.
func (sh *shard) visit(effort int, now int64, group []asked, collect bool) int {
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
