// Package explain answers which limits apply to a subject, and why. It decides nothing. It has the
// answers behind rls explain, usage and validate: the [Account] of a subject, the [Explanation] of
// one request, and the [Review] of rules. A review notes what has no effect, and what it costs.
//
//   - [AccountOf] has the limits of a subject, an API key, an address or a descriptor, and the logs
//     in which they count. It makes the checks that such a request would get. If a rule has a log for
//     each value of another entry, the names of its logs are found in the store, parsed, and made
//     again from the values: only a log that a request would get counts.
//   - [Log] and [Sample] ask the reverse: whose log is this, and which logs would a subject get?
//   - [Explain] decides a request without a charge, and says how the rules come to the verdict.
//   - [NewReview] describes rules to their author, and names what has no effect.
package explain
