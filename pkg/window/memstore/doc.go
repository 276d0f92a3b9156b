// Package memstore is the embedded store: logs in the memory of one process.
//
// It implements the contract of [window.Store] for everything that one process
// sees. It shares nothing: two processes admit twice the limit, and a restart
// forgets. Where that matters, use redisstore.
//
// # How it works
//
// A log is a string of bytes, the packed log of package window: a header, then
// nine bytes for every instant at which something was charged, its time and the
// running sum of the costs. [window.View] decides on the bytes where they are,
// by a subtraction or a binary search; docs/window.md explains them.
//
// Limit 5 per 10 s, as the slots (time, sum) see it, times in seconds:
//
//	charge 2 at t=0    (0, 2)
//	charge 1 at t=4    (0, 2) (4, 3)
//	charge 1 at t=4    (0, 2) (4, 4)          merged: same instant
//	ask 3 at t=7       used 4, two too many: (0, 2) frees 2, so retry after 3 s
//	charge 3 at t=10   (4, 4) (10, 7)         base 2; used 7-2 = 5
//
// Up to 13 slots are kept in order. More are a ring, where dropping the expired
// ones moves its head and nothing else. Answers never change a log, so a denial
// is a pure read, and only a charge drops, grows or shrinks: a ring has at most
// a quarter to spare when it is made and is cut to size when three quarters of
// it are unused, so that one burst does not hold memory for ever. A charge that
// needs no more bytes allocates nothing.
//
// Windows above six days are kept in milliseconds, rounded up: the contract's
// point 12. The others are exact to the microsecond.
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
// A log with one hit costs about 100 bytes and its key, and one of 100 hits about
// 1,100: TestMemory measures it. The number of logs is not bounded here: whoever
// makes the keys must not let a client invent them freely.
package memstore
