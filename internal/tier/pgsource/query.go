package pgsource

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/slidegate/slidegate/internal/tier"
)

// A question is a query with its parameter and the setting that has the query.
type question struct{ setting, sql, parameter string }

func (s *Source) byDigest(digest string) question {
	return question{"tiers.postgres.query", s.o.Query, digest}
}

// byID returns a question without sql if no subject is known by id.
func (s *Source) byID(id string) question {
	return question{"tiers.postgres.query_by_id", s.o.QueryByID, id}
}

// errParameters is wrapped by errors about the parameters of a query.
var errParameters = errors.New("wrong parameters")

// prepare prepares a query, once for each connection, and checks the type of $1.
func prepare(ctx context.Context, conn *pgx.Conn, q question) error {
	prepared := conn.PgConn().CustomData()
	if prepared[q.setting] != nil {
		return nil
	}
	name := "" // a pooler may forget an unnamed statement at once
	if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		name = q.sql // the library finds the statement by its text
	}
	d, err := conn.Prepare(ctx, name, q.sql)
	if err != nil {
		return err
	}
	if err := checkParameters(d.ParamOIDs); err != nil {
		forget(ctx, conn, q)
		return err
	}
	prepared[q.setting] = true
	return nil
}

// forget makes the next question prepare the query again.
func forget(ctx context.Context, conn *pgx.Conn, q question) {
	delete(conn.PgConn().CustomData(), q.setting)
	_ = conn.Deallocate(ctx, q.sql) // if it fails, the connection is closed
}

// checkParameters wants one parameter that is a text. A bytea would get the digits of the
// digest as bytes and match no key. Other types refuse a digest.
func checkParameters(types []uint32) error {
	switch {
	case len(types) != 1:
		return fmt.Errorf("%w: it has %d, want $1 alone", errParameters, len(types))
	case types[0] == pgtype.ByteaOID:
		return fmt.Errorf("%w: $1 is of type bytea, want text: write decode($1, 'hex')", errParameters)
	case !allows(parameters, types[0]):
		name := typeName(types[0])
		return fmt.Errorf("%w: $1 is of type %s, want text: write $1::text, or $1::text::%s", errParameters, name, name)
	}
	return nil
}

// query runs a question on one connection. The subject is nil if the key is unknown.
func (s *Source) query(ctx context.Context, conn *pgx.Conn, q question) (subject *tier.Subject, err error) {
	if err := prepare(ctx, conn, q); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, q.sql, pgx.QueryResultFormats{pgx.TextFormatCode}, q.parameter)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var c columns
	n := 0
	for ; rows.Next(); n++ {
		if n > 0 {
			return nil, fmt.Errorf("%w: more than one row is returned for one parameter", tier.ErrBadRecord)
		}
		if c, err = readColumns(rows.FieldDescriptions()); err != nil {
			return nil, err
		}
		if subject, err = c.read(rows.RawValues(), s.o.Overrides); err != nil {
			return nil, err
		}
	}
	if err = rows.Err(); err == nil && n == 0 {
		// A wrong query is an error for unknown keys too.
		_, err = readColumns(rows.FieldDescriptions())
	}
	if err != nil {
		return nil, err
	}
	return subject, nil
}
