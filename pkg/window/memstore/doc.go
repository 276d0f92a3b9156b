// Package memstore is the embedded store: logs in the memory of one process. It has shards with
// locks, their hash tables, eviction by bounds and owners, and a sweeper. It has the records of
// streams and of idempotency, and the snapshots of [Store.Save] and [Load].
//
// It implements the contract of [window.Store] for the calls of one process. Processes
// share nothing: two processes admit twice the limit. If that matters, use redisstore. A
// restart loses the logs unless [Store.Save] saved them.
//
// # How it works
//
// A log is a string of bytes, the packed log of package packed, whose layout.go explains it.
// [packed.View] decides on the bytes in place. A charge that needs no more bytes allocates
// nothing. The other policies keep a short value instead: see [packed.State].
//
// Limit 5 per 10 s, shown as slots (time, running sum of the costs), times in seconds:
//
//	charge 2 at t=0    (0, 2)
//	charge 1 at t=4    (0, 2) (4, 3)
//	charge 1 at t=4    (0, 2) (4, 4)          merged: same instant
//	ask 3 at t=7       used 4, two too many: (0, 2) frees 2, so retry after 3 s
//	charge 3 at t=10   (4, 4) (10, 7)         base 2; used 7-2 = 5
//
// Logs are spread over shards by a hash of their id. Each shard has a mutex, and a hash table
// that grows and shrinks by one bucket at a time, so no call waits while a table moves. A group
// locks the shards of its logs in the order of their index, so two groups cannot deadlock. It
// holds all of them while it decides. No code blocks under a lock.
//
// Time is the time of day when the store was made, plus the monotonic time since. A sweeper
// goroutine visits one shard after the other and drops the logs that have expired entirely,
// about 250 under one lock. [Store.Close] ends it.
//
// A log with one hit takes about 105 bytes and its key; a log with 100 hits takes about
// 1,100. TestMemory measures it.
//
// # Bounds
//
// [Options.MaxBytes] bounds the logs. The store counts the capacity of the
// packed log, the length of the key, and a constant for the structures. The sum is within a
// tenth of the true memory.
//
// Every shard has an even part of the bound. There are 64 shards, or fewer if a part would
// be below 1 MiB. Keys are spread by hash, so shards fill unevenly by a few per
// cent. A single log cannot be larger than that part.
//
// A log is limiting if nothing remains of its limit, or if it is overdrawn. Its limit is that
// of the last check that could deny: one of mode Enforce, Any or Always. A log without
// such a check never limits. If a call needs room in a full shard:
//
//   - The shard drops logs in which nothing counts any more first.
//   - Then it drops the best of its candidates, which has used the smallest fraction of its
//     limit. Among equals, that is the log whose last charge is oldest. Every new log is
//     a candidate, and the best logs that a hand has met, which goes round over the buckets.
//     So from the second new log on, the dropped log has never used a larger fraction than the
//     last new log: a flood of invented keys evicts its own logs.
//   - It never drops a limiting log, or a log of the group itself. If all others are
//     gone, the call returns [ErrFull], and nothing of its group is charged. Such a call
//     may have dropped other logs before.
//
// With [Options.Owner] the logs of one owner, such as a rule, take at most seven times as
// much as is free in a shard. An owner at its bound makes a new log only instead of one of
// its own that may be dropped. If there is none, the call returns [ErrFull]. So an owner alone
// fills seven eighths of a shard, and its flood of limiting logs leaves room to others. Owners
// are counted by a hash of 8 bits: owners with one hash share a bound.
//
// A log that grows needs room like a new log. A group that charges one log in two modes with two
// precisions may exceed the bound by one growth of that log; nothing else does. Making room
// takes O(1) steps per call in the long run: evict.go says how.
//
// # What else is a log
//
// For each stream that holds something, or has ended, the store has one more log, which counts in
// the bounds and is saved. A stream that may hold something is never dropped before its last hold
// expires. One that has ended is dropped early if room is short: a check that arrives after the
// end of its stream may then hold until it expires.
//
// An idempotency record ([window.Check.Once]) is one more log too. It is never limiting, and is dropped before
// logs that have used more of their limits. A retry is then charged.
//
// # Snapshots
//
// [Store.Save] writes the logs and [Load] reads them. The process saves after the last
// charge, and loads before the first. Load checks what it reads: a checksum over all bytes,
// [packed.Decode] on every log, and bounds on every number.
package memstore
