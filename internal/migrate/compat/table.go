package compat

import (
	"fmt"
	"strings"
)

// Table returns every variable of envoyproxy/ratelimit in tables of Markdown, for
// docs/reference/drop-in.md.
func Table() string {
	var b strings.Builder
	code := func(texts ...string) string {
		text := strings.Join(texts, "`, `")
		if text == "" {
			return ""
		}
		return "`" + text + "`"
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| variable | default | becomes |\n|---|---|---|\n", g.title)
		for _, v := range g.variables {
			becomes := code(v.sets...)
			switch {
			case v.doc == "" && v.why != "":
				becomes = "no effect: " + v.why
			case becomes != "" && v.doc != "":
				becomes += ": "
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", code(v.name), code(v.def), becomes+v.doc)
		}
	}
	return b.String()
}
