// Package redissource asks Redis whose API key it is. It needs Redis 6.2 or later
// or Valkey: a single server, a Sentinel set or a Cluster, whatever the client is
// made for. It only reads, and the Redis may be another than that of the limits.
//
// # Records
//
// Two hashes and a marker, whose names begin with [Options.KeyPrefix]:
//
//	<prefix>key:<digest>     subject, revoked
//	<prefix>subject:<id>     tier, disabled, overrides, labels
//	<prefix>ready            exists: all subjects are here
//
// The hash of a key names the subject, whose own hash holds the rest. So another
// tier is one write, however many keys the subject has. A lookup is two questions
// then, one after the other: they may be on two nodes of a Cluster, where a script
// could not ask both.
//
// A key's hash that has one of the fields tier, disabled, overrides and labels is
// the whole record, and the subject's hash is not looked at. That is for who keeps
// one hash for each key and needs neither look-ups by id nor several keys of a
// subject.
//
//   - subject: the id; see [tier.ValidID].
//   - tier: may be empty or missing: the default tier.
//   - disabled, revoked: 0, 1, true or false; missing is false.
//   - overrides: JSON, as [Options.Overrides] reads it.
//   - labels: a JSON object of texts.
//
// Nobody has a key without a hash, a revoked key, and a key whose subject has no
// hash: removing the subject's hash shuts out all of its keys. Other fields are
// not even read, so that a hash which has none of these fields counts as none. The
// hashes belong to the operator, who may keep more in them, and a field that a later
// version reads must not break an earlier one beside it.
//
// That there is no hash is believed only while the marker exists, of whatever type.
// Without it that is an error: a Redis that came back empty, another database or
// another prefix would otherwise turn every customer into a stranger at once. The
// marker is asked for in the same round trip as the hash; on a Cluster, where it is on
// another node, in one of its own, when there is no hash. It is no proof against the
// eviction of single hashes.
//
// What is no record (another type, a field that cannot be read) is an error that
// wraps [tier.ErrBadRecord] and names the hash and the field.
//
// # Changes
//
// Who writes publishes on [Options.Channel] afterwards, in a form that
// [tier.ReadChange] reads: {"subject":"acme"}, {"digest":"2c70…"}, {"all":true} or
// a digest alone. What cannot be read counts as a change of everybody, and is
// logged. [Source.Watch] listens on a connection of its own, which is asked
// whether it is there when it has been silent for ten seconds, and then has ten to
// answer.
//
// Keyspace notifications are not used: most servers have them off, and on a
// Cluster each node tells of its own keys alone.
package redissource
