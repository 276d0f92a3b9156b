// Package memstore is the embedded store: logs in the memory of one process.
//
// It implements the contract of [window.Store] for everything that one process
// sees. It shares nothing: two processes admit twice the limit, and a restart
// forgets. Where that matters, use redisstore.
//
// # How it works
//
// A log is a ring of entries (time, running sum of the costs), oldest first.
// Because the sums only grow, everything that a decision needs is a subtraction
// or a binary search:
//
//   - used is the newest sum minus the sum just before the oldest live entry;
//   - the wait for a cost is the expiry of the first entry whose running sum
//     frees enough;
//   - hits at the same microsecond share one entry.
//
// Limit 5 per 10 s, as the ring sees it (times in seconds):
//
//	charge 2 at t=0    (0, 2)
//	charge 1 at t=4    (0, 2) (4, 3)
//	charge 1 at t=4    (0, 2) (4, 4)          merged: same instant
//	ask 3 at t=7       used 4, two too many: (0, 2) frees 2, so retry after 3 s
//	charge 3 at t=10   (4, 4) (10, 7)         base 2; used 7-2 = 5
//
// Only a charge removes expired entries, which costs nothing but moving the
// head of the ring. Answers never change a log, so a denial is a pure read. A
// ring doubles when it is full and is cut to size when three quarters of it are
// unused, so that one burst does not hold memory for ever.
//
// # Concurrency
//
// Logs are spread over shards by a hash of their id, each with a mutex. A group
// locks the shards that it touches in index order, so that two groups cannot
// wait for each other, and holds them all while it decides. Nothing blocks
// under a lock.
//
// # Time and memory
//
// Time is the monotonic clock of the process: setting the system's clock has
// no effect. A sweeper goroutine visits one shard after the other and drops the
// logs that have expired entirely, so a log outlives its last charge by its
// window and at most [Options.SweepInterval]. [Store.Close] ends the sweeper.
//
// A log costs about 200 bytes and its key, and 16 bytes for every instant at
// which something was charged within the window. The number of logs is not
// bounded here: whoever makes the keys must not let a client invent them freely.
package memstore
