package pgsource

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// errColumns is wrapped by errors about the columns of a query.
var errColumns = errors.New("wrong columns")

// columns are the positions of the columns that a query may return, in any order. Only the
// queries for many keys return key.
type columns struct{ subject, tier, disabled, overrides, labels, limits, key int }

// absent is the position of a column that a query does not return.
const absent = -1

// firstCustom is the first OID of types that are not built into PostgreSQL: enumerations,
// and types of extensions such as citext. All have a text form.
const firstCustom = 16384

// The types that a column or the parameter may have. PostgreSQL reports a domain as its
// base type.
var (
	texts    = []uint32{pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.NameOID, pgtype.UnknownOID}
	ids      = append([]uint32{pgtype.UUIDOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID}, texts...)
	booleans = []uint32{pgtype.BoolOID}
	// The type name is missing, because it would cut the digest off.
	parameters = []uint32{pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.UnknownOID}
	objects    = append([]uint32{pgtype.JSONOID, pgtype.JSONBOID}, texts...)
)

// readColumns finds the columns. Its errors wrap errColumns.
func readColumns(fields []pgconn.FieldDescription, many bool) (c columns, err error) {
	c = columns{absent, absent, absent, absent, absent, absent, absent}
	for i, f := range fields {
		var column *int
		var allowed []uint32
		var want string
		switch {
		case f.Name == "key" && many:
			column, allowed, want = &c.key, texts, "text"
		case f.Name == "subject":
			column, allowed, want = &c.subject, ids, "text, uuid or integer"
		case f.Name == "tier":
			column, allowed, want = &c.tier, texts, "text"
		case f.Name == "disabled":
			column, allowed, want = &c.disabled, booleans, "boolean"
		case f.Name == "overrides":
			column, allowed, want = &c.overrides, objects, "jsonb, json or text"
		case f.Name == "labels":
			column, allowed, want = &c.labels, objects, "jsonb, json or text"
		case f.Name == "limits":
			column, allowed, want = &c.limits, objects, "jsonb, json or text"
		default:
			return c, fmt.Errorf("%w: number %d is %q: want subject, tier, disabled, overrides, labels and limits; name it with AS", errColumns, i+1, f.Name)
		}
		if *column != absent {
			return c, fmt.Errorf("%w: two are %q", errColumns, f.Name)
		}
		*column = i
		if !allows(allowed, f.DataTypeOID) {
			return c, fmt.Errorf("%w: %q is of type %s: want %s", errColumns, f.Name, typeName(f.DataTypeOID), want)
		}
	}
	if c.subject == absent {
		return c, fmt.Errorf(`%w: none is "subject"`, errColumns)
	}
	return c, nil
}

func allows(types []uint32, oid uint32) bool {
	for _, t := range types {
		if t == oid || oid >= firstCustom && t == pgtype.TextOID {
			return true
		}
	}
	return false
}

// typeNames has the types that a query is likely to return or want by mistake.
var typeNames = map[uint32]string{
	pgtype.BoolOID: "bool", pgtype.ByteaOID: "bytea", pgtype.NameOID: "name", pgtype.UnknownOID: "unknown",
	pgtype.Int2OID: "int2", pgtype.Int4OID: "int4", pgtype.Int8OID: "int8", pgtype.OIDOID: "oid",
	pgtype.Float4OID: "float4", pgtype.Float8OID: "float8", pgtype.NumericOID: "numeric",
	pgtype.TextOID: "text", pgtype.VarcharOID: "varchar", pgtype.BPCharOID: "bpchar", pgtype.QCharOID: "char",
	pgtype.JSONOID: "json", pgtype.JSONBOID: "jsonb", pgtype.XMLOID: "xml", pgtype.UUIDOID: "uuid",
	pgtype.TextArrayOID: "_text", pgtype.VarcharArrayOID: "_varchar", pgtype.Int4ArrayOID: "_int4", pgtype.UUIDArrayOID: "_uuid",
	pgtype.DateOID: "date", pgtype.TimestampOID: "timestamp", pgtype.TimestamptzOID: "timestamptz", pgtype.IntervalOID: "interval",
	pgtype.InetOID: "inet", pgtype.BitOID: "bit", pgtype.VarbitOID: "varbit", pgtype.RecordOID: "record",
}

func typeName(oid uint32) string {
	if name, ok := typeNames[oid]; ok {
		return name
	}
	return fmt.Sprintf("OID %d", oid)
}

// read makes a subject from a row, and returns for which key. The values are in
// PostgreSQL's text format, and nil for NULL. It keeps nothing of row.
func (c columns) read(row [][]byte, overrides func([]byte) (map[string]tier.Override, error)) (key string, s *tier.Subject, err error) {
	value := func(i int) []byte {
		if i < 0 || i >= len(row) {
			return nil
		}
		return row[i]
	}
	s, err = tier.NewSubject(tier.Parts{
		ID:        string(value(c.subject)),
		Tier:      string(value(c.tier)),
		Disabled:  string(value(c.disabled)) == "t",
		Overrides: value(c.overrides),
		Labels:    value(c.labels),
		Limits:    value(c.limits),
	}, overrides)
	return string(value(c.key)), s, err
}
