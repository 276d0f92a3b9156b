// Package policy is the one place that decides requests.
//
// # The way of a request
//
//  1. An adapter turns Envoy's message into a [Request]: a domain, descriptors,
//     costs. API keys are digests by then. [Decider.Begin] puts it into a [Call].
//  2. Each descriptor is matched against the rules of its domain. A rule and the
//     tier of its subject give the limits.
//  3. The limits of all descriptors become one list of checks and one store
//     call, so that a request is charged on all of its limits or on none.
//  4. The decisions become a [Verdict]: allowed or not, the status of each
//     descriptor, and the limit that headers, body and metadata describe.
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
// # Names of logs
//
// A log belongs to a rule and the values of the entries that the rule leaves
// open. If such an entry contains an API key, its subject is looked up:
//
//   - A known key counts for its subject: all keys of a subject share one log.
//
//   - Unknown keys share one log per client address, so that a client gains nothing with
//     invalid keys. The address is the remote_address or masked_remote_address entry of
//     any descriptor of the request. Without one all unknown keys share a log. The keys
//     of a disabled subject are unknown. [Identity] can give each key its own log.
//
//   - If the source of tiers does not answer for a key, the key is limited as an unknown
//     one, or the request is denied without the store (Options.DenyUnresolved).
//
// A subject may have limits of its own under a rule, by the rule's name. They
// replace those of its tier. The log is the same if the window is the same.
//
// The subject also decides the tier, and is the hash tag of the store key, so that
// one customer's limits are on one slot of a Redis Cluster. The tag of a log is
// a function of that log alone: a log must not have one name in requests with a subject
// and another name in requests without.
//
// # Accounts
//
// [Rules.AccountOf] answers the operator's question which limits apply to a subject, an API
// key, an address or a descriptor, and in which logs they count. It makes the checks that a
// request of that party would get, and decides nothing. If a rule has a log for each value of
// another entry, the names of its logs are found in the store, parsed, and made again from the
// values: only a log that a request would get counts.
//
// # Usage updates
//
// Envoy may ask a rule before a request, with a cost of 0, and report the cost after the
// response. Such a cost is recorded even if it is denied if the rule says charge: always, or if
// the call says that its stream has ended. No history decides that. With [Rules.ReportUsage], a
// denied cost above 1 is recorded by a second call of the store if something remained.
//
// # Deny and error
//
// A denial is a [Verdict]. An error of [Call.Decide] means that neither the store nor the
// rules could decide; the adapter reports it to Envoy.
package policy
