package pgsource

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// errColumns is wrapped by errors about the columns of a query.
var errColumns = errors.New("wrong columns")

// columns are the positions of the columns that a query returns, in any order, by their names.
type columns map[string]int

// firstCustom is the first OID of types that are not built into PostgreSQL: enumerations,
// and types of extensions such as citext. All have a text form.
const firstCustom = 16384

// The types that a column or the parameter may have. PostgreSQL reports a domain as its
// base type.
var (
	texts = []uint32{pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.NameOID, pgtype.UnknownOID}
	ids   = append([]uint32{pgtype.UUIDOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID}, texts...)
	// The type name is missing, because it would cut the digest off.
	parameters = []uint32{pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.UnknownOID}
	objects    = append([]uint32{pgtype.JSONOID, pgtype.JSONBOID}, texts...)
)

// allowed has the columns that a query may return, with their types. Only the queries for many keys
// return key.
var allowed = map[string]struct {
	types []uint32
	want  string
}{
	"key":       {texts, "text"},
	"subject":   {ids, "text, uuid or integer"},
	"tier":      {texts, "text"},
	"disabled":  {[]uint32{pgtype.BoolOID}, "boolean"},
	"overrides": {objects, "jsonb, json or text"},
	"labels":    {objects, "jsonb, json or text"},
	"limits":    {objects, "jsonb, json or text"},
}

// readColumns finds the columns. Its errors wrap errColumns.
func readColumns(fields []pgconn.FieldDescription, many bool) (c columns, err error) {
	c = make(columns, len(fields))
	for i, f := range fields {
		column, known := allowed[f.Name]
		_, twice := c[f.Name]
		switch {
		case !known || f.Name == "key" && !many:
			return c, fmt.Errorf("%w: number %d is %q: want subject, tier, disabled, overrides, labels and limits; name it with AS", errColumns, i+1, f.Name)
		case twice:
			return c, fmt.Errorf("%w: two are %q", errColumns, f.Name)
		case !allows(column.types, f.DataTypeOID):
			return c, fmt.Errorf("%w: %q is of type %s: want %s", errColumns, f.Name, typeName(f.DataTypeOID), column.want)
		}
		c[f.Name] = i
	}
	if _, ok := c["subject"]; !ok {
		return c, fmt.Errorf(`%w: none is "subject"`, errColumns)
	}
	return c, nil
}

func allows(types []uint32, oid uint32) bool {
	return slices.Contains(types, oid) || oid >= firstCustom && slices.Contains(types, pgtype.TextOID)
}

func typeName(oid uint32) string {
	if t, ok := pgtype.NewMap().TypeForOID(oid); ok {
		return t.Name
	}
	return fmt.Sprintf("OID %d", oid)
}

// read makes a subject from a row, and returns for which key. The values are in
// PostgreSQL's text format, and nil for NULL. It keeps nothing of row.
func (c columns) read(row [][]byte, overrides func([]byte) (map[string]tier.Override, error)) (key string, s *tier.Subject, err error) {
	value := func(name string) []byte {
		if i, ok := c[name]; ok && i < len(row) {
			return row[i]
		}
		return nil
	}
	s, err = tier.NewSubject(tier.Parts{
		ID:        string(value("subject")),
		Tier:      string(value("tier")),
		Disabled:  string(value("disabled")) == "t",
		Overrides: value("overrides"),
		Labels:    value("labels"),
		Limits:    value("limits"),
	}, overrides)
	return string(value("key")), s, err
}
