// Package postgres has the documented schema of tiers.source postgres, for tests. The service does
// not import it.
package postgres

import _ "embed" // the schema

// Schema is SQL for the operator to apply. It may be applied again.
//
//go:embed schema.sql
var Schema string
