package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

const (
	// DefaultSweepInterval is the time that sweeping every shard once takes.
	DefaultSweepInterval = 10 * time.Second

	// A set of shards is a bit mask of 64 bits, so there are at most 64 shards.
	maxShardBits = 6

	// There are fewer shards if a share of the bound would be smaller than this. Keys do
	// not spread evenly over shards, and a log must fit into one shard.
	minShardBytes = 1 << 20

	// inlineChecks is the most checks that a group may have without an allocation. Few
	// requests have more.
	inlineChecks = 4
)

// ErrFull is wrapped by the error of a [Store.Take] that needs more memory than
// [Options.MaxBytes] allows. Either no log can be dropped, because all
// are limiting now, or the logs of the call alone exceed the share of their shard. The text
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
	// comment says how shards share it, and what happens at the bound.
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
		sh.limit = share(o.MaxBytes, i, len(s.shards))
		sh.usual = usual(sh.limit)
		sh.easy = sh.usual
		if o.Owner != nil {
			sh.easy = sh.limit / (freePart + 1) * freePart
			sh.owned = &owned{of: o.Owner, seed: s.seed}
		}
	}
	return s
}

// share returns the i-th of n equal parts of a bound. If n does not divide the bound, the
// first parts are larger by one.
func share(bound int64, i, n int) int64 {
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

// Take implements [window.Store]. It waits only for short locks, so it always decides. If
// ctx is already done, Take returns its error and charges nothing. For checks that keep
// the contract the only other error is [ErrFull], if the store has bounds.
func (s *Store) Take(ctx context.Context, _ bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if err := window.Validate(checks, decisions); err != nil {
		return true, fmt.Errorf("memstore: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return true, fmt.Errorf("memstore: %w", err)
	}
	return true, s.take(checks, decisions)
}

// take decides checks that keep the contract.
func (s *Store) take(checks []window.Check, decisions []window.Decision) error {
	if len(checks) == 1 {
		switch c := &checks[0]; {
		case c.Stream == 0 && !c.Receipts():
			return s.takeOne(c, &decisions[0])
		case c.Stream != 0 && !c.Mode.Unconditional():
			return s.takeInFlight(c, &decisions[0])
		}
	}
	folded, answer := window.Fold(checks)
	switch {
	case answer == nil && !needsMore(checks):
		return s.takeGroup(checks, decisions, nil)
	case answer == nil:
		return s.takeMore(checks, decisions)
	}
	answers := make([]window.Decision, len(folded))
	if err := s.takeMore(folded, answers); err != nil {
		return err
	}
	for i, j := range answer {
		decisions[i] = answers[j]
	}
	return nil
}

// takeOne is takeGroup for the most frequent group: one check.
func (s *Store) takeOne(c *window.Check, d *window.Decision) error {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return nil
	}
	var group [1]checkState // makeRoom does not drop the logs of the group
	a := &group[0]
	s.place(a, c)
	a.shard.mu.Lock()
	defer a.shard.mu.Unlock()

	now := s.clock().Microseconds()
	if !covered(c, now) {
		return errPeriod
	}
	a.look(c, now)
	var verdict window.Verdict
	a.judge(c, &verdict)
	a.charged = c.Mode.Charged(verdict.Allowed(), a.room)
	if a.charged {
		if !a.fits(c) {
			if err := a.shard.makeRoomOf(c.Key, a.need(c), now, group[:]); err != nil {
				return err
			}
		}
		a.record(c, now)
	}
	if c.Limit.Policy == window.Sliding {
		a.state.View().Answer(c, a.room, d)
	} else {
		a.state.Answer(c, a.room, d)
	}
	d.Cut = a.cut
	return nil
}

// takeInFlight is takeGroup for one check in flight, which no mode records unconditionally.
func (s *Store) takeInFlight(c *window.Check, d *window.Decision) error {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return nil
	}
	var (
		a       checkState
		flight  = streamState{id: c.Stream}
		verdict window.Verdict
	)
	touched := 1<<s.place(&a, c) | s.placeStream(&flight)
	s.lock(touched)
	defer s.unlock(touched)

	now := s.clock().Microseconds()
	flight.look()
	flight.tell(c, &a, now)
	a.look(c, now)
	a.judge(c, &verdict)
	if a.charged = c.Mode.Charged(verdict.Allowed(), a.room); a.charged {
		if !flight.fits(c, &a) {
			if err := s.makeRoomInFlight(c, &a, &flight, touched, now); err != nil {
				return err
			}
		}
		a.record(c, now)
		flight.record(c, &a, now)
	}
	a.state.Answer(c, a.room, d)
	return nil
}

