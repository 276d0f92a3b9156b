// Package redisstore keeps logs in Redis, for many processes that share limits.
//
// It implements the contract of [window.Store] with one Lua script, take.lua,
// which is package window's arithmetic on the packed log once more: one call of
// it decides a whole group, or several independent ones. It needs Redis 6.2 or
// later, or Valkey: a single server, the master of a Sentinel set, or a Cluster,
// whatever the client is made for.
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
// logs share a name. A server that has failed is tried on a log of the store's
// own, <prefix><hash tag>probe:1000000.
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
// # Who sends
//
// A server has at most two calls of the script in flight. A caller who finds
// fewer makes his own at once, on his own goroutine. What comes while both are
// under way waits, and goes with the next call, up to 64 requests in one.
// There is no timer: nobody waits for a batch to fill. On a cluster every server
// has its queue, and requests on different slots go as several EVALSHA in one
// pipeline.
//
// Requests that share a call share only that: each has its own answer. Where a
// server refuses to write, those that write nothing are decided all the same.
//
// # Deadlines
//
// A request waits for [Options.Timeout], or until a fifth of the time before its
// context's deadline (at least 2 ms), so that the caller can still answer without;
// whatever comes first. If it still waits to be sent then, it is not sent. The deadline
// also goes with it, as an instant of the server's clock, and the script leaves
// out what comes later: a call that lay in the socket of a frozen server charges
// nobody when that goes on.
//
// How far the server's clock is ahead is learned from every reply: the script
// tells its clock, which it read after the call was sent and before the reply was
// there. What all replies have in common is kept, and widened by one part in a
// thousand of the time since. The earliest deadline by those bounds is sent, so a
// request is never charged after it, and refused at most as much too early as the
// quickest round trip took. A server whose clock is set, or another one behind
// the same name, contradicts what was known: its own reply corrects it, and a
// request that it took for late by the old clock is asked once more. Between such
// a jump and the next reply deadlines are not what they should be. Servers that
// nobody asks are asked for their clock every few seconds. A request that is sent on
// to a server which was never asked before has its deadline by the clock of the
// server that sent it on, and if that proves wrong, by the clock in the answer.
//
// # At most once
//
// Nothing is sent twice that may have run. A reply that is lost is an error. What
// is sent again has certainly not run: a script that the server does not know
// (NOSCRIPT), a slot that is elsewhere (MOVED, ASK), a first write that was
// refused, and a call that was left out as late by a clock that was wrong.
//
// # Late calls
//
// [DoubtOf] tells from the error of a call when the server may have charged it, by the
// server's clock: after the call was made and not after its deadline. A caller that has
// admitted the request all the same waits until the deadline has passed, looks whether
// the log has an entry of that time ([Store.Read]), and charges the cost if it has none.
// A call across slots has no such times.
//
// # Servers that fail
//
// When [Options.Failures] calls in a row have failed, the server is not asked any
// more (a breaker for each server, so one shard of a cluster fails alone). It is
// tried every [Options.ProbeInterval], with a decision on a log of the store's
// own, and asked again when that succeeds. A server that refuses only to write
// (OOM, NOREPLICAS, MISCONF) is asked on: it still decides denials. [Options.Changed]
// is told of both. A request across slots is not begun while one of its servers is
// not asked.
//
// # Clusters
//
// The logs of a request are on one slot as a rule, by their hash tag, and then
// one call decides it. Where they are on several, every check is charged by
// itself, in all slots at once. If one denies, what the others have charged is
// taken back by takeback.lua: exactly the entries that were recorded, and not, as
// a refund would, the newest, which may be somebody else's. So
// a log never admits more than its limit. Until it is taken back, which takes one
// more round trip, it may deny somebody else; if the server cannot be reached for
// that at once, it counts until it expires ([Stats] tells), as does one of a log of
// more than 128 kB, or with more than 64 newer instants. Denials, and answers
// after which nothing remains, that may be due to such an entry have
// [window.Decision.Unsettled] set for a second or two after it was made.
//
// A request whose keys are partly here and partly there while their slot moves is
// decided in the same way.
//
// # Reservations
//
// [Store.Reserve] charges ahead of time, and [Store.Return] gives back what was
// not used. [Store.Watch] tells of refunds that anybody has made.
//
// # The client
//
// The caller makes the client, and closes it after the store. Three of its
// options matter:
//
//   - ContextTimeoutEnabled must be true. Otherwise go-redis waits for its own
//     ReadTimeout and not for the context, and a call takes longer than promised.
//   - MaxRetries should be -1. The script writes, so sending it again after a
//     broken connection could charge twice. The store marks its commands as not
//     to be retried, which go-redis observes for single commands; -1 says the
//     same for everything else on the client.
//   - MaxRedirects of a cluster's client must be above zero.
//
// If OnConnect calls [Store.Connected], the store also reads the maxmemory-policy of
// the servers: one that evicts throws logs away, which resets their limits. See
// [Options].Policy and [NodeStats].
//
// # Errors
//
// An error means that the answer is not known, and unless it wraps
// [window.ErrBadCheck] it is not known either whether a group was charged: the
// script may have run though its reply was lost. It was charged as a whole or
// not at all; on several slots of a cluster that holds for each check. Every
// other error has a [Class]. Errors never contain a check's key, which may stand
// for a person.
package redisstore
