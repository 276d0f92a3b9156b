package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

var _ inspect.Inspector = (*Store)(nil)

const (
	// listChunk is the effort of a list under one lock: about 256 logs.
	listChunk = 256 * (logEffort + bucketEffort)
	// listChunks is the most chunks of one call of List.
	listChunks = 128
	// listIDs is how many ids end a call of List.
	listIDs = 1000
)

// Read implements [inspect.Inspector]. It locks one shard at a time, while it copies the bytes of
// one log. The only error is that of ctx.
func (s *Store) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	readings := make([]inspect.Reading, 0, len(ids))
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return readings, fmt.Errorf("memstore: %w", err)
		}
		i, hash := s.shardOf(id)
		sh := &s.shards[i]
		var packed []byte
		sh.mu.Lock()
		if l := sh.find(id, hash); l != nil {
			packed = append(packed, l.packed...)
		}
		now := s.Now()
		sh.mu.Unlock()
		readings = append(readings, inspect.NewReading(id, now, packed))
	}
	return readings, nil
}

// Now returns the store's clock, as logs have it: the time since 1970-01-01 UTC. It is safe for
// concurrent use.
func (s *Store) Now() time.Duration { return time.Duration(s.clockMicros()) * time.Microsecond }

// Copy returns a store with the logs of readings. Without readings its clock is that of [New];
// otherwise it stands at the latest of them. The store has no sweeper.
func Copy(readings []inspect.Reading) *Store {
	o := Options{SweepInterval: -1}
	if len(readings) > 0 {
		now := slices.MaxFunc(readings, func(a, b inspect.Reading) int { return cmp.Compare(a.Now, b.Now) }).Now
		o.Clock = func() time.Duration { return now }
	}
	s := New(o)
	for i := range readings {
		r := &readings[i]
		at, hash := s.shardOf(r.ID)
		if sh := &s.shards[at]; len(r.Packed()) > 0 && sh.find(r.ID, hash) == nil {
			sh.keep(sh.add(r.ID, hash), bytes.Clone(r.Packed()))
		}
	}
	return s
}

// Remove implements [inspect.Inspector]. It holds the locks of the shards of all logs, in the order of
// their index, while it removes them. The only error is that of ctx: then it removes nothing.
func (s *Store) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	var touched uint64
	for _, id := range ids {
		shard, _ := s.shardOf(id)
		touched |= 1 << shard
	}
	packed := make([][]byte, len(ids))
	s.lock(touched)
	now := s.Now()
	for i, id := range ids {
		shard, hash := s.shardOf(id)
		sh := &s.shards[shard]
		if l := sh.find(id, hash); l != nil {
			packed[i] = l.packed
			sh.remove(l)
		}
		if l := sh.find(holdsID(id), hash); l != nil {
			sh.remove(l)
		}
	}
	s.unlock(touched)
	readings := make([]inspect.Reading, len(ids))
	for i, id := range ids {
		readings[i] = inspect.NewReading(id, now, packed[i])
	}
	return readings, nil
}

// List implements [inspect.Inspector]. It holds the lock of a shard for about 256 logs at a time.
// One call looks at up to 32,768 logs.
func (s *Store) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
	at, err := s.parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	for range listChunks {
		if err := ctx.Err(); err != nil {
			return nil, "", fmt.Errorf("memstore: %w", err)
		}
		sh := &s.shards[at.shard]
		sh.mu.Lock()
		var done bool
		ids, at.position, done = sh.list(ids, m, at.position, listChunk)
		sh.mu.Unlock()
		if done {
			if at.shard, at.position = at.shard+1, 0; at.shard == len(s.shards) {
				return ids, "", nil
			}
		}
		if len(ids) >= listIDs {
			break
		}
		runtime.Gosched() // lets a goroutine that waits for the lock have it
	}
	return ids, at.String(), nil
}

// A position is where a list has come to: a shard, and the position in it.
type position struct {
	shard    int
	position uint32 // reversed hash of the next log
}

func (p position) String() string {
	return strconv.FormatUint(uint64(p.shard)<<32|uint64(p.position), 16)
}

func (s *Store) parseCursor(cursor string) (position, error) {
	if cursor == "" {
		return position{}, nil
	}
	n, err := strconv.ParseUint(cursor, 16, 64)
	p := position{shard: int(n >> 32), position: uint32(n)}
	if err != nil || p.shard >= len(s.shards) {
		return position{}, fmt.Errorf("memstore: %w", inspect.ErrCursor)
	}
	return p, nil
}

// list appends the ids of matching logs from a position on, until the effort is spent. It
// returns the next position, or done after the last log.
//
// The order is that of the reversed hashes. A bucket holds all logs whose hashes end in the
// same bits, so reversed they are neighbours. When buckets split or merge, the order stays.
// So a log is listed once, however the table changes between two calls.
func (t *table) list(ids []window.LogID, m inspect.Match, from uint32, effort int) (_ []window.LogID, next uint32, done bool) {
	for effort > 0 {
		hash := bits.Reverse32(from)
		effort -= bucketEffort
		for l := *t.at(hash); l != nil; l = l.next {
			effort -= logEffort
			if bits.Reverse32(l.hash) >= from && !l.ofStream() && !l.ofOnceRecord() && !l.ofHolds() && m.Matches(l.key) {
				ids = append(ids, l.id())
			}
		}
		// The bucket ends where another one of its width begins.
		width := 32 - t.bitsOf(hash)
		if from = (from>>width + 1) << width; from == 0 {
			return ids, 0, true
		}
	}
	return ids, from, false
}

// bitsOf returns how many of its last bits a hash has in common with all hashes of its
// bucket.
func (t *table) bitsOf(hash uint32) int {
	width := bits.Len32(t.mask)
	// A bucket that has not been split yet has one bit less.
	if half := t.mask>>1 + 1; int(hash&t.mask|half) >= t.buckets {
		width--
	}
	return width
}
