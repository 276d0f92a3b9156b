package dropin

import (
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/test/tree"
)

// TestMigrateVariables checks that rls refuses what docs/migrate.md says.
func TestMigrateVariables(t *testing.T) {
	dir := t.TempDir()
	usual := []string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "USE_STATSD=false", "RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=.",
		"RUNTIME_APPDIRECTORY=.", "RUNTIME_WATCH_ROOT=false",
	}
	if r := compat.Read(usual, compat.Configured{Settings: settings.Default()}); len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	_, section, _ := strings.Cut(tree.Read(t, "docs/migrate.md"), "## What is refused\n")
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
			found = found || row.State == compat.StateRefused
		}
		if !found {
			t.Errorf("rls does not refuse %s", cells[1])
		}
	}
	if rows < 3 {
		t.Errorf("the page has %d variables", rows)
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
