package pgsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// A question is a query with its parameter and the setting that has the query. If many is
// set, the parameter is an array.
type question struct {
	setting, sql, parameter string
	many                    bool
}

func (s *Source) byDigest(digest string) question {
	return question{setting: "tiers.postgres.query", sql: s.o.Query, parameter: digest}
}

// byID returns a question without sql if no subject is known by id.
func (s *Source) byID(id string) question {
	return question{setting: "tiers.postgres.query_by_id", sql: s.o.QueryByID, parameter: id}
}

// questions returns every question of the source with an empty parameter.
func (s *Source) questions() (all []question) {
	for _, q := range []question{s.byDigest(""), s.byID("")} {
		if q.sql != "" {
			all = append(all, q)
		}
	}
	if s.Batch() > 1 {
		all = append(all, manyDigests(nil), manyIDs(nil))
	}
	return all
}

func manyDigests(digests []string) question {
	return question{"tiers.postgres.query", queryByDigests, array(digests), true}
}

func manyIDs(ids []string) question {
	return question{"tiers.postgres.query_by_id", queryByIDs, array(ids), true}
}

// array returns texts as an array in PostgreSQL's text format.
func array(texts []string) string {
	b, _ := pgtype.NewMap().Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, texts, nil) // texts have a form
	return string(b)
}

// errParameters is wrapped by errors about the parameters of a query.
var errParameters = errors.New("wrong parameters")

// prepare prepares a query, once for each connection, and checks the type of $1.
func (s *Source) prepare(ctx context.Context, c *connection, q question) (*pgconn.StatementDescription, error) {
	if d := c.prepared[q.sql]; d != nil {
		return d, nil
	}
	d, err := c.Prepare(ctx, s.statement(q), q.sql, nil)
	if err == nil && !q.many {
		err = checkParameters(d.ParamOIDs)
	}
	if err != nil {
		s.forget(ctx, c, q)
		return nil, err
	}
	c.prepared[q.sql] = d
	return d, nil
}

// statement returns the name of the statement that has the query. It depends on the query,
// because clients of a pooler may share a session. It is empty if the URL says so: a pooler
// may forget a statement at once.
func (s *Source) statement(q question) string {
	if !s.named {
		return ""
	}
	sum := sha256.Sum256([]byte(q.sql))
	return "stmt_" + hex.EncodeToString(sum[:24])
}

// forget makes the next question prepare the query again.
func (s *Source) forget(ctx context.Context, c *connection, q question) {
	delete(c.prepared, q.sql)
	_ = c.Deallocate(ctx, s.statement(q)) // if it fails, the connection is closed
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

// answers are the subjects of a question by its keys. A question for one key has only "".
type answers map[string]tier.Result

// query runs a question on one connection. It returns no answer for unknown keys. A wrong
// query is an error for unknown keys too. If many is set, an error about one row is an
// answer.
func (s *Source) query(ctx context.Context, conn *connection, q question) (answers, error) {
	statement, err := s.prepare(ctx, conn, q)
	if err != nil {
		return nil, err
	}
	// Without formats, parameters and results are texts.
	parameters := [][]byte{[]byte(q.parameter)}
	var rows *pgconn.ResultReader
	if s.named {
		rows = conn.ExecStatement(ctx, statement, parameters, nil, nil)
	} else {
		rows = conn.ExecParams(ctx, q.sql, parameters, nil, nil, nil)
	}
	found := make(answers)
	c, err := readColumns(rows.FieldDescriptions(), q.many)
	for err == nil && rows.NextRow() {
		key, subject, bad := c.read(rows.Values(), s.o.Overrides)
		if _, second := found[key]; second {
			bad = fmt.Errorf("%w: more than one row is returned for one parameter", tier.ErrBadRecord)
		}
		if bad != nil && !q.many {
			err = bad
			break
		}
		found[key] = tier.Result{Record: &tier.Record{Subject: subject}, Err: bad}
	}
	if _, refused := rows.Close(); refused != nil && !errors.Is(err, tier.ErrBadRecord) {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}
