package pgsource

// The queries for the tables of deploy/postgres/schema.sql.
const (
	queryByDigest = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels, t.limits
FROM slidegate.keys k JOIN slidegate.subjects s ON s.id = k.subject LEFT JOIN slidegate.tiers t ON t.name = s.tier
WHERE k.digest = $1 AND k.revoked_at IS NULL`
	queryByID = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels, t.limits
FROM slidegate.subjects s LEFT JOIN slidegate.tiers t ON t.name = s.tier WHERE s.id = $1`
)

// The same for all keys in the array $1. The column key says which of them a row answers.
const (
	queryByDigests = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels, t.limits, asked.key
FROM unnest($1::text[]) AS asked (key) JOIN slidegate.keys k ON k.digest = asked.key JOIN slidegate.subjects s ON s.id = k.subject LEFT JOIN slidegate.tiers t ON t.name = s.tier
WHERE k.revoked_at IS NULL`
	queryByIDs = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels, t.limits, asked.key
FROM unnest($1::text[]) AS asked (key) JOIN slidegate.subjects s ON s.id = asked.key LEFT JOIN slidegate.tiers t ON t.name = s.tier`
)
