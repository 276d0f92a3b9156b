// Package cache keeps the answers of a customer source in memory, so that few requests wait for it. A
// [Cache] is the [tier.Resolver] in front of a [tier.Source]: records, queue, breaker, changes and
// statistics.
//
// # Answers
//
// [Cache.Resolve] answers by the first line that applies:
//
//	a valid record                        it, without a question
//	the same, in the last fifth of it     it, and asks the source in the background
//	no record, or an expired one          asks and waits: the answer of the source
//	  the source fails, is too slow,      the expired record, marked Stale
//	  or is not asked                     without a record: Unavailable
//
// A request waits no longer than it says, and not at all if the source is not asked. A
// question goes on after its callers have left, for up to Timeout, and the next request
// gets its answer. Requests for a key whose question is under way wait for that question.
//
// A request that passes [tier.NoWait] gets the answers that need no waiting. For all others it
// gets none, and asks again with a wait. It gets an expired record only while the source
// cannot be asked for this key, or may not be asked again yet. While a secret is
// replaced, a key has two digests. The cache may then count a hit for the first digest
// although it has no answer for the second.
//
// A record is valid for TTL, or for UnknownTTL if the key is unknown. Its own time is up to a tenth
// longer or shorter. A source may shorten it ([tier.Record].MaxAge), not lengthen it. After that the
// record is a stale answer for Stale more. So while a source is unavailable, nothing changes for keys
// that the cache holds, known or unknown. The key of a disabled subject is a known key.
//
// # When the source is not asked
//
//   - It has failed: Breaker.Failures questions in a row got no answer in time. After Breaker.Retry one
//     question tries. A line in the log says when this begins and when it ends.
//   - It has answered with a malformed record ([tier.ErrBadRecord]). Then the cache does not
//     ask for this key for UnknownTTL, or until the source reports a change. It still
//     asks for all other keys.
//
// # Many keys at once
//
// Few questions are under way ([Options].Questions), whatever their rate. A [tier.Batcher]
// answers up to Batch keys with one question. Other look-ups wait in four classes:
//
//	expired   the record of a subject has expired
//	again     no record of a subject, and a second request asked for the key
//	first     no record of a subject
//	ahead     the record is still valid
//
// Known subjects (expired) and all other keys (again, then first) each have a quarter of
// the slots for themselves, and take turns at the others. So invented keys do not stop
// questions for known subjects, nor do refreshes stop those for new ones. The class ahead
// gets slots that no other class wants.
//
// Each class holds at most 32,768 look-ups, or fewer if the cache holds fewer records. The
// next one drops the oldest, whose requests get what withoutSource returns. A client that
// invents keys asks once for each, so under a flood a customer is found at the second call.
//
// # Changes
//
// [Cache.Invalidate] says that a key, a subject with all of its keys, or all records may
// have changed. [Cache.Run] calls it for the reports of a [tier.Watcher]. The records expire,
// so the next request asks the source. They remain stale answers.
//
//   - A question that was under way may bring the record from before the change.
//     Requests that waited for it get that, since they came before the change too. Later
//     requests ask again.
//   - A subject may have got a key that was unknown. So with each change of a subject
//     the records of unknown keys expire.
//   - While the source does not report changes, the cache sees them when records expire.
//     When the source reports again, all records expire.
//
// Invalidate searches for no record. Changes have numbers, a table of 65,536 stripes has
// the number of the last change in each part of the digests and ids, and a record has the
// number of the last change before its question. So the cost of a change does not depend
// on the number of records. Keys and subjects in one stripe expire together, which costs
// one question each.
//
// # Bounds and cost
//
// There are two caches with bounds of their own: for known keys and for unknown ones. So
// invalid keys evict unknown keys only. The cache evicts the records that are used
// least, and keeps expired ones until then. A subject with an id of 17 bytes takes about
// 210 bytes in all. A hit takes about 90 ns and allocates nothing, if the record is in
// the processor's cache.
//
// A cache starts a goroutine for each question under way. Close ends them.
package cache
