package insight

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzUsage asks for any subject, and continues at any cursor. No answer and no error has the API
// key of a subject.
func FuzzUsage(f *testing.F) {
	f.Add("acme", "", "", "", "", "", 0, 0, "", []byte(nil))
	f.Add("", "192.0.2.0/24", "", "", "per-key", "bm8", 1, 3, "0", []byte{1})
	f.Add("", "", strings.Repeat("a", 64), "", "", "e30", 2, -1, "100000000", []byte(strings.Repeat("\x80", 16)))
	f.Add("", "", "", `edge/route=a\,b,api_key=`+plantedKey, "", "", 1, 0, "ffffffffffffffff", []byte(nil))
	f.Add(plantedKey, "", "", "", "", "", 0, 0, "", []byte(nil))
	f.Add("%73k_planted_acme_0123456789", "", "", "", "", "", 3, 0, "", []byte(nil))
	c := newCounted(f, nil)
	f.Fuzz(func(t *testing.T, subject, address, digest, descriptor, rule, cursor string, stage, at int, list string, after []byte) {
		q := Query{Subject: subject, Address: address, Digest: digest, Descriptor: descriptor, Rule: rule, Cursor: cursor}
		s, err := c.subject(t.Context(), q)
		if err == nil && len(cursor)%2 == 0 {
			// A cursor of the right form gets further than any text.
			w := walk{Identity: s.identity(), Stage: stage, At: at, List: list, After: after, Seen: []byte(cursor)}
			q.Cursor = w.cursor()
		}
		u, err := c.Usage(t.Context(), q)
		var invalid *InvalidError
		switch {
		case err != nil && !errors.As(err, &invalid):
			t.Errorf("%+v: %v, want an InvalidError", q, err)
		case err != nil && strings.Contains(err.Error(), plantedKey):
			t.Errorf("%+v: the error has the key: %v", q, err)
		case err != nil:
			return
		}
		data, err := json.Marshal(u)
		if err != nil || strings.Contains(string(data), plantedKey) {
			t.Errorf("%+v: %s, %v", q, data, err)
		}
		if len(u.Limits) > 2*pageLimits {
			t.Errorf("%+v: %d limits on a page", q, len(u.Limits))
		}
	})
}
