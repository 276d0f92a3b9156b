package describe

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// hostile are parts of values that decide something.
var hostile = []string{
	"/", "/search", "/actions", "?", "&", "=", "%", "%2", "%00", "%zz", ";", "..", "//", "\xff", "\x00", "é", "-", "0", "1", "1e9", "NaN", "0x", "_", "10.0.0.1", "::1",
	"::ffff:1.2.3.4", "fe80::1%eth0", "true", "GET", "api.example", "a.wild.example", ":443", "[::1]", "Bearer demo", "demo", "actions", "costs", "via_upstream", "direct_response",
	"UF,URX", ",", `{"requests_per_unit":1,"unit":"HOUR"}`, `{"requests_per_unit":-1,"unit":[]}`, strings.Repeat("long", 300),
}

// describers are all that a record goes through.
func describers(t testing.TB) (all []*Describer) {
	t.Helper()
	for _, file := range []string{"../../../../test/replay/testdata/envoy-descriptors.yaml", "../../../../envoy/ratelimit.yaml", "../../../../envoy/authorization.yaml", "../../../../envoy/in-flight.yaml"} {
		c, err := envoyfile.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(c, Options{Secrets: secrets()})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	m, err := envoyfile.ReadMap("../../../../docs/examples/replay-map.yaml", false)
	if err != nil {
		t.Fatal(err)
	}
	return append(all, NewMap(m, Options{Secrets: secrets()}))
}

// check describes a record twice, and looks at the questions.
func check(t *testing.T, d *Describer, values []accesslog.Value) {
	t.Helper()
	r := &accesslog.Record{Values: values}
	qs := d.Describe(nil, r)
	first := write(qs)
	for _, q := range qs {
		if q.Domain == "" || len(q.Descriptors) == 0 {
			t.Errorf("got an empty question: %+v", q)
		}
		for _, one := range q.Descriptors {
			for _, e := range one.Entries {
				if e.Key == "" || secrets().Is(e.Key) && (len(e.Value) != 64 || strings.Trim(e.Value, "0123456789abcdef") != "") {
					t.Errorf("got %s=%q", e.Key, e.Value)
				}
			}
		}
	}
	// The texts must not change with the record.
	for i := range values {
		for j := range values[i].Text {
			values[i].Text[j] ^= 0x20
		}
	}
	if again := write(qs); again != first {
		t.Errorf("the questions change with the record: %q, then %q", first, again)
	}
	for i := range values {
		for j := range values[i].Text {
			values[i].Text[j] ^= 0x20
		}
	}
	if again := write(d.Describe(nil, r)); again != first {
		t.Errorf("the same record gives %q, then %q", first, again)
	}
}

// TestAnyRecord describes 1,000 records of values that decide something.
func TestAnyRecord(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	all := describers(t)
	for i := range 1000 {
		d := all[i%len(all)]
		values := make([]accesslog.Value, len(d.Wants()))
		for j := range values {
			if values[j].State = accesslog.State(rnd.IntN(3)); values[j].State != accesslog.Present && rnd.IntN(2) > 0 {
				continue
			}
			values[j].State = accesslog.Present
			for range rnd.IntN(4) {
				values[j].Text = append(values[j].Text, hostile[rnd.IntN(len(hostile))]...)
			}
		}
		check(t, d, values)
	}
	for _, d := range all {
		for _, u := range d.Unreported() {
			if u.Requests == 0 || u.Requests > 500 || u.Location == "" || u.Effect == "" {
				t.Errorf("got %+v", u)
			}
		}
	}
}
