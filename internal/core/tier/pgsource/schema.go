package pgsource

// The queries for the tables of deploy/postgres/schema.sql.
const (
	queryByDigest = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels
FROM slidegate.keys k JOIN slidegate.subjects s ON s.id = k.subject
WHERE k.digest = $1 AND k.revoked_at IS NULL`
	queryByID = `SELECT id AS subject, tier, disabled, overrides, labels FROM slidegate.subjects WHERE id = $1`
)

// The same for all keys in the array $1. The column key says which of them a row answers.
const (
	queryByDigests = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels, asked.key
FROM unnest($1::text[]) AS asked (key) JOIN slidegate.keys k ON k.digest = asked.key JOIN slidegate.subjects s ON s.id = k.subject
WHERE k.revoked_at IS NULL`
	queryByIDs = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels, asked.key
FROM unnest($1::text[]) AS asked (key) JOIN slidegate.subjects s ON s.id = asked.key`
)
