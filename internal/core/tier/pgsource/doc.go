// Package pgsource looks subjects up in PostgreSQL, in a documented schema or by an operator's own
// query. It has the SQL: one query by the digest of an API key, one by the id of a subject, and
// batches of both for the tables of deploy/postgres/schema.sql. It checks the types of parameters
// and columns, reads rows, keeps a pool of connections, and watches changes by LISTEN
// ([Source.Watch]).
//
// # Questions
//
// [Source.Lookup] runs one prepared query with one parameter, the digest of an API
// key or the id of a subject, on one of [Options.PoolSize] connections: one round
// trip. It writes nothing; the role needs no more than SELECT. If the type of the
// parameter is not a text but for example bytea, each lookup is an error, because it
// would find no subject. Columns are found by name:
//
//	subject    text, uuid or integer   the id; required
//	tier       text or an enumeration  NULL: the default tier
//	disabled   boolean                 NULL: false
//	overrides  jsonb, json or text     NULL: none
//	labels     jsonb, json or text     NULL: none
//	limits     jsonb, json or text     NULL: those of the tier in the tiers file
//
// Without a row the key is unknown. More than one row, or a value that [tier.NewSubject]
// refuses, is a bad record. With a column of another name or type each lookup is an
// error: a misspelt "override" must not lift a limit unnoticed. The default query is for
// the tables of deploy/postgres/schema.sql.
//
// # Connections
//
// [New] does not wait for connections. They are made in the background, at first and
// after an outage, with the present password and certificates. An attempt takes at most
// five seconds for each host. Each connection prepares the queries before its first
// question.
//
// A connection is not tested before it is used. A question on a dead connection drops all connections
// and is sent again at once. So a restart of the server causes errors only while the server is
// unavailable. [Source.Watch] drops all connections too when its connection ends.
//
// The server ends a query that takes longer than nine tenths of [Options.Timeout]
// (statement_timeout), and the connection stays usable. A caller whose context ends
// before that gives its connection up and does not wait for the server.
//
// # Changes
//
// [Source.Watch] listens on one more connection. [tier.ReadChange] reads the payload of a
// notification. An empty or invalid payload stands for all records. After ten seconds
// without a notification the source pings the server, which has five seconds to answer.
// A standby cannot be listened to, and neither can a pooler that shares sessions between
// clients.
//
// # Errors
//
// Errors name the setting and say what to do. They contain neither the URL nor the
// password, and no values of rows.
package pgsource
