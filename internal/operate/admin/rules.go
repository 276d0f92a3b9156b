package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/text/safetext"
)

// Active is the active configuration, with the errors in a newer one.
type Active struct {
	Generation string
	Loaded     time.Time
	// Files are the files of the configuration, or the server that sent it. Empty means the
	// built-in example.
	Files []string
	// Notes are settings that change the meaning of every rule.
	Notes []string
	// Refused has the errors of a newer configuration, from files or a server. Empty means none.
	Refused string
	Rules   []Rule
}

// A Rule describes one rule, in the API too.
type Rule struct {
	Domain string `json:"domain"`
	Name   string `json:"name"`
	// Path is the domain of the rule and its descriptor entries: edge|route=search/api_key.
	Path   string   `json:"path"`
	Limits []string `json:"limits"`
	// Traits are its other keys in the file.
	Traits []string `json:"traits"`
	// Words are the limits in plain words: 100 in any 1m, for each API key of tier free.
	Words []string `json:"words"`
	File  string   `json:"file"`
	Line  int      `json:"line"` // zero: the file has no lines
	// Entries are the descriptor entries of Path: key=value, or the key alone for each value.
	Entries []string `json:"entries"`
}

// String returns the line of the rule in the text form.
func (r Rule) String() string {
	return strings.Join(slices.Concat([]string{r.Path, "name=" + r.Name}, r.Limits, r.Traits), "  ")
}

func rulesPage(active func() Active) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { WriteText(w, http.StatusOK, active().text()) }
}

func (a Active) text() string {
	w := new(strings.Builder)
	fmt.Fprintf(w, "# generation %s, loaded %s\n", a.Generation, a.Loaded.Format(time.RFC3339))
	for _, f := range a.Files {
		fmt.Fprintf(w, "# from %s\n", safetext.Text(f))
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "# %s\n", safetext.Text(n))
	}
	if a.Refused != "" {
		fmt.Fprintln(w, "# BROKEN: a newer configuration was refused:")
		for line := range strings.SplitSeq(a.Refused, "\n") {
			fmt.Fprintf(w, "#   %s\n", safetext.Text(line))
		}
	}
	for _, r := range a.Rules {
		fmt.Fprintln(w, safetext.Text(r.String()))
	}
	return w.String()
}

// Rules are the active rules, or the first of them.
type Rules struct {
	Generation string    `json:"generation"`
	Loaded     time.Time `json:"loaded"`
	// Refused has the errors of a newer configuration. Empty: none.
	Refused string   `json:"refused,omitempty"`
	Domains []string `json:"domains"`
	// Found is the number of rules that fit the question. Above that of Rules, ask for more, or with
	// q or domain.
	Found int    `json:"found"`
	Rules []Rule `json:"rules"`
}

// usualRules and mostRules are how many rules an answer has, without limit and with it.
const usualRules, mostRules = 100, 10_000

// Find returns the rules that have text in their path, name, file, limits or words, in lower
// or upper case. Empty texts choose all.
func (a Active) Find(text, domain string) []Rule {
	found := []Rule{}
	for _, r := range a.Rules {
		if (domain == "" || r.Domain == domain) && (text == "" || r.Has(text)) {
			r.Limits, r.Traits, r.Words, r.Entries = list(r.Limits), list(r.Traits), list(r.Words), list(r.Entries)
			found = append(found, r)
		}
	}
	return found
}

// Has reports whether the path, the name, the file, the limits, the words or the traits contain a text,
// in lower or upper case.
func (r *Rule) Has(text string) bool {
	text = strings.ToLower(text)
	in := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	return in(r.Path) || in(r.Name) || in(r.File) ||
		slices.ContainsFunc(r.Limits, in) || slices.ContainsFunc(r.Words, in) || slices.ContainsFunc(r.Traits, in)
}

func (a *api) rules(_ *http.Request, query url.Values) (any, error) {
	limit, err := number(query, "limit", mostRules, usualRules)
	if err != nil {
		return nil, err
	}
	active := a.Active()
	found := active.Find(query.Get("q"), query.Get("domain"))
	return Rules{
		Generation: active.Generation, Loaded: active.Loaded, Refused: active.Refused, Domains: active.Domains(),
		Found: len(found), Rules: found[:min(limit, len(found))],
	}, nil
}

// Domains returns the domains of the rules, sorted.
func (a Active) Domains() []string {
	all := []string{}
	for _, r := range a.Rules {
		all = append(all, r.Domain)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
