package daemon

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// TestAQuotaCheckChangesNothing asks every rule with a cost of 0, and proves that its requests get
// the same answers after that as before: a denied cost is free, and no update is guessed.
func TestAQuotaCheckChangesNothing(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1000, policy: calendar}}
  - {key: fixed, rate_limit: {unit: hour, requests_per_unit: 3, policy: fixed}}
  - {key: counter, rate_limit: {unit: hour, requests_per_unit: 3, policy: sliding_counter}}
  - {key: bucket, rate_limit: {policy: token_bucket, rate: 3/1h, burst: 3}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: q, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: update, rate_limit: {unit: hour, requests_per_unit: 3, charge: always}}
`
	// A step is a request, "entry=cost" for each descriptor, with the answer; a refund has a cost below zero.
	type step struct{ ask, want string }
	denials := func(entry string) []step {
		return []step{
			{entry + "=1000", "OVER 3"},
			{entry + "=1", "OK 2"},
			{entry + "=1", "OK 1"},
			{entry + "=1", "OK 0"},
			{entry + "=1", "OVER 0"},
			{entry + "=2", "OVER 0"},
			{entry + "=1", "OVER 0"},
			{entry + "=-3", "OK 3"},
		}
	}
	rows := map[string][]step{
		"a denied cost is free":        denials("a"),
		"in a fixed window":            denials("fixed"),
		"of a counter":                 denials("counter"),
		"of a bucket":                  append(denials("bucket"), step{fmt.Sprint("bucket=", uint64(math.MaxUint64)), "OVER 3"}, step{"bucket=3", "OK 0"}),
		"a large cost of a month":      {{"month=5000", "OVER 1000"}, {"month=1", "OK 999"}},
		"a denial charges no limit":    {{"a=3", "OK 0"}, {"a=1 b=1", "OVER 0 3"}, {"a=1 b=3", "OVER 0 3"}, {"b=3", "OK 0"}},
		"a limit only observed":        {{"shadow=3", "OK 0"}, {"shadow=1", "OK 0"}, {"shadow=5", "OK 0"}, {"shadow=-3", "OK 3"}},
		"alternatives in quota mode":   {{"q=1 r=1", "OK 1 2"}, {"q=1 r=1", "OK 0 1"}, {"q=1 r=1", "OK 0 0"}, {"q=1 r=1", "OVER 0 0"}, {"q=-2 r=-3", "OK 2 3"}},
		"charge: always is as it says": {{"update=2", "OK 1"}, {"update=2", "OVER 0"}, {"update=-1", "OK 0"}, {"update=-1", "OK 1"}},
	}
	redis := servers.StartRedis(t)
	for _, store := range []string{settings.StoreMemory, settings.StoreRedis} {
		t.Run(store, func(t *testing.T) {
			s := testSettings(t)
			if store == settings.StoreRedis {
				onRedis(t, &s, redis.Addr())
			}
			s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
			write(t, s.Rules.Path, rules)
			s.Tiers.Source, s.Store.Timeout = settings.TiersNone, 5*time.Second
			r := start(t, s)
			request := func(text, value string) string {
				var descriptors []string
				for _, d := range strings.Fields(text) {
					key, cost, _ := strings.Cut(d, "=")
					refund := strings.HasPrefix(cost, "-")
					descriptors = append(descriptors, fmt.Sprintf(`{"entries": [{"key": %q, "value": %q}], "hitsAddend": %q, "isNegativeHits": %t}`, key, value, strings.TrimPrefix(cost, "-"), refund))
				}
				return `{"domain": "edge", "descriptors": [` + strings.Join(descriptors, ", ") + `]}`
			}
			ask := func(name string, steps []step, value string) {
				t.Helper()
				for i, s := range steps {
					out, err := r.ask(request(s.ask, value))
					if err != nil {
						t.Fatal(name, err)
					}
					got := strings.TrimSuffix(out.GetOverallCode().String(), "_LIMIT")
					for _, status := range out.GetStatuses() {
						got += fmt.Sprint(" ", status.GetLimitRemaining())
					}
					if diff := cmp.Diff(s.want, got); diff != "" {
						t.Errorf("%s, %s, step %d, %s (-want +got):\n%s", name, value, i, s.ask, diff)
					}
				}
			}
			calls := func() int {
				_, page := get(t, "http://"+r.Admin+"/metrics")
				_, text, _ := strings.Cut(page, "\nslidegate_store_batch_calls_sum ")
				text, _, _ = strings.Cut(text, "\n")
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			names := slices.Sorted(maps.Keys(rows))
			for _, name := range names {
				ask(name, rows[name], name+" before")
			}
			for _, key := range []string{"a", "b", "month", "fixed", "counter", "bucket", "shadow", "q", "r", "update"} {
				check := request(key+"=0", "another")
				if _, err := r.ask(check); err != nil {
					t.Fatal(err)
				}
				if code, _, body := exchange(t, http.MethodPost, "http://"+r.HTTP+"/json", check); code != http.StatusOK {
					t.Fatalf("/json: %d %s", code, body)
				}
			}
			for _, name := range names {
				ask(name, rows[name], name+" after")
			}
			if store != settings.StoreRedis {
				return
			}
			ask("denials from memory", []step{{"a=3", "OK 0"}, {"a=1", "OVER 0"}}, "busy")
			before := calls()
			for range 50 {
				ask("denials from memory", []step{{"a=1", "OVER 0"}}, "busy")
			}
			if n := calls() - before; n > 5 { // the first denials may not be settled yet
				t.Errorf("50 repeated denials made %d calls of Redis", n)
			}
		})
	}
}
