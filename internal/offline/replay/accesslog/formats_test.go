package accesslog

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/tree"
)

// TestShippedNames holds the names to the Envoy files of the project.
func TestShippedNames(t *testing.T) {
	paths, err := filepath.Glob("../../../../envoy/*.yaml")
	if err != nil || len(paths) < 6 {
		t.Fatalf("%q, %v", paths, err)
	}
	paths = append(paths, "../../../../deploy/kubernetes/try/envoy/envoy.yaml", "../../../../deploy/helm/slidegate-sidecar/templates/_envoy.tpl")
	entry := regexp.MustCompile(`^\s+([a-z_]+): "?(%.+%)"?$`)
	found := make(map[field]bool)
	for _, path := range paths {
		content := tree.Text(t, path)
		_, after, ok := strings.Cut(content, "json_format:\n")
		if !ok {
			t.Errorf("%s has no json_format", path)
		}
		n, subject, digest := 0, false, false
		for line := range strings.Lines(after) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			m := entry.FindStringSubmatch(line)
			if m == nil {
				break
			}
			n++
			a, err := Parse(m[2])
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			f := field{m[1], a}
			found[f] = true
			subject, digest = subject || a == Subject, digest || a == KeyDigest
		}
		if n < 15 || subject != digest {
			t.Errorf("%s: %d fields; subject is %v, and key_digest, which tells a key without a subject, %v", path, n, subject, digest)
		}
	}
	for _, f := range shipped {
		if !found[f] {
			t.Errorf("%s is %s in no file", f.name, f.attribute)
		}
	}
}

// TestMappedFields: all that is wrong with the fields of a caller is told at once.
func TestMappedFields(t *testing.T) {
	_, err := candidates(&Options{Fields: map[string]Attribute{"": "REQ(:path)", "a": "START_TIME(%!)", "b": "req", "c": "EMIT_TIME(%Q)"}})
	for _, want := range []string{"has no name", `"a": `, `"b": `, `"c": `} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// TestParse lists operators that mean the same.
func TestParse(t *testing.T) {
	for operator, want := range map[string]Attribute{
		"%REQ(X-Tenant)%": Header("x-tenant"), "%REQUEST_HEADER(:METHOD)%": Method, "REQ(:PATH)": Path, "%PATH%": OriginalOrPath, "%PATH(WQ)%": OriginalOrPath,
		"%PATH(WQ:ORIG_OR_PATH)%": OriginalOrPath, "%PATH(WQ:PATH)%": Path, "%PATH(WQ:ORIG)%": originalPath, "%PATH(NQ)%": PathOnly, "%PATH(NQ:ORIG_OR_PATH)%": PathOnly,
		"%PATH(NQ:PATH)%": rewrittenPathOnly, "%REQ_WITHOUT_QUERY(:PATH)%": rewrittenPathOnly, "%REQ_WITHOUT_QUERY(X-ENVOY-ORIGINAL-PATH?:PATH)%": PathOnly,
		"%REQ(X):10%": "REQ(x):10", "%METADATA(DYNAMIC:a:b)%": Metadata("a", "b"), "%START_TIME(%s)%": "START_TIME(%s)", "%DURATION%": Duration, "%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%": Details,
	} {
		if got, err := Parse(operator); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", operator, got, err, want)
		}
	}
	for _, operator := range []string{"", "%", "%%", "req(x)", "%REQ(x%", "%REQ(x)y%", "A B", "REQ" + strings.Repeat("X", 2000)} {
		if got, err := Parse(operator); err == nil {
			t.Errorf("%q: %s", operator, got)
		}
	}
}
