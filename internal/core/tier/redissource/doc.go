// Package redissource looks subjects up in Redis. It reads hashes of keys and of subjects and a
// marker (HMGET, EXISTS), and listens to a channel for changes. It needs Redis 6.2 or later or
// Valkey: a single server, a Sentinel set or a Cluster, depending on the client. It only reads. The
// Redis may be another one than that of the limits.
//
// # Records
//
// Two hashes and a marker, whose names begin with [Options.KeyPrefix]:
//
//	<prefix>key:<digest>     subject, revoked
//	<prefix>subject:<id>     tier, disabled, overrides, labels, limits
//	<prefix>ready            exists: all subjects are here
//
// The hash of a key names the subject. The hash of the subject has the rest. So a new
// tier is one write, however many keys the subject has. A lookup then takes two questions
// one after the other: on a Cluster the hashes may be on two nodes, and a script cannot
// read both.
//
//   - subject: the id; see [tier.ValidID].
//   - tier: may be empty or missing: the default tier.
//   - disabled, revoked: 0, 1, true or false; missing is false.
//   - overrides: JSON, as [Options.Overrides] reads it.
//   - labels: a JSON object of texts.
//   - limits: JSON, what the tier of the subject carries; see package limits.
//
// A key is unknown if it has no hash, if it is revoked, or if its subject has no hash. So
// removing the subject's hash makes all of its keys unknown. Other fields are not read,
// because the operator may keep more in the hashes. A hash without any of these fields
// counts as missing.
//
// A missing hash makes a key unknown only if the marker exists. Its type does not matter.
// Without the marker the lookup is an error. Otherwise a Redis that came back empty, a
// wrong database or a wrong prefix would make all keys unknown at once. The marker is
// read in the same round trip as the hash. On a Cluster, where it may be on another node,
// it is read in a second round trip if there is no hash. The marker does not show that
// single hashes were evicted.
//
// A malformed record (a hash of another type, an invalid field) is an error that wraps
// [tier.ErrBadRecord] and names the hash and the field.
//
// # Changes
//
// After a write, the writer publishes on [Options.Channel], in a form that
// [tier.ReadChange] reads: {"subject":"acme"}, {"digest":"2c70…"}, {"all":true} or
// a digest alone. An invalid message is logged and stands for all records.
// [Source.Watch] listens on a separate connection. After ten seconds of silence it
// pings the server, which has ten seconds to answer.
//
// Keyspace notifications are not used: most servers disable them, and on a Cluster
// each node reports only its own keys.
package redissource
