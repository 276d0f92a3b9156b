package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// TestUsageReports has the requests that pass until reported usage denies the next, for each
// store. The numbers of the drop-in mode are those of envoyproxy/ratelimit.
func TestUsageReports(t *testing.T) {
	for store, on := range map[string]func(*testing.T, *settings.Settings){
		"memory": func(*testing.T, *settings.Settings) {},
		"redis":  func(t *testing.T, s *settings.Settings) { onRedis(t, s, servers.Redis(t)) },
		"cluster": func(t *testing.T, s *settings.Settings) {
			s.Store.Type = settings.StoreRedis
			s.Store.Redis.URL = redisURL(t, "redis-cluster://"+strings.Join(servers.StartCluster(t).Addrs(), ","))
		},
	} {
		t.Run(store, func(t *testing.T) {
			onEachTransport(t, func(t *testing.T, s settings.Settings) {
				on(t, &s)
				s.Store.Timeout = 10 * time.Second // no report may be lost on a busy machine
				for _, reference := range []bool{true, false} {
					s.Reference.UsageReports = reference
					t.Run(fmt.Sprintf("reference=%t", reference), func(t *testing.T) { testUsageReports(t, s) })
				}
			})
		})
	}
}

func testUsageReports(t *testing.T, s settings.Settings) {
	domain := strings.NewReplacer("/", "-", "=", "-").Replace(t.Name()) // one Redis serves several tests
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	rules := "domain: " + domain + `
descriptors:
  - {key: l21, rate_limit: {unit: hour, requests_per_unit: 21}}
  - {key: l2, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: l10, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: free, rate_limit: {unit: hour, requests_per_unit: 10, charge: allowed}}
`
	if err := os.WriteFile(s.Rules.Path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, s)
	// A descriptor is written as "l21=x 10".
	passes := func(ds ...string) bool {
		t.Helper()
		in := make([]string, len(ds))
		for i, d := range ds {
			entry, cost, _ := strings.Cut(d, " ")
			key, value, _ := strings.Cut(entry, "=")
			in[i] = fmt.Sprintf(`{"entries": [{"key": %q, "value": %q}], "hits_addend": %s}`, key, value, cost)
		}
		out, err := r.ask(fmt.Sprintf(`{"domain": %q, "descriptors": [%s]}`, domain, strings.Join(in, ",")))
		if err != nil {
			t.Fatal(err)
		}
		return out.GetOverallCode() == rlsv3.RateLimitResponse_OK
	}
	for _, tt := range []struct {
		ask, report       string
		reference, native int
	}{
		{"l21=x 0", "l21=x 10", 3, 3},
		{"l2=x 0", "l2=x 1", 3, 2},
		{"l10=x 1", "l10=x 20", 1, 10},
		{"free=x 0", "free=x 20", 6, 6}, // never recorded
	} {
		want := tt.native
		if s.Reference.UsageReports {
			want = tt.reference
		}
		passed := 0
		for passed < want+1 && passes(tt.ask) {
			passed++
			passes(tt.report)
		}
		if tt.report == "free=x 20" {
			want++ // it goes on
		}
		if passed != want {
			t.Errorf("asked %q, reported %q: %d pass, want %d", tt.ask, tt.report, passed, want)
		}
	}
	if !s.Reference.UsageReports {
		return
	}
	// Of the logs of one request, which are on several servers of a cluster, only that of
	// the cost that does not fit is charged.
	for i := range 20 {
		fits, over := fmt.Sprintf("free=f%d", i), fmt.Sprintf("l10=o%d", i)
		if passes(fits+" 10", over+" 11") {
			t.Errorf("%s: a cost of 11 under a limit of 10 passes", over)
		}
		if passes(over + " 1") {
			t.Errorf("%s: the cost of 11 was not recorded", over)
		}
		if !passes(fits + " 10") {
			t.Errorf("%s: the cost that fits was charged although another one denied the request", fits)
		}
	}
}