// makeRoomInFlight is makeRoom for takeInFlight.
//
//go:noinline
func (s *Store) makeRoomInFlight(c *window.Check, a *checkState, flight *streamState, touched uint64, now int64) error {
	group := [2]checkState{*a, {log: flight.log}} // makeRoom does not drop their logs
	return s.makeRoom([]window.Check{*c}, group[:], &extra{flight: *flight}, touched, now)
}

// takeMore is takeGroup for checks that may have a stream or receipts. What it needs besides is not
// a variable of takeGroup, where it would slow other groups down.
//
//go:noinline
func (s *Store) takeMore(checks []window.Check, decisions []window.Decision) error {
	return s.takeGroup(checks, decisions, new(extra))
}

// takeGroup decides checks of which no two have the same log and mode. more is new, or nil if
// none of them has a stream or a receipt.
func (s *Store) takeGroup(checks []window.Check, decisions []window.Decision, more *extra) error {
	var inline [inlineChecks]checkState
	group := inline[:]
	states := len(checks)
	if more != nil {
		states += 1 + len(checks) // those of the stream and of the receipts, whose logs makeRoom does not drop
	}
	if states > inlineChecks {
		group = make([]checkState, states)
	}
	group = group[:states]

	var verdict window.Verdict
	touched, unconditional := s.placeGroup(checks, group, decisions, &verdict)
	if more != nil {
		touched |= s.placeStreamOf(&more.flight, checks, group) | s.receiptsOf(more, checks, group)
	}
	s.lock(touched)
	defer s.unlock(touched)

	// The clock is read under the locks, so it is not before what another group has just
	// recorded.
	now := s.clock().Microseconds()
	if more != nil {
		more.look(checks, group, now, unconditional)
	}
	if unconditional {
		if err := s.recordUnconditional(checks, group, more, touched, now, &verdict); err != nil {
			return err
		}
	}
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil && !c.Mode.Unconditional() {
			if !covered(c, now) {
				return errPeriod // nothing of the group is charged yet
			}
			a.look(c, now)
			a.judge(c, &verdict)
		}
	}
	allowed := verdict.Allowed()
	for i := range checks {
		group[i].charged = checks[i].Mode.Charged(allowed, group[i].room)
	}
	if more != nil {
		more.settle(group)
	}
	if !unconditional {
		if err := s.makeRoom(checks, group, more, touched, now); err != nil {
			return err
		}
	}
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil && a.charged && !c.Mode.Unconditional() {
			a.record(c, now)
		}
	}
	if more != nil {
		more.record(checks, group, now)
	}
	for i := range checks {
		c, a := &checks[i], &group[i]
		if a.shard == nil {
			continue
		}
		if unconditional {
			a.look(c, now) // another check of the group may have written to the log
		}
		if c.Limit.Policy == window.Sliding {
			a.state.View().Answer(c, a.room, &decisions[i])
		} else {
			a.state.Answer(c, a.room, &decisions[i])
		}
		decisions[i].Repeated, decisions[i].Cut = a.paid, a.cut
	}
	return nil
}

// placeGroup finds the shards of the logs of checks, and answers the checks that need no log.
// touched has a bit for every shard. unconditional says whether a check with a log has such a mode.
func (s *Store) placeGroup(checks []window.Check, group []checkState, decisions []window.Decision, verdict *window.Verdict) (touched uint64, unconditional bool) {
	for i := range checks {
		c := &checks[i]
		if answer, ok := window.WithoutLog(c); ok {
			decisions[i] = answer
			verdict.Add(c.Mode, answer.Allowed)
			continue
		}
		touched |= 1 << s.place(&group[i], c)
		unconditional = unconditional || c.Mode.Unconditional()
	}
	return touched, unconditional
}

// errPeriod is the error of a group with a period that contradicts the store's clock.
var errPeriod = fmt.Errorf("memstore: %w", window.ErrPeriod)

// covered reports whether the period of a check is of use at the time now.
func covered(c *window.Check, now int64) bool {
	return c.Limit.Policy != window.Calendar || c.Period.Covers(now)
}

