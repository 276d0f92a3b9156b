package memstore

import (
	"errors"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// DefaultSweepInterval is the time that sweeping every shard once takes.
	DefaultSweepInterval = 10 * time.Second

	// A set of shards is a bit mask of 64 bits, so there are at most 64 shards.
	maxShardBits = 6

	// There are fewer shards if a part of the bound would be smaller than this. Keys do
	// not spread evenly over shards, and a log must fit into one shard.
	minShardBytes = 1 << 20
)

// ErrFull is wrapped by the error of a [Store.Take] that needs more memory than
// [Options.MaxBytes] allows. Either no log can be dropped, because all
// are limiting now, or the logs of the call alone exceed the bound of their shard. The text
// says which. Nothing was charged. Calls that need no more memory are decided as usual.
var ErrFull = errors.New("memstore: full, and all logs are limiting now: raise max_bytes")

// Options change what a store does. The zero value is usable.
type Options struct {
	// Clock returns the time since 1970-01-01 UTC, which the windows of [window.Fixed] and the
	// periods of [window.Calendar] follow. The store cuts off fractions of a microsecond, and
	// takes a negative time for zero. It calls Clock under locks, so Clock must not call the
	// store. Nil means the time of day when the store was made, plus the monotonic time
	// since. So setting the system's clock has no effect on a running store.
	Clock func() time.Duration
	// SweepInterval is the time in which every shard is swept once. Zero means
	// DefaultSweepInterval. If it is negative, there is no sweeper, and expired logs stay
	// until MaxBytes makes the store drop them.
	SweepInterval time.Duration
	// MaxBytes is the most memory that the logs take, in bytes: keys, histories and the
	// structures around them, as the store counts them. Zero or less: no bound. The package
	// comment says how it is divided, and what happens at the bound.
	MaxBytes int64
	// Owner returns what the logs of a key belong to: a part of the key, such as the rule in
	// it. The logs of one owner take at most seven times as much memory as is free, so that
	// its flood leaves room to others. Nil: there is no such bound.
	Owner func(key string) string
}

// Store keeps logs in memory. Create it with New or Load; its methods are safe
// for concurrent use.
type Store struct {
	clock  func() time.Duration
	seed   maphash.Seed
	key    uint64 // of the hashes of streams
	bits   int    // there are 2^bits shards
	shards []shard

	closing sync.Once
	done    chan struct{} // closed by Close
	sweeper sync.WaitGroup
}

var _ window.Store = (*Store)(nil)

// New returns an empty store and starts its sweeper, which runs until Close.
func New(o Options) *Store {
	s := newStore(o)
	s.start(o)
	return s
}

// newStore returns an empty store without a sweeper.
func newStore(o Options) *Store {
	s := &Store{
		clock: o.Clock,
		seed:  maphash.MakeSeed(),
		bits:  maxShardBits,
		done:  make(chan struct{}),
	}
	s.key = maphash.String(s.seed, "streams")
	if s.clock == nil {
		start := time.Now()
		since1970 := time.Duration(start.UnixNano())
		s.clock = func() time.Duration { return since1970 + time.Since(start) }
	}
	for s.bits > 0 && o.MaxBytes > 0 && o.MaxBytes>>s.bits < minShardBytes {
		s.bits--
	}
	s.shards = make([]shard, 1<<s.bits)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.table = newTable()
		sh.limit = partOf(o.MaxBytes, i, len(s.shards))
		sh.usual = usual(sh.limit)
		sh.easy = sh.usual
		if o.Owner != nil {
			sh.easy = sh.limit / (freePart + 1) * freePart
			sh.owned = &owned{of: o.Owner, seed: s.seed}
		}
	}
	return s
}

// partOf returns the i-th of n equal parts of a bound. If n does not divide the bound, the
// first parts are larger by one.
func partOf(bound int64, i, n int) int64 {
	if bound <= 0 {
		return math.MaxInt64
	}
	part := bound / int64(n)
	if int64(i) < bound%int64(n) {
		part++
	}
	return part
}

// start starts the sweeper.
func (s *Store) start(o Options) {
	interval := o.SweepInterval
	if interval == 0 {
		interval = DefaultSweepInterval
	}
	if interval > 0 {
		every := max(interval/time.Duration(len(s.shards)), 1)
		s.sweeper.Go(func() { s.sweep(every) })
	}
}

// Close ends the sweeper and waits for it. Closing twice is harmless. It never
// returns an error.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.done) })
	s.sweeper.Wait()
	return nil
}

// Stats describe how full a store is.
type Stats struct {
	// Logs is the number of logs, including expired ones that were not swept yet.
	Logs int
	// Bytes is the memory that they take, as [Options.MaxBytes] counts it.
	Bytes int64
	// Evicted is the number of logs that were dropped to make room although hits in them
	// still counted.
	Evicted uint64
	// Refused is the number of calls of Take that returned [ErrFull].
	Refused uint64
}

// Stats returns how full the store is. It locks one shard after the other.
func (s *Store) Stats() Stats {
	var sum Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sum.Logs += sh.logs
		sum.Bytes += sh.bytes
		sum.Evicted += sh.evicted
		sum.Refused += sh.refused
		sh.mu.Unlock()
	}
	return sum
}

// Len returns the number of logs, as Stats.Logs counts it.
func (s *Store) Len() int { return s.Stats().Logs }

// shardOf returns the index of the shard that holds a log, and the log's hash
// within it.
func (s *Store) shardOf(id window.LogID) (uint, uint32) {
	if id.Policy == streams {
		return s.shardOfStream(streamOf(id))
	}
	if id.Policy >= holdsOf {
		id.Policy -= holdsOf
	}
	return s.spread(maphash.String(s.seed, id.Key) + uint64(nameOf(id))*golden)
}

// golden is 2^64 divided by the golden ratio. Times a log's name, it moves any difference into
// the high bits that spread uses. So windows and policies of one key are spread too.
const golden = 0x9e3779b97f4a7c15

// spread returns the index of a shard for a hash, and the hash within the shard.
func (s *Store) spread(h uint64) (uint, uint32) {
	return uint(h >> (64 - s.bits)), uint32(h >> (32 - maxShardBits))
}

// lock locks a set of shards in the order of their index, so two groups cannot deadlock.
func (s *Store) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (s *Store) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}
