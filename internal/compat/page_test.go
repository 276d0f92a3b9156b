package compat

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

// kinds are the words of the page for kinds of variables.
var kinds = [...]string{text: "text", truth: "true or false", number: "number", share: "number", period: "time", pairs: "pairs k:v,k:v"}

// TestVariablesPage compares the tables of docs/dropin.md with the code.
func TestVariablesPage(t *testing.T) {
	const (
		page  = "../../docs/dropin.md"
		begin = "<!-- variables: written by `go test ./internal/compat -run TestVariablesPage -update` -->\n"
		end   = "<!-- end of variables -->"
	)
	var out strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&out, "\n### %s\n\n| variable | kind | default | becomes |\n|---|---|---|---|\n", g.title)
		for _, v := range g.variables {
			var parts []string
			for _, path := range v.sets {
				parts = append(parts, "`"+path+"`")
			}
			becomes := strings.Join(parts, ", ")
			if becomes != "" && v.doc != "" {
				becomes += ": "
			}
			def := ""
			if v.def != "" {
				def = "`" + v.def + "`"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", v.name, kinds[v.kind], def, becomes+v.doc)
		}
	}
	out.WriteString("\n")
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", page)
	}
	if got == out.String() {
		return
	}
	if !*configtest.Update {
		t.Fatalf("%s does not say what the code does; run: go test ./internal/compat -run TestVariablesPage -update", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+out.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
