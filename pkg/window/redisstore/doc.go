// Package redisstore keeps logs in Redis, for many processes that share limits. [Store] has a queue
// and a breaker for each server ([NodeStats]), messages of batched requests, probes, names of keys,
// and commands of operators. A request on several slots of a cluster, or in several [Scopes], has a
// participant for each store. If one denies, the charges of the others are taken back.
//
// It implements the contract of [window.Store] with one Lua script, take.lua. The script
// is a translation of package packed's arithmetic. One call of it decides a whole group,
// or several independent groups. It needs Redis 6.2 or later, or Valkey: a single server,
// the master of a Sentinel set, or a Cluster, depending on the client.
//
// # Keys
//
// The log of a check is the string
//
//	<prefix><key>:<window in microseconds>
//
// For the other policies, a letter stands before the window: b for a token bucket, f for fixed,
// c for a calendar and w for a sliding counter. Requests in flight end in :h alone.
//
// Here prefix is [Options.Prefix] and key is the check's, byte by byte. So a hash tag in
// the check's key keeps its meaning, as long as the prefix has no braces. The windows of
// one key differ only after the last colon, so no two logs share a name. The store probes
// a failed server on a separate log, <prefix><hash tag>probe:1000000.
//
// The instances that share the logs count themselves in the sorted set <prefix>instances: see
// [Store.Count]. Its name is not that of a log.
//
// # Bytes
//
// The bytes are those of package packed (its layout.go explains them, and
// [packed.Decode] reads them): 18 and 9 for each of up to 13 slots, above that 131 and 9
// for each slot that there is room for. Three things are specific to Redis:
//
//   - The expiry, bytes 13 to 17, has the second of the server's clock at which the key
//     expires. The script sets a new expiry only if the newest entry needs it. It is then
//     a quarter of the window later than needed, and at least a second.
//   - A ring is read and written in parts: a call at the limit reads its first
//     136 bytes and writes 50.
//   - The script removes a value that is not a log: see below.
//
// The store answers a check that needs no log ([window.WithoutLog]) without Redis. A denial writes nothing.
//
// # Corrupt values
//
// A value under one of the store's keys is corrupt if it is not a log of the window. It
// then has another type, version, unit or length. So is a value whose clock is more than a
// day ahead of the server's, and a log with room for more than 50,000 slots, if that is much more
// than its check needs. The script removes it at first sight
// and decides with an empty log, and the store calls [Options.Corrupt]. The script
// notices a ring with a wrong length only when it reads or writes behind the header.
// Until then it may answer a few denials from such a ring, or deny a usage update that it
// records. Bytes that only look like a log may give wrong numbers, but never an error.
//
// # Time
//
// The script reads the server's clock (TIME), so the clocks of the callers do not matter.
// It decides all groups of one call at one instant. Within a log the clock never runs
// backwards, whatever a failover or an operator does to it. The log is not seen from a
// time before its last write. If that is more than a day ahead, the log begins again.
//
// # Sending
//
// A server has at most two calls of the script in flight, or Options.Calls. If several instances keep it
// busy, each has one: its last round trip took more than eight times as long as the shortest of the last
// minute. If there are fewer, a request is sent at once, or with all that pause ([window.Pauser]). Otherwise it
// waits and shares the next call, which holds up to 48 requests. Those that charge the same slot of a log share one
// read and at most two writes. There is no timer: no request waits for a batch to fill. On a cluster every server has
// its own queue, and requests on different slots are several EVALSHA in one pipeline. Requests that pause there ask all
// their servers at once, and wait for the slowest.
//
// # Deadlines
//
// A request waits for [Options.Timeout] at most. It also returns before the deadline of
// its context: by a fifth of the remaining time, and at least 2 ms. So the caller can
// still answer without the store. If a request has not been sent by then, it is not sent.
// The call also brings the deadline, as an instant of the server's clock. The script
// leaves out requests that come after their deadline. So a call that was in the socket of
// a frozen server charges nothing when the server continues.
//
// The store learns from every reply between which bounds the server's clock is ahead, and sends
// the earliest deadline by them. So a request is never charged after its deadline, and refused too
// early by at most the quickest round trip. A request that failed was charged before its deadline
// or never.
//
// If a server's clock is set, or another server has taken its name, its reply contradicts
// the bounds. The store then believes the reply, and asks once more for a request that
// the script left out by the old bounds. Until that reply, deadlines are wrong. The store
// asks idle servers for their clock every few seconds.
//
// # At most once
//
// The store never sends again what may have run. A lost reply is an error. The store sends
// a call again only if it has certainly not run. Then the server does not know the script
// (NOSCRIPT), the slot is elsewhere (MOVED, ASK), or the server refused the first write.
// Or the script left the request out because of a wrong clock.
//
// # Servers that fail
//
// Each server has a breaker, so one shard of a cluster fails alone. After
// [Options.Failures] failed calls in a row it opens, and callers get an error at once. The
// store probes the server every [Options.ProbeInterval] with a decision on a log of its
// own. When a probe succeeds, the breaker closes. If a server refuses only to write (OOM,
// NOREPLICAS, MISCONF), the breaker stays closed: the server still decides denials, and the
// store probes it every two seconds. The store calls [Options.Changed] in both cases. It does
// not start a request across slots while the breaker of one of its servers is open.
//
// # Clusters
//
// Usually the logs of a request share a slot, by their hash tag, and one call decides it.
// If they are on several slots, the store charges every check by itself, in all slots at
// once. If one check denies, takeback.lua takes back what the others have charged: exactly
// the recorded entries. So a log never admits more than its limit. [Scopes] does the same for
// logs in several stores.
//
// Such an entry may deny other requests until it is taken back, one round trip later. If the server cannot be reached
// then, the entry counts until it expires; [Stats] counts that. The same holds in logs of more than 128 kB, and for
// entries with more than 64 newer slots. For a second or two after such an entry, [window.Decision.Unsettled] is
// set in denials of the log, and in answers after which nothing remains.
//
// While a slot moves, the keys of a request may be on two servers. The store then decides it in the same way.
// If the clock of the server that gets the slot is behind, a log may expire there too early, by that difference, and a
// call may be charged too late, by as much.
//
// # Requests in flight
//
// A log of [window.InFlight] is the string <prefix><key>:h. What is known of a stream is the
// string <prefix>{<16 hex digits>}:s: the logs in which it may hold something, or that it has
// ended. The script reads and writes both in one call, and [Store.End] is one call of
// streams.lua. So on a single server the user needs access to keys that are not named in the
// call. If nothing is known of a stream, its check of a long log reads only the ends of the log.
//
// On a cluster a stream and its logs are on several servers. The store first notes the logs of
// the stream, and then decides: two round trips. An end first marks the stream, and then ends it
// in each noted log. If an end comes between the two steps of a request, the log has a
// tombstone, which denies the request.
//
// # Charges with idempotency records
//
// The idempotency record of a charge ([window.Check.Once]) is a string: the name of its log, then ":o" and 16
// hex digits, so it is on the slot of the log. oncerecords.lua reads and writes it in the call that
// decides the check. A request with logs on several slots or in several scopes has no idempotency records, and
// is charged each time.
//
// # The client
//
// The caller makes the client, and closes it after the store. Three options matter:
//
//   - ContextTimeoutEnabled must be true. Otherwise go-redis waits for its own
//     ReadTimeout and not for the context, and a call takes longer than promised.
//   - MaxRetries should be -1. The script writes, so sending it again after a
//     broken connection could charge twice. The store marks its commands as not to
//     be retried. go-redis obeys the mark for single commands; -1 covers the others.
//   - MaxRedirects of a cluster's client must be above zero.
//
// If OnConnect calls [Store.Connected], the store also reads the maxmemory-policy of the
// servers. A policy that evicts deletes logs, which resets their limits. See
// [Options.Policy] and [NodeStats].
//
// # Errors
//
// An error that wraps [window.ErrBadCheck] means that nothing was charged. Every other
// error has a [failure.Class]. After such an error the group may have been charged: the script may
// have run although its reply was lost. The group was charged as a whole or not at all; on
// several slots of a cluster, that holds for each check. Errors never contain a check's
// key, which may identify a person.
package redisstore
