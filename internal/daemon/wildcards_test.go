package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// wildcardRules are YAML, and what a server sends as JSON. %s is share_threshold, which only files
// have.
const wildcardRules = `{"name": "d", "domain": "d", "descriptors": [
	{"key": "path", "value": "/api/exact/action", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 3}},
	{"key": "path", "value": "/api/*/action", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 2}},
	{"key": "path", "value": "/api/*", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 4}},
	{"key": "path", "value": "*.php", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}},
	{"key": "path", "value": "/a*b*c", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 1}},
	{"key": "path", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 5}},
	{"key": "host", "value": "*.example.com", "descriptors": [
		{"key": "path", "value": "/v*/users", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 1}}
	]},
	{"key": "remote_address", "value": "2001:DB8:0::1", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}},
	{"key": "remote_address", "value": "2001:DB8:F*", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 1}},
	{"key": "masked_remote_address", "value": "2001:DB8::/32", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}},
	{"key": "file", "value": "v*.tar", %s "rate_limit": {"unit": "MINUTE", "requests_per_unit": 2}}
]}`

// TestWildcards: a * stands anywhere in a value, and an address has any spelling, for rules of files and of a server, with answers of
// rls and with those of envoyproxy/ratelimit. That service has the same meaning since its commit
// 6bcd4d2 of March 2026. The build that other tests compare with is older, so what is wanted here
// comes from the source of that commit.
func TestWildcards(t *testing.T) {
	asked := []struct {
		entries string // key=value,key=value
		allowed int    // of the first requests; -1: all
	}{
		{"path=/api/123/action", 2},
		{"path=/api//action", 2}, // another value has another log
		{"path=/api/1/2/action", 2},
		{"path=/api/exact/action", 3}, // the exact value comes first
		{"path=/api/action", 4},       // too short for the first wildcard, so the next takes it
		{"path=/api/x/action/", 4},
		{"path=/index.php", 0},
		{"path=/api/x.php", 4}, // the first that fits, in the order of the rules
		{"path=/abc", 1},
		{"path=/a-b-b-c", 1},
		{"path=/acb", 5}, // the key alone comes last
		{"host=a.example.com,path=/v1/users", 1},
		{"host=.example.com,path=/v/users", 1},
		{"host=example.com,path=/v1/users", -1},
		{"host=a.example.com,path=/v1/user", -1},
		{"file=v1.tar", 2},
		{"remote_address=2001:db8::1", 0},
		{"remote_address=2001:0DB8::0001", 0},
		{"remote_address=2001:db8::2", -1},
		{"remote_address=2001:db8:f::2", 1},
		{"remote_address=2001:DB8:F::2", 0}, // the same
		{"masked_remote_address=2001:db8::/32", 0},
	}
	for _, reference := range []bool{false, true} {
		for _, source := range []string{"files", "xds"} {
			t.Run(fmt.Sprintf("reference=%t/%s", reference, source), func(t *testing.T) {
				var s settings.Settings
				if source == "xds" {
					rules := new(ratelimitv3.RateLimitConfig)
					if err := protojson.Unmarshal(fmt.Appendf(nil, wildcardRules, ""), rules); err != nil {
						t.Fatal(err)
					}
					m := servers.StartXDS(t)
					m.Set(node, rules)
					s = fromXDS(t, m.Address())
				} else {
					s = testSettings(t)
					s.Tiers.Source = settings.TiersNone
					s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
					text := fmt.Sprintf(wildcardRules, `"share_threshold": true,`)
					write(t, s.Rules.Path, strings.Replace(text, `"name": "d", `, "", 1))
				}
				s.DropIn.Answers = reference
				r := start(t, s)
				for _, a := range asked {
					r.wantAllowed(a.entries, a.allowed)
				}
				shared := 0
				if source == "xds" {
					shared = 2
				}
				r.wantAllowed("file=v2.tar", shared)
			})
		}
	}
}

// wantAllowed asks six times. It wants the first so many to pass, or all of them if allowed is
// negative.
func (r *testRun) wantAllowed(entries string, allowed int) {
	r.t.Helper()
	var parts []string
	for part := range strings.SplitSeq(entries, ",") {
		key, value, _ := strings.Cut(part, "=")
		parts = append(parts, fmt.Sprintf(`{"key": %q, "value": %q}`, key, value))
	}
	for i := range 6 {
		out, err := r.ask(`{"domain": "d", "descriptors": [{"entries": [` + strings.Join(parts, ",") + `]}]}`)
		if err != nil {
			r.t.Fatal(err)
		}
		want := rlsv3.RateLimitResponse_OVER_LIMIT
		if allowed < 0 || i < allowed {
			want = rlsv3.RateLimitResponse_OK
		}
		if got := out.GetOverallCode(); got != want {
			r.t.Errorf("%s, request %d: %s, want %s", entries, i+1, got, want)
		}
	}
}

// TestLongValuesAndManyWildcards: a client gets past no limit with a value that is too long for the
// wildcards of the rules. The call leaves the goroutine that reads the connection, and others on it are
// decided as before.
func TestLongValuesAndManyWildcards(t *testing.T) { onEachTransport(t, testLongValuesAndManyWildcards) }

func testLongValuesAndManyWildcards(t *testing.T, s settings.Settings) {
	var rules strings.Builder
	rules.WriteString("domain: d\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&rules, "- {key: path, value: \"*x%d-*y*\", rate_limit: {unit: hour, requests_per_unit: 1000}}\n", i)
	}
	rules.WriteString("- {key: path, value: \"*/admin/*\", rate_limit: {unit: hour, requests_per_unit: 0}}\n")
	s.Tiers.Source = settings.TiersNone
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, s.Rules.Path, rules.String())
	r := start(t, s)
	client := rlsv3.NewRateLimitServiceClient(dial(t, r.GRPC[0]))
	long := strings.Repeat("x9", 30_000)
	for path, want := range map[string]rlsv3.RateLimitResponse_Code{
		"/admin/":                     rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long[:1000] + "/admin/": rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long + "/admin/":        rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long:                    rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long[:1000]:             rlsv3.RateLimitResponse_OK,
		"/other":                      rlsv3.RateLimitResponse_OK,
	} {
		out, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{{
			Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "path", Value: path}},
		}}})
		if err != nil || out.GetOverallCode() != want {
			t.Errorf("%.20q of %d bytes: %v, %v, want %v", path, len(path), out.GetOverallCode(), err, want)
		}
	}
	r.waitLog("a request exceeds a bound, so on_store_error has decided it; a further line for this domain comes after a minute")
}
