package pgsource

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/tiertest"
)

// FuzzRow reads any row that a server may send.
func FuzzRow(f *testing.F) {
	f.Add("subject", uint32(25), []byte("acme"), "tier", uint32(1043), []byte("pro"))
	f.Add("disabled", uint32(16), []byte("t"), "subject", uint32(20), []byte("7"))
	f.Add("subject", uint32(17), []byte(nil), "subject", uint32(25), []byte(""))
	f.Add("labels", uint32(3802), []byte(`{"a":"b"}`), "subject", uint32(70000), []byte("\xff"))
	f.Fuzz(func(t *testing.T, name1 string, type1 uint32, value1 []byte, name2 string, type2 uint32, value2 []byte) {
		c, err := readColumns([]pgconn.FieldDescription{{Name: name1, DataTypeOID: type1}, {Name: name2, DataTypeOID: type2}}, false)
		if err != nil {
			return
		}
		for _, row := range [][][]byte{{value1, value2}, {value1}, {nil, nil}, nil} {
			_, s, err := c.read(row, tiertest.ReadOverrides)
			if (s == nil) == (err == nil) {
				t.Fatalf("%q: got both or neither: %v, %v", row, s, err)
			}
			if err != nil && !errors.Is(err, tier.ErrBadRecord) {
				t.Errorf("%q: got %v, want a bad record", row, err)
			}
			if err == nil && tier.ValidID(s.ID) != nil {
				t.Errorf("%q: got a subject with id %q", row, s.ID)
			}
		}
	})
}
