package pgsource

import (
	"testing"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/tiertest"
	"github.com/slidegate/slidegate/test/servers"
)

// TestContract runs the suite against the schema without its checks, which would refuse
// the malformed records. It is not parallel, because the suite would take goroutines of
// other tests for leaks.
func TestContract(t *testing.T) {
	s := start(t, servers.PostgresOptions{})
	exec(t, s, `ALTER TABLE slidegate.subjects DROP CONSTRAINT subjects_id_check, DROP CONSTRAINT subjects_overrides_check, DROP CONSTRAINT subjects_labels_check`)
	s.Kill()
	tiertest.Run(t, func(t *testing.T) tiertest.Fixture {
		s.Start()
		t.Cleanup(s.Kill) // ends the processes of the server too
		exec(t, s, `TRUNCATE slidegate.subjects CASCADE`)
		source, err := New(Options{URL: s.URL(), Channel: channel, Overrides: tiertest.ReadOverrides})
		if err != nil {
			t.Fatal(err)
		}
		return tiertest.Fixture{
			Source: source,
			Put: func(t *testing.T, subject tier.Subject, digests ...string) {
				t.Helper()
				exec(t, s, `WITH put AS (
						INSERT INTO slidegate.subjects (id, tier, disabled, overrides, labels) VALUES ($1, $2, $3, $4, $5)
						ON CONFLICT (id) DO UPDATE SET tier = excluded.tier, disabled = excluded.disabled, overrides = excluded.overrides, labels = excluded.labels)
					INSERT INTO slidegate.keys (digest, subject) SELECT unnest($6::text[]), $1
					ON CONFLICT (digest) DO UPDATE SET subject = excluded.subject, revoked_at = NULL`,
					subject.ID, subject.Tier, subject.Disabled, tiertest.Overrides(subject), tiertest.Labels(subject), digests)
			},
			Remove: func(t *testing.T, digest string) {
				t.Helper()
				exec(t, s, `UPDATE slidegate.keys SET revoked_at = now() WHERE digest = $1`, digest)
			},
			RemoveSubject: func(t *testing.T, id string) {
				t.Helper()
				exec(t, s, `DELETE FROM slidegate.subjects WHERE id = $1`, id)
			},
			Corrupt: func(t *testing.T, digest string) {
				t.Helper()
				exec(t, s, `UPDATE slidegate.subjects SET overrides = '[]' WHERE id = (SELECT subject FROM slidegate.keys WHERE digest = $1)`, digest)
			},
			Stop:   func(*testing.T) { s.Kill() },
			Start:  func(*testing.T) { s.Start() },
			Freeze: func(*testing.T) { s.Pause() },
			Thaw:   func(*testing.T) { s.Resume() },
		}
	})
}
