// Package policy is the one place that decides.
//
// # The way of a request
//
//  1. An adapter turns Envoy's message into a [Request]: a domain, descriptors,
//     costs. API keys are digests by then.
//  2. Each descriptor is matched against the rules of its domain. A rule and the
//     tier of its subject give the limits.
//  3. The limits of all descriptors become one list of checks and one store
//     call, so that a request is charged on all of its limits or on none.
//  4. The decisions become a [Verdict]: allowed or not, the status of each
//     descriptor, and which limit speaks in headers, body and metadata.
//
// # With waiting and without
//
// [Call.Decide] has an argument wait. Without it Decide does not block: it stops if it
// has to ask a store or a source of tiers first. The [Call] keeps what is known by then,
// and the next Decide continues from there on any goroutine, by the same rules. So
// nothing is counted before the request is decided. The embedded store decides every
// request without waiting. In front of Redis, the remembered denials and the leases of
// package local decide some requests without waiting.
//
// # Whose log it is
//
// A log belongs to a rule and the values of the entries that the rule leaves
// open. Where such an entry holds an API key, the key's digest is looked up:
//
//   - A known key counts for its subject: all keys of a subject share one log.
//
//   - Unknown keys share one log per client address (the remote_address or
//     masked_remote_address entry of any descriptor of the request; one log for
//     all if there is none), so that making up keys gains nothing. The keys of
//     a disabled subject are unknown. [Identity] can give each its own log.
//
//   - A key that nobody can say anything about, because the source of tiers is
//     away, is limited as an unknown one, or denied without asking the store.
//
// A subject may have limits of its own under a rule, by the rule's name. They
// take the place of its tier's; the log stays the same where the window does.
//
// The subject also picks the tier, and is the hash tag of the store key, so that
// one customer's limits sit on one slot of a Redis Cluster. The tag of a log is
// a function of that log alone: a log that is reached with and without a subject
// must not have two names.
//
// # Deny and error
//
// A denial is a [Verdict]. An error of [Call.Decide] means that neither the store nor the
// rules could decide; the adapter reports it to Envoy.
package policy
