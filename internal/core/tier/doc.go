// Package tier finds out who calls: it turns the digest of an API key into a subject and the tier
// that the subject subscribes to. It has the interfaces [Source], [Batcher], [Watcher] and
// [Resolver], and the in-memory [Directory] of a file. Package cache keeps the answers of a source.
// [Secrets] digests API keys; [Subject], [Override] and labels are checked here.
//
// # Terms
//
//   - A subject is a consumer with an id. The id is the only form of a subject that
//     reaches logs, headers and metadata.
//   - A tier is a named bundle of limits. Rules say what each tier may do.
//   - A [Resolver] finds the subject of a key for a request.
//   - A [Directory] is a resolver that holds all subjects: one immutable generation
//     of a file. A reload swaps in a new one, so lookups take no lock.
//   - A [Source] has subjects outside of the process. A question to it takes a round
//     trip. A cache makes a resolver of it.
//   - A record is the answer of a source for one key: a subject, or that the key is
//     unknown.
//   - [Secrets] knows which descriptor entries contain API keys, and digests the keys.
//
// # An API key is a secret
//
// A key is digested where it enters the process, and is not kept. [Secrets.Key] finds it
// in the value of a header, so that each spelling of one credential has one digest. With
// a secret (setting secrets.key_file) the digest is HMAC-SHA-256 (RFC 2104), so that a reader
// of a digest cannot guess the key. Without one it is plain SHA-256, which is safe for
// keys that are long and random.
//
// Only a source that needs the key itself gets it, for one question ([Key].Plain). No
// record contains it, and the cache removes it from the errors of such a source.
package tier
