package servers

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/test/process"
)

// TiersFile is the tiers file for StartTiers. The limits of four and five are in PostgreSQL, and none has
// no limit.
const TiersFile = `default: two
tiers:
  two: {limit: {unit: hour, requests_per_unit: 2}}
  three: {limit: {unit: hour, requests_per_unit: 3}}
  four:
  five:
  none:
`

// StartTiers starts an open PostgreSQL server with our tables and the customers c0, c1 and so on. Their
// tiers two, three, four and five carry so many requests an hour. Further customers are probe in two,
// plain in none, and odd in an unknown tier. Each has one key, such as key-c0.
func StartTiers(t process.TB, customers int) *PostgresServer {
	t.Helper()
	pg := StartPostgres(t, PostgresOptions{Open: true})
	for _, sql := range []string{
		postgres.Schema,
		"GRANT USAGE ON SCHEMA slidegate TO slidegate",
		"GRANT SELECT ON slidegate.subjects, slidegate.keys, slidegate.tiers TO slidegate",
		fmt.Sprintf(`INSERT INTO slidegate.subjects (id, tier)
			SELECT 'c' || i, (ARRAY['two', 'three', 'four', 'five'])[i %% 4 + 1] FROM generate_series(0, %d) AS i`, customers-1),
		`INSERT INTO slidegate.subjects (id, tier) VALUES ('probe', 'two'), ('plain', 'none'), ('odd', 'unknown')`,
		`INSERT INTO slidegate.keys (digest, subject) SELECT encode(sha256(('key-' || id)::bytea), 'hex'), id FROM slidegate.subjects`,
		`INSERT INTO slidegate.tiers VALUES ('four', '{"limit": {"unit": "hour", "requests_per_unit": 4}}'),
			('five', '{"limit": {"unit": "hour", "requests_per_unit": 5}}')`,
	} {
		if err := pg.Exec(sql); err != nil {
			t.Fatalf("servers: %.40s: %v", sql, err)
		}
	}
	return pg
}

// SpendTiers sends one request more than its tier admits for each customer of StartTiers. The last one
// must be denied, and the others must pass. It returns how many passed, by tier.
func SpendTiers(t testing.TB, customers int, get func(client *http.Client, key string) (status int, err error)) (passed [4]int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range passed { // each worker has one tier
		wg.Go(func() {
			client := &http.Client{Transport: new(http.Transport), Timeout: process.Timeout}
			defer client.CloseIdleConnections()
			for i := w; i < customers; i += len(passed) {
				for asked := range w + 3 {
					want := http.StatusOK
					if asked == w+2 {
						want = http.StatusTooManyRequests
					}
					got, err := get(client, fmt.Sprint("key-c", i))
					if err != nil || got != want {
						t.Errorf("customer %d, request %d: got %d, %v; want %d", i, asked+1, got, err, want)
						return
					}
					if got == http.StatusOK {
						passed[w]++
					}
				}
			}
		})
	}
	wg.Wait()
	return passed
}
