// Package tier says who a caller is: it turns the digest of an API key into a
// subject and the tier that the subject subscribes to.
//
// # Terms
//
//   - A subject is who is limited: a consumer with an id, which is the only form
//     that reaches logs, headers and metadata.
//   - A tier is a named bundle of limits. Rules say what each tier may do.
//   - A [Resolver] answers at the speed of memory, and is what requests ask.
//   - A [Directory] is a resolver that holds all subjects: one immutable generation
//     of a file. A reload builds a new one and swaps it, so lookups take no lock.
//   - A [Source] is where subjects live outside of the process. One question takes a
//     round trip. A [Cache] makes a resolver of it.
//   - A record is what a source says of one key: a subject, or that nobody has it.
//   - [Secrets] knows which descriptor entries hold API keys, and digests them.
//
// # An API key is a secret
//
// A key is digested where it enters the process and never kept. [Secrets.Key] finds it
// in the value of a header, so that each spelling of one credential has one digest. With a secret
// (setting secrets.key) the digest is HMAC-SHA-256 (RFC 2104), so that somebody
// who reads a digest cannot find the key by guessing; without one it is plain
// SHA-256, which is fine for keys that are long and random.
//
// Only a source that has to be asked by the key itself is given it, for one question
// ([Key].Plain). It is in no record, and is taken out of what such a source says of
// its failures.
//
// # What is answered when
//
// A cache answers [Cache.Resolve] by the first line that fits:
//
//	a record within its ttl               it, at once
//	the same, in the last fifth of it     it, at once, and asks the source meanwhile
//	none, or one that has expired         asks, and waits: the source's answer
//	  the source fails, or is too slow,   the expired record, marked Stale
//	  or is not asked                     without one that still counts: Unavailable
//
// A request waits for as long as it says at most, and not at all if the source is not
// asked. A question goes on after its callers have left, for up to Timeout, and what
// it brings is for the next. Whoever wants to know the same while it is under way
// waits for it and asks none of his own.
//
// A request that passes [NoWait] gets the answers that need no waiting, and otherwise
// none: it asks again with a wait. An expired record is such an answer only while the
// source cannot be asked for this key, or may not be asked again yet. While a secret
// is replaced, a key has two digests. The cache may then count a hit for the first
// digest although it has no answer for the second.
//
// The ttl is TTL, or UnknownTTL for a key that nobody has, up to a tenth more or less
// by the key. A source may shorten it ([Record].MaxAge), not lengthen it. An expired
// record counts for Stale more, known or not, so a source that is away changes nothing
// for whoever was asked for before. A subject that is disabled is a known one.
//
// # When the source is not asked
//
//   - It has failed: Failures questions in a row got no answer in time. After Retry one
//     question tries. A line in the log says when this begins and when it ends.
//   - LookupsPerSecond have been asked. The source sees no more in any second, however
//     it is laid: it is no bucket, which would admit its burst on top of its rate, and a
//     question counts until a second after its end, however long it was on its way. So
//     a slow source is asked less. Only what the source sees later than Timeout, when
//     nobody waits for it any longer, comes on top.
//   - 1024 questions are under way.
//   - It has answered with something that is no record ([ErrBadRecord]). That is the
//     trouble of this key alone, which is not asked for until that of an unknown key
//     would be, or until a change is told.
//
// Of the second and the third, keys that are not known to be anybody's may use four
// fifths: a flood of made-up keys does not keep known ones from being asked for
// again. It keeps new ones waiting, which get Unavailable: they have a part of the
// four fifths by chance.
//
// # Changes
//
// [Cache.Invalidate] says that a key, a subject with all of its keys, or everybody may
// have changed. [Cache.Run] calls it for what a [Watcher] tells. The next request asks
// the source, as if the record had expired; the record still counts as a stale one.
//
//   - A question that was under way when the change was told may bring what was before
//     it. Those who wait for it are answered by it, since they came before the change
//     too. Later requests ask anew.
//   - A subject may have got a key that nobody had. So with every change of a subject
//     the records of unknown keys expire.
//   - While the source does not tell, changes may be missed: they are seen after the
//     ttl. When it tells again, everybody may have changed.
//
// No record is searched for: changes are numbered, a table of 65,536 says for each
// part of the digests and ids which number was the last, and a record knows the number
// after which it was asked for. So a change costs nothing, whatever is held. Keys and
// subjects that share a part change together, which costs a question each and nothing
// else.
//
// # Bounds and cost
//
// Records of known keys and of unknown ones are apart, each bounded: made-up keys
// push out made-up keys only. Records go when there are too many, those first that are
// seldom asked for; an expired one stays until then. A subject takes about 210 bytes,
// all included, with an id of 17. A hit takes about 90 ns and allocates nothing, if
// the processor has the record at hand; otherwise it is the memory that takes the time
// (BenchmarkCache, BenchmarkCacheMemory).
//
// A cache starts a goroutine for each question. Close ends them.
package tier
