// Package redisstore keeps logs in Redis, for many processes that share limits.
//
// It implements the contract of [window.Store] with one Lua script, take.lua,
// which is package window's arithmetic on the packed log once more: one call of
// it decides a whole group, or several independent ones. It needs Redis 6.2 or
// later, or Valkey.
//
// # Keys
//
// The log of a check is the string
//
//	<prefix><key>:<window in microseconds>
//
// where prefix is [Options.Prefix] and key is the check's, byte by byte. A hash
// tag in the check's key therefore keeps its meaning, as long as the prefix has
// no braces. The windows of one key differ after the last colon only, so no two
// logs share a name. On a cluster all logs of a call must be on one slot; a call
// whose logs are not is refused by Redis as a whole, uncharged.
//
// # Bytes
//
// The bytes are those of package window (docs/window.md has a picture, and
// [window.Decode] reads them): 18 and 9 for every instant of up to 13, then 131
// and 9 for every instant of which there is room. Three things are Redis's own:
//
//   - The expiry, bytes 13 to 17, is the second of the server's clock at which
//     the key goes. It is set again only when the newest entry needs more, and
//     then to a quarter of the window more than needed, at least a second.
//   - A ring is read and written in parts: a call at the limit reads its first
//     136 bytes and writes 50.
//   - A value that is not a log is thrown away: see below.
//
// A check whose answer no log can change ([window.WithoutLog]) is answered
// without Redis. A denial writes nothing.
//
// # Foreign values
//
// A value under one of our keys that is not a log of the window (another type,
// another version or unit, torn bytes) is removed when it is found, the decision
// goes on as if there had been none, and [Options.Foreign] is told. That a ring
// is longer or shorter than it says shows only where the script reads or writes
// behind its header, so a few denials may come before, and a usage report may be
// denied once although it is recorded. Bytes that only look like a log may give
// wrong numbers. They never give an error.
//
// # Time
//
// The clock is the server's, by TIME inside the script, so the clocks of the
// callers do not matter. All groups of one call are decided at one instant.
// Within a log the clock never runs backwards, whatever a failover or an
// operator does to it: it is held at the log's last write.
//
// # Several requests at once
//
// [Store.TakeAll] decides up to [MaxCalls] requests in one call of the script, in
// order, each with the contract of Take. That costs Redis and the network much
// less than as many calls: who has requests waiting should send them together.
// They share a fate in one respect: an error is one of all.
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
// script's text. [Store.Load] makes it known beforehand, on all masters of a
// cluster.
//
// # Errors
//
// An error means that the answer is not known, and unless it wraps
// [window.ErrBadCheck] it is not known either whether a group was charged: the
// script may have run though its reply was lost. It was charged as a whole or
// not at all. Where Redis refuses the script's first write (no memory, a
// replica, too few replicas), nothing was. Errors never contain a check's key,
// which may stand for a person.
package redisstore
