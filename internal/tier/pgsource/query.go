package pgsource

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/slidegate/slidegate/internal/tier"
)

// A question is a query with its parameter, and the setting that it is from.
type question struct{ setting, sql, parameter string }

func (s *Source) byDigest(digest string) question {
	return question{"tiers.postgres.query", s.o.Query, digest}
}

// byID has no query if nobody is known by id.
func (s *Source) byID(id string) question {
	return question{"tiers.postgres.query_by_id", s.o.QueryByID, id}
}

// hasParameter is what a query without its parameter does not match.
var hasParameter = regexp.MustCompile(`\$0*1(\D|$)`)

// errParameters is wrapped by errors about a query, whoever is asked for.
var errParameters = errors.New("wrong parameters")

// prepare has the server read a query, once for each connection, and looks at what
// it takes $1 for.
func prepare(ctx context.Context, conn *pgx.Conn, q question) error {
	prepared := conn.PgConn().CustomData()
	if prepared[q.setting] != nil {
		return nil
	}
	name := "" // what a pooler in between may forget at once
	if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		name = q.sql // by which the library finds it
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

// forget has the query read again the next time.
func forget(ctx context.Context, conn *pgx.Conn, q question) {
	delete(conn.PgConn().CustomData(), q.setting)
	_ = conn.Deallocate(ctx, q.sql) // then the connection is closed
}

// checkParameters wants one that is a text. A digest in the place of a bytea would
// be the bytes of its digits, which nobody has; other types do not take one.
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

// query asks on one connection.
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
		// A query that is wrong for everybody is so for those whom nobody knows.
		_, err = readColumns(rows.FieldDescriptions())
	}
	if err != nil {
		return nil, err
	}
	return subject, nil
}
