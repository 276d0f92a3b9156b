package pgsource

import _ "embed" // the schema

//go:embed schema.sql
var schema string

// Schema returns the documented schema as SQL for the operator to apply. It may be
// applied again.
func Schema() string { return schema }

// The queries for the tables of Schema.
const (
	queryByDigest = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels
FROM slidegate.keys k JOIN slidegate.subjects s ON s.id = k.subject
WHERE k.digest = $1 AND k.revoked_at IS NULL`
	queryByID = `SELECT id AS subject, tier, disabled, overrides, labels FROM slidegate.subjects WHERE id = $1`
)
