package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// DefaultSweepInterval is the time that sweeping every shard once takes.
	DefaultSweepInterval = 10 * time.Second

	// A set of shards is the bits of one word, so there are 64.
	shardBits  = 6
	shardCount = 1 << shardBits

	// inlineChecks is how many checks a group may have before deciding it
	// allocates. Few requests have more.
	inlineChecks = 4

	// minShrink is the number of logs from which on a table's map is worth being
	// built anew when most of them have gone: a map never shrinks by itself.
	minShrink = 1024
)

// Options change what a store does. The zero value is usable.
type Options struct {
	// Clock tells the time since some fixed instant; parts of a microsecond are
	// cut off, and a time below zero counts as zero. It is called under locks and
	// must not call the store. Nil means the monotonic clock of the process.
	Clock func() time.Duration
	// SweepInterval is the time in which every shard is swept once. Zero means
	// DefaultSweepInterval; below zero nothing is swept, and logs stay for ever.
	SweepInterval time.Duration
}

// Store keeps logs in memory. Create it with New; its methods are safe for
// concurrent use.
type Store struct {
	clock  func() time.Duration
	seed   maphash.Seed
	shards [shardCount]shard

	closing sync.Once
	done    chan struct{} // closed by Close
	sweeper sync.WaitGroup
}

var _ window.Store = (*Store)(nil)

// A shard is a part of the logs behind one mutex.
type shard struct {
	mu     sync.Mutex
	tables map[time.Duration]*table // by window; none is empty

	_ [48]byte // keeps two shards off one cache line
}

// A table holds a shard's logs of one window, by key. There are few windows and
// many keys: a map by key alone is smaller than one by window.LogID, and faster.
type table struct {
	logs map[string]*log
	peak int // most logs at once since the map was built
}

// A log holds the packed bytes of one window.LogID, at least one slot of them.
// It is behind a pointer so that bytes which move need no write to the map.
type log struct {
	packed []byte
}

// New returns an empty store and starts its sweeper, which runs until Close.
func New(o Options) *Store {
	s := &Store{
		clock: o.Clock,
		seed:  maphash.MakeSeed(),
		done:  make(chan struct{}),
	}
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Duration { return time.Since(start) }
	}
	for i := range s.shards {
		s.shards[i].tables = make(map[time.Duration]*table)
	}

	interval := o.SweepInterval
	if interval == 0 {
		interval = DefaultSweepInterval
	}
	if interval > 0 {
		s.sweeper.Go(func() { s.sweep(max(interval/shardCount, 1)) })
	}
	return s
}

// Close ends the sweeper and waits for it. Closing twice is harmless. It never
// returns an error.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.done) })
	s.sweeper.Wait()
	return nil
}

// Len returns the number of logs, those included that have expired and were not
// swept yet. It locks one shard after the other.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, t := range sh.tables {
			n += len(t.logs)
		}
		sh.mu.Unlock()
	}
	return n
}

// Take implements [window.Store]. It waits for nothing but short locks; a ctx
// that is done already is an error, and nothing is charged.
func (s *Store) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if err := window.Validate(checks, decisions); err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	if len(checks) == 1 {
		s.takeOne(&checks[0], &decisions[0])
		return nil
	}
	folded, answer := window.Fold(checks)
	if answer == nil {
		s.takeGroup(checks, decisions)
		return nil
	}
	answers := make([]window.Decision, len(folded))
	s.takeGroup(folded, answers)
	for i, j := range answer {
		decisions[i] = answers[j]
	}
	return nil
}

// takeOne is takeGroup for the most frequent group: one check.
func (s *Store) takeOne(c *window.Check, d *window.Decision) {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return
	}
	id := c.Log()
	sh := &s.shards[s.shardOf(id)]
	sh.mu.Lock()
	defer sh.mu.Unlock()

	a := asked{shard: sh}
	a.look(id, s.clock().Microseconds())
	var group window.Verdict
	a.judge(c, &group)
	if c.Mode.Charged(group.Allowed(), a.room) {
		a.record(c)
	}
	a.view.Answer(c, a.room, d)
}

