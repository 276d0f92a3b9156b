// Package tier says who a caller is: it turns the digest of an API key into a
// subject and the tier that the subject subscribes to.
//
// # Terms
//
//   - A subject is who is limited: a consumer with an id, which is the only form
//     that reaches logs, headers and metadata.
//   - A tier is a named bundle of limits. Rules say what each tier may do.
//   - A [Directory] is one immutable generation of subjects. A reload builds a
//     new one and swaps it, so lookups take no lock.
//   - [Secrets] knows which descriptor entries hold API keys, and digests them.
//
// # An API key is a secret
//
// A key is digested where it enters the process and never kept. With a secret
// (setting secrets.key) the digest is HMAC-SHA-256 (RFC 2104), so that somebody
// who reads a digest cannot find the key by guessing; without one it is plain
// SHA-256, which is fine for keys that are long and random.
package tier
