package transport

import (
	"strings"
	"testing"
)

// TestVersions compares the versions of this module with those of rls. A suite on
// another version of HTTP/2 would prove nothing about rls.
func TestVersions(t *testing.T) {
	for _, module := range []string{"golang.org/x/net", "google.golang.org/grpc", "google.golang.org/protobuf"} {
		list := []string{"list", "-m", "-f", "{{.Version}}", module}
		here, there := goOutput(t, list...), goOutput(t, append([]string{list[0], "-C", "../.."}, list[1:]...)...)
		if !strings.HasPrefix(here, "v") || here != there {
			t.Errorf("%s: got %q, want %q as in go.mod of the whole", module, here, there)
		}
	}
}
