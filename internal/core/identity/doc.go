// Package identity finds the subject of a request. A [Request] has descriptors; a [Finder] finds the
// [Subject] that a rule limits in them, and names the logs in which it counts. It also has the client
// address, the mark of ended streams, masked addresses, a stable [Hash], and what operators may read
// of a caller ([CallerInfo]).
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
//     of a disabled subject are unknown. [rules.Identity] can give each key its own log.
//
//   - If the customer source does not answer for a key, the key is limited as an unknown
//     one, or the request is denied without the store.
//
// The subject also decides the tier, and is the hash tag of the store key, so that
// one customer's limits are on one slot of a Redis Cluster. The tag of a log is
// a function of that log alone: a log must not have one name in requests with a subject
// and another name in requests without.
//
// [CallerOf] is what operators may read of a request: no value of an entry that holds a secret.
package identity
