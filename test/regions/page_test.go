package regions

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

const page = "../../docs/regions.md"

// onPage compares a part of docs/regions.md with what a test has made. With -update it writes the
// part.
func onPage(t *testing.T, name, want string) {
	t.Helper()
	begin := fmt.Sprintf("<!-- %s: written by `go test ./test/regions -run %s -update` -->\n", name, t.Name())
	end := fmt.Sprintf("<!-- end of %s -->", name)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has lost its markers of %s: %s and %s", page, name, strings.TrimSpace(begin), end)
	case got == want:
	case !*configtest.Update:
		t.Fatalf("%s does not say what this test has made; run it with -update:\n%s", page, want)
	default:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
