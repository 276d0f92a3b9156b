// Package pgsource looks subjects up in PostgreSQL, in a documented schema or by
// an operator's own query.
//
// # Asking
//
// [Source.Lookup] runs one prepared query with one parameter, the digest of an API
// key or the id of a subject, on one of [Options.PoolSize] connections: one round
// trip. It writes nothing; the role needs no more than SELECT. A query that takes its
// parameter for anything but a text, such as bytea, is an error for every key: it
// would find nobody. Columns are found by name:
//
//	subject    text, uuid or integer   the id; required
//	tier       text or an enumeration  NULL: the default tier
//	disabled   boolean                 NULL: false
//	overrides  jsonb, json or text     NULL: none
//	labels     jsonb, json or text     NULL: none
//
// No row: nobody has the key. More than one row, or a value that [tier.NewSubject]
// refuses, is a bad record. A column of another name or type is an error of the
// query, for every key: a misspelt "override" must not lift a limit in silence.
// [Schema] is what the query asks for if there is none of the operator's own.
//
// # Connections
//
// [New] returns at once. All connections are made in the background, then and
// again after an outage, each for at most five seconds a host, with the password and
// the certificates of that moment, and have read the queries before anybody asks.
// None is tried before it is used: a question that meets a dead one drops all of them
// and is asked again at once, so that a restart of the server is an error only while
// the server is away. [Source.Watch] drops them too when it loses its own.
//
// The server itself ends what takes longer than nine tenths of [Options.Timeout]
// (statement_timeout), and the connection lives on. A caller whose context ends
// before gives its connection up; nobody waits for the server then.
//
// # Changes
//
// [Source.Watch] listens on one more connection. A notification is what
// [tier.ReadChange] reads. One without a payload, or with one that nobody
// understands, is about everybody. When it has been quiet for ten seconds the
// server is asked whether it is there, and has five to answer. A standby cannot
// be listened to, nor a pooler whose sessions are not its clients'.
//
// # Errors
//
// They name the setting and say what to do. Neither the URL nor the password is in
// them, and of a value only its place.
package pgsource
