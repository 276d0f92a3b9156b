package envoycheck

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestEnvoyGateway reads a dump of an Envoy that Envoy Gateway 1.9.1 configures: a BackendTrafficPolicy
// with a limit for each value of x-user-id and one for each address, and no rateLimit.timeout.
func TestEnvoyGateway(t *testing.T) {
	data, err := os.ReadFile("testdata/gateway.json")
	if err != nil {
		t.Fatal(err)
	}
	const route = "httproute/default/backend/rule/0/match/0/www_example_com"
	byUser := described("default/eg/http", "3 per 1h", route+"="+route, "rule-0-match-0")
	byAddress := described("default/eg/http", "100 per 1h", route+"="+route, "masked_remote_address=0.0.0.0/0", "remote_address")
	report := run(t, string(data), Options{Complete: true}, byUser, byAddress)
	var got []string
	for _, f := range report.Findings {
		got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Code))
		if f.Code == timeoutDefault.code && !strings.Contains(f.Fix, "rateLimit.timeout") {
			t.Errorf("%s: %s; want how to set it in Envoy Gateway", f.Code, f.Fix)
		}
	}
	if want := []string{"warning timeout-default", "warning breaker-default", "note client-header"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.HasPrefix(report.Proven, "1 route of 1 listener send descriptors") {
		t.Errorf("proven: %s", report.Proven)
	}

	// The listener of the rules has another name.
	byUser.Domain, byAddress.Domain = "default/eg/https", "default/eg/https"
	if report := run(t, string(data), Options{}, byUser, byAddress); !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Code == wrongDomain.code }) {
		t.Errorf("another domain: got %v", report.Findings)
	}
}