// recordUnconditional judges and records the checks that are recorded before the verdict is known.
// They cannot be taken back. So room is made for all checks.
func (s *Store) recordUnconditional(checks []window.Check, group []checkState, more *extra, touched uint64, now int64, verdict *window.Verdict) error {
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil {
			if !covered(c, now) {
				return errPeriod // before the reports of the group are charged
			}
			a.look(c, now)
			a.charged = true
		}
	}
	if err := s.makeRoom(checks, group, more, touched, now); err != nil {
		return err
	}
	recordFirst(window.Refund, checks, group, now, verdict)
	recordFirst(window.Always, checks, group, now, verdict)
	return nil
}

// recordFirst judges and records the checks of a mode that is recorded whatever the group
// decides.
func recordFirst(m window.Mode, checks []window.Check, group []checkState, now int64, verdict *window.Verdict) {
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Mode == m && a.shard != nil {
			a.look(c, now)
			a.judge(c, verdict)
			a.record(c, now)
		}
	}
}

// A checkState is what deciding one check needs.
type checkState struct {
	shard   *shard // nil if the check needs no log
	log     *log   // nil if the log does not exist yet
	name    name   // of the log
	hash    uint32
	room    bool
	charged bool
	fresh   bool  // the stream of the check holds nothing in the log
	paid    bool  // the check is a repeat
	cut     bool  // a part of the cost was not recorded
	ended   int64 // until when the stream of the check is denied, in milliseconds; or 0
	state   packed.State
}

// place finds the shard of a check's log and returns its index.
func (s *Store) place(a *checkState, c *window.Check) uint {
	a.name = kind(c.Scope, c.Limit.Policy) // without a LogID: copying the check takes longer
	if c.Limit.Policy != window.InFlight {
		a.name |= name(c.Limit.Window)
	}
	i, hash := s.spread(maphash.String(s.seed, c.Key) + uint64(a.name)*golden)
	a.shard, a.hash = &s.shards[i], hash
	return i
}

// look finds the log and sets the view of it at the time now, in microseconds.
func (a *checkState) look(c *window.Check, now int64) {
	var packed []byte
	if a.log = a.shard.lookUp(c.Key, a.name, a.hash); a.log != nil {
		packed = a.log.packed
	}
	switch {
	case c.Limit.Policy == window.Sliding:
		a.state.View().Look(packed, now, c.Limit.Window) // most checks: one call less
		return
	case a.fresh:
		a.state.LookNew(packed, now, c)
	default:
		a.state.Look(packed, now, c)
	}
	if a.ended > 0 {
		a.state.Ended(a.ended)
	}
}

// judge finds out whether the check has room, and adds that to the group's verdict.
func (a *checkState) judge(c *window.Check, group *window.Verdict) {
	switch {
	case a.paid:
		a.room = true
	case c.Limit.Policy != window.InFlight && c.Mode != window.Refund:
		a.room = a.state.View().Room(c.Limit.Hits, c.Cost)
	default:
		a.room = a.state.Room(c)
	}
	group.Add(c.Mode, a.room)
	if a.log != nil && denies(c.Mode) && a.log.limit != uint32(c.Limit.Hits) {
		a.log.limit = uint32(c.Limit.Hits)
	}
}

// denies reports whether checks of a mode can deny a request. Their limits decide whether
// a log is limiting.
func denies(m window.Mode) bool { return m != window.Observe && m != window.Refund }

// record charges a check, or gives its cost back. It makes a new log only if it records
// something.
func (a *checkState) record(c *window.Check, now int64) {
	switch {
	case c.Cost == 0:
		return
	case c.Mode == window.Refund:
		a.state.Refund(c)
	case c.Mode == window.Always:
		a.cut = a.state.Recordable(c) < c.Cost
		a.state.Charge(c)
	case c.Limit.Policy == window.Sliding:
		a.state.View().Charge(c)
	default:
		a.state.Charge(c)
	}
	packed := a.state.Log()
	if a.log != nil {
		a.shard.keep(a.log, packed)
		return
	}
	if packed == nil {
		return
	}
	a.log = a.shard.add(c.Log(), a.hash)
	a.log.limit = noLimit
	if denies(c.Mode) {
		a.log.limit = uint32(c.Limit.Hits)
	}
	a.shard.keep(a.log, packed)
	a.shard.offerNew(a.log, now)
}

// shardOf returns the index of the shard that holds a log, and the log's hash
// within it.
func (s *Store) shardOf(id window.LogID) (uint, uint32) {
	if id.Policy == streams {
		return s.shardOfStream(streamOf(id))
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
