package dropin

import (
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/test/tree"
)

// TestMigrateVariables checks that rls refuses and ignores what docs/migrate.md says.
func TestMigrateVariables(t *testing.T) {
	dir := t.TempDir()
	usual := []string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "USE_STATSD=false", "RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=.",
		"RUNTIME_APPDIRECTORY=.", "RUNTIME_WATCH_ROOT=false",
	}
	if r := compat.Read(usual, compat.Configured{Settings: settings.Default()}); len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	page := tree.Read(t, "docs/migrate.md")
	for heading, want := range map[string]compat.State{"## What is refused": compat.StateRefused, "## What is ignored": compat.StateIgnored} {
		_, section, _ := strings.Cut(page, heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		rows := 0
		for line := range strings.Lines(section) {
			cells := strings.Split(line, "|")
			if len(cells) < 3 || !strings.Contains(cells[1], "=") {
				continue
			}
			rows++
			environ := usual
			for _, m := range regexp.MustCompile("`([A-Z_]+=[^`]*)`").FindAllStringSubmatch(cells[1], -1) {
				name, _, _ := strings.Cut(m[1], "=")
				environ = append(without(environ, name), m[1])
			}
			found := false
			for _, row := range compat.Read(environ, compat.Configured{Settings: settings.Default()}).Rows {
				found = found || row.State == want
			}
			if !found {
				t.Errorf("%s: %s: rls does not do that", heading, cells[1])
			}
		}
		if rows < 3 {
			t.Errorf("%s has %d variables", heading, rows)
		}
	}
}

// without returns the variables but one.
func without(environ []string, name string) (rest []string) {
	for _, v := range environ {
		if !strings.HasPrefix(v, name+"=") {
			rest = append(rest, v)
		}
	}
	return rest
}
