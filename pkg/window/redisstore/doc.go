// Package redisstore keeps logs in Redis, for many processes that share limits.
//
// It implements the contract of [window.Store] with one Lua script, take.lua:
// one call of it decides a whole group and charges all of its logs or none. It
// needs Redis 6.2 or later, or Valkey.
//
// # Keys
//
// The log of a check is the sorted set
//
//	<prefix><key>:<window in microseconds>
//
// where prefix is [Options.Prefix] and key is the check's, byte by byte. A hash
// tag in the check's key therefore keeps its meaning, as long as the prefix has
// no braces. The windows of one key differ after the last colon only, so no two
// logs share a name. On a cluster all logs of a group must be on one slot;
// a group that is not is refused by Redis as a whole, uncharged.
//
// A member is "sum:cost": the cost that was charged at the time that is its
// score, in microseconds, and the running sum of all costs so far, modulo 2^52.
// Limit 5 per 10 s:
//
//	charge 2 at t=0    score 0         0000000000000002:2
//	charge 1 at t=4    score 4000000   0000000000000003:1
//	charge 1 at t=4    score 4000000   0000000000000004:2   replaces the one before
//	ask 3 at t=7       used 4 = 4-2+2; two too many; the first frees 2: wait 3 s
//	charge 3 at t=10   score 10000000  0000000000000007:3   the first is removed
//
// What is spent is a subtraction of the newest and the oldest live member, and
// the wait for a cost is found by bisecting ranks. A denied group only reads. A
// value under one of our keys that is not a log is an error that wraps
// [ErrBadLog], and nothing is charged.
//
// # Time
//
// The clock is the server's, by TIME inside the script, so the clocks of the
// callers do not matter. Within a log it never runs backwards, whatever a
// failover or an operator does to it: it is held at the log's newest entry.
//
// A charge sets the key to expire one second after its window has passed. The
// second is slack between two clocks of the server: key expiry counts
// milliseconds, and not from the instant that TIME tells.
//
// # The client
//
// The caller makes the client, and closes it. Two of its options matter:
//
//   - ContextTimeoutEnabled must be true. Otherwise go-redis waits for its own
//     ReadTimeout and not for the context, and Take blocks longer than promised.
//   - MaxRetries should be -1. The script writes, so sending it again after a
//     broken connection could charge twice. The store marks its commands as not
//     to be retried, which go-redis observes for single commands; -1 says the
//     same for everything else on the client.
//
// The one thing that is sent twice is a script that the server does not know:
// EVALSHA answers NOSCRIPT before anything has run, and EVAL follows with the
// script's text.
//
// # Errors
//
// An error means that the answer is not known, and unless it wraps
// [window.ErrBadCheck] or [ErrBadLog] it is not known either whether the group
// was charged: the script may have run though its reply was lost. It was charged
// as a whole or not at all. Errors never contain a check's key, which may stand
// for a person; they say which check of the group it was.
package redisstore