// takeGroup decides checks of which no two have the same log and mode.
func (s *Store) takeGroup(checks []window.Check, decisions []window.Decision) {
	var inline [inlineChecks]asked
	group := inline[:]
	if len(checks) > inlineChecks {
		group = make([]asked, len(checks))
	}

	var (
		verdict       window.Verdict
		touched       uint64 // a bit for every shard
		unconditional bool
	)
	for i := range checks {
		c := &checks[i]
		if answer, ok := window.WithoutLog(c); ok {
			decisions[i] = answer
			verdict.Add(c.Mode, answer.Allowed)
			continue
		}
		k := s.shardOf(c.Log())
		group[i].shard = &s.shards[k]
		touched |= 1 << k
		unconditional = unconditional || c.Mode.Unconditional()
	}
	s.lock(touched)
	defer s.unlock(touched)

	// The clock is read under the locks, so that it is not behind what another
	// group has just recorded.
	now := s.clock().Microseconds()
	if unconditional {
		recordFirst(window.Refund, checks, group, now, &verdict)
		recordFirst(window.Always, checks, group, now, &verdict)
	}
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil && !c.Mode.Unconditional() {
			a.look(c.Log(), now)
			a.judge(c, &verdict)
		}
	}
	allowed := verdict.Allowed()
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil && !c.Mode.Unconditional() && c.Mode.Charged(allowed, a.room) {
			a.record(c)
		}
	}
	for i := range checks {
		c, a := &checks[i], &group[i]
		if a.shard == nil {
			continue
		}
		if unconditional {
			a.look(c.Log(), now) // another check of the group may have written to the log
		}
		a.view.Answer(c, a.room, &decisions[i])
	}
}

// recordFirst records the checks of a mode that is recorded whatever becomes of
// the group.
func recordFirst(m window.Mode, checks []window.Check, group []asked, now int64, verdict *window.Verdict) {
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Mode == m && a.shard != nil {
			a.look(c.Log(), now)
			a.judge(c, verdict)
			a.record(c)
		}
	}
}

// asked is what deciding one check needs.
type asked struct {
	shard *shard // nil if the check needs no log
	log   *log   // nil if there is none yet
	view  window.View
	room  bool
}

// look finds the log and looks at it at the time clock, in microseconds.
func (a *asked) look(id window.LogID, clock int64) {
	var packed []byte
	if a.log = a.shard.find(id); a.log != nil {
		packed = a.log.packed
	}
	a.view.Look(packed, clock, id.Window)
}

// judge sees whether the check has room, and tells its group.
func (a *asked) judge(c *window.Check, group *window.Verdict) {
	a.room = c.Mode == window.Refund || a.view.Room(c.Limit.Hits, c.Cost)
	group.Add(c.Mode, a.room)
}

// record charges a check, or gives its cost back. Where nothing is recorded no
// log is made.
func (a *asked) record(c *window.Check) {
	switch {
	case c.Cost == 0:
		return
	case c.Mode == window.Refund:
		a.view.Refund(c)
	default:
		a.view.Charge(c)
	}
	packed := a.view.Log()
	if a.log == nil {
		if packed == nil {
			return
		}
		a.log = a.shard.add(c.Log())
	}
	a.log.packed = packed
}

// find returns a log, or nil if there is none.
func (sh *shard) find(id window.LogID) *log {
	if t := sh.tables[id.Window]; t != nil {
		return t.logs[id.Key]
	}
	return nil
}

// add makes a log that is not there yet.
func (sh *shard) add(id window.LogID) *log {
	t := sh.tables[id.Window]
	if t == nil {
		t = &table{logs: make(map[string]*log)}
		sh.tables[id.Window] = t
	}
	l := &log{}
	t.logs[strings.Clone(id.Key)] = l // the key may be cut from a much longer message
	t.peak = max(t.peak, len(t.logs))
	return l
}

// shardOf returns the index of the shard that holds a log.
func (s *Store) shardOf(id window.LogID) uint {
	// Windows of one key are spread too: the multiplier is 2^64 divided by the
	// golden ratio, which moves any difference into the high bits used below.
	const golden = 0x9e3779b97f4a7c15
	h := maphash.String(s.seed, id.Key) + uint64(id.Window)*golden
	return uint(h >> (64 - shardBits))
}

// lock locks a set of shards in index order. Every group does, so that no two
// can wait for each other.
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
