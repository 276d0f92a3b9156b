package dropin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// TestEnvoyHeadersOfReference: with answers in the form of envoyproxy/ratelimit, Envoy's own
// headers have no name of a limit that the rules do not give, and nothing else is on the
// answer.
func TestEnvoyHeadersOfReference(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: remote_address
    rate_limit: {name: per-address, unit: day, requests_per_unit: 50}
`
	for _, tt := range []struct {
		styles string
		own    map[string]string // the headers of rls on an allowed answer
	}{
		{"", nil},
		{"reference", map[string]string{"Ratelimit-Limit": "3", "Ratelimit-Remaining": "2", "Ratelimit-Reset": "60"}},
	} {
		t.Run("styles="+tt.styles, func(t *testing.T) {
			stack.EachStore(t, func(t *testing.T, settings map[string]string) {
				stack.AsDropIn(settings)
				settings[stack.EnvStyles] = tt.styles
				s := stack.Setup{Rules: rules, Env: settings, Change: map[string]string{
					"              domain: edge\n": "              domain: edge\n              enable_x_ratelimit_headers: DRAFT_VERSION_03\n",
				}}.Start(t)
				for i := range 4 {
					got := s.Get("/", "x-api-key", "k")
					headers := make(map[string]string)
					for name := range got.Header {
						if strings.Contains(strings.ToLower(name), "ratelimit-") || name == "Retry-After" || name == "Ratelimit" {
							headers[name] = got.Header.Get(name)
						}
					}
					// Time passes while the test runs.
					for _, name := range []string{"X-Ratelimit-Reset", "Ratelimit-Reset"} {
						if n, err := strconv.Atoi(headers[name]); err == nil && n >= 1 && n <= 60 {
							headers[name] = "60"
						}
					}
					const quota = `, 3;w=60, 50;w=86400;name="per-address"`
					status, want := 200, map[string]string{"X-Ratelimit-Limit": "3" + quota, "X-Ratelimit-Remaining": strconv.Itoa(max(0, 2-i)), "X-Ratelimit-Reset": "60"}
					if i == 3 {
						status = 429
					}
					for name, value := range tt.own {
						if want[name] = value; name == "Ratelimit-Remaining" {
							want[name] = strconv.Itoa(max(0, 2-i))
						}
					}
					if diff := cmp.Diff(want, headers); diff != "" || got.Status != status {
						t.Errorf("request %d: %d, want %d, headers (-want +got):\n%s", i+1, got.Status, status, diff)
					}
					if i == 3 && got.Body != "" {
						t.Errorf("the body of a denial is %q, want none", got.Body)
					}
				}
				s.WantAllDecided()
			})
		})
	}
}

// TestPortableFilesLoadInReference: what "rls validate --portable" accepts, the check of
// envoyproxy/ratelimit accepts. The files are random.
func TestPortableFilesLoadInReference(t *testing.T) {
	reference := os.Getenv("SLIDEGATE_TEST_REFERENCE")
	if reference == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("SLIDEGATE_TEST_REFERENCE names no envoyproxy/ratelimit: make ratelimit builds one")
		}
		t.Skip("SLIDEGATE_TEST_REFERENCE names no envoyproxy/ratelimit: make ratelimit builds one")
	}
	r := rand.New(rand.NewPCG(1, 2))
	const files = 150
	accepted, dir := 0, t.TempDir()
	for i := range files {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%03d.yaml", i))
		text := fmt.Sprintf("domain: d%d\ndescriptors:\n%s", i, randomDescriptors(r, "", 1))
		tree.Write(t, file, text)
		cmd, err := edge.RLSOptions{}.Command(t.Context(), "validate", "--portable", file)
		if err != nil {
			t.Fatal(err)
		}
		if cmd.Run() != nil {
			continue
		}
		accepted++
		tree.Write(t, filepath.Join(dir, filepath.Base(file)), text)
	}
	if accepted < files/5 || accepted > files*4/5 {
		t.Errorf("%d of %d files are portable, so the test says little", accepted, files)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(reference), "ratelimit-config-check"), "-config_dir", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all rate limit configs ok") {
		t.Errorf("envoyproxy/ratelimit refuses a file: %v\n%s", err, out)
	}
}

// randomDescriptors returns some descriptors, most of which both services read the same.
func randomDescriptors(r *rand.Rand, indent string, depth int) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	rarely := func(from ...string) string {
		if r.IntN(6) > 0 {
			return ""
		}
		return pick(from...)
	}
	var b strings.Builder
	for i := range 1 + r.IntN(3) {
		key := pick("a", "a_b", "path", "user", "404", "yes") + pick("", "", "_", strconv.Itoa(i))
		fmt.Fprintf(&b, "%s- key: %s\n", indent, key)
		if value := pick("", "", "b", "b_c", "c", "12", "0x1F", "1_000", "true", "2024-01-01", "v*", `"*"`, "1.2.3", rarely("1.5", "1e5", ".5", "a*b", `" x"`, "99999999999999999999", ".inf", "12e")); value != "" {
			fmt.Fprintf(&b, "%s  value: %s\n", indent, value)
		}
		if flag := rarely("shadow_mode: yes", "quota_mode: true", "detailed_metric: on", "value_to_metric: n", "unit: day"); flag != "" {
			fmt.Fprintf(&b, "%s  %s\n", indent, flag)
		}
		switch r.IntN(4) {
		case 0:
			fmt.Fprintf(&b, "%s  rate_limit: {unlimited: true}\n", indent)
		case 1, 2:
			more := rarely(", name: x", ", name: 1.5", ", replaces: [{name: y}]", ", cost: 2", ", charge: always", ", domain: 7")
			fmt.Fprintf(&b, "%s  rate_limit: {unit: %s, requests_per_unit: %s%s}\n", indent, pick("second", "MINUTE", "Hour", "day", "week", "month", "year"), pick("0", "5", "4294967295", "0x10"), more)
		}
		if depth < 4 && r.IntN(3) == 0 {
			fmt.Fprintf(&b, "%s  descriptors:\n%s", indent, randomDescriptors(r, indent+"  ", depth+1))
		}
	}
	return b.String()
}
