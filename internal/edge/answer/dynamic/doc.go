// Package dynamic renders a verdict as dynamic metadata of Envoy: the entries of a Struct, such as
// rule, limit, remaining, retry_after, subject, tier and degraded. [AppendVerdict] and
// [AppendSubject] write them, and [Key] describes each for the reference. Every protocol uses the
// same names, which package ratelimit lists.
package dynamic
