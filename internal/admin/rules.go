package admin

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Active is the active configuration, with the errors in a newer one.
type Active struct {
	Generation string    `json:"generation"`
	Loaded     time.Time `json:"loaded"`
	// Files are the files of the configuration, or the server that sent it. Empty means the
	// built-in example.
	Files []string `json:"files"`
	// Notes are settings that change the meaning of every rule.
	Notes []string `json:"notes,omitempty"`
	// Refused has the errors of a newer configuration, from files or a server. Empty means none.
	Refused string `json:"refused,omitempty"`
	Rules   []Rule `json:"rules"`
}

// A Rule describes one rule.
type Rule struct {
	// Path is the domain of the rule and its descriptor entries.
	Path   string   `json:"path"`
	Name   string   `json:"name"`
	Limits []string `json:"limits"`
	// Traits are its other keys in the file.
	Traits []string `json:"traits,omitempty"`
	File   string   `json:"file"`
	Line   int      `json:"line"` // zero: the file has no lines
}

// String returns the line of the rule in the text form.
func (r Rule) String() string {
	return strings.Join(slices.Concat([]string{r.Path, "name=" + r.Name}, r.Limits, r.Traits), "  ")
}

func rulesPage(active func() Active) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := active()
		write(w, r, page{Title: "Active rules", Body: "rules", Data: a, text: a.write})
	}
}

// write writes the text form.
func (a Active) write(w io.Writer) {
	fmt.Fprintf(w, "# generation %s, loaded %s\n", a.Generation, a.Loaded.Format(time.RFC3339))
	for _, f := range a.Files {
		fmt.Fprintf(w, "# from %s\n", f)
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "# %s\n", n)
	}
	if a.Refused != "" {
		fmt.Fprintf(w, "# BROKEN: a newer configuration was refused:\n#   %s\n", strings.ReplaceAll(a.Refused, "\n", "\n#   "))
	}
	for _, r := range a.Rules {
		fmt.Fprintln(w, r)
	}
}
