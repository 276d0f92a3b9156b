package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/daemon"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

type validateCmd struct {
	Path []string `arg:"" optional:"" help:"Rules files or directories to check instead of the setting rules.path, each by itself." name:"PATH"`
	JSON bool     `name:"json" help:"Print problems, warnings and the summary as one JSON document."`
}

// checked is what validating found out about one rules path.
type checked struct {
	Path     string         `json:"path"` // empty: the built-in example
	Valid    bool           `json:"valid"`
	Problems []string       `json:"problems,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
	Rules    int            `json:"rules"`
	Summary  *policy.Review `json:"summary,omitempty"`
}

// Run loads everything as serving would, and tells what is wrong, what is
// unwise, and what the rules mean and cost. The exit code is 1 if anything is
// wrong, whatever is printed.
func (v validateCmd) Run(c *cli) error {
	s, settingsErr := config.LoadSettings(c.Config, os.Environ())
	if settingsErr == nil {
		settingsErr = daemon.CheckSource(s)
	}
	paths := v.Path
	if len(paths) == 0 {
		paths = []string{s.Rules.Path}
	}
	problems := []error{settingsErr}
	results := make([]checked, len(paths))
	for i, path := range paths {
		s.Rules.Path = path
		g, err := config.Load(s)
		problems = append(problems, err)
		results[i] = check(path, g, errors.Join(settingsErr, err))
	}
	err := errors.Join(problems...)
	if v.JSON {
		out := json.NewEncoder(os.Stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		if writeErr := out.Encode(results); writeErr != nil {
			return writeErr
		}
		if err != nil {
			return errInvalid
		}
		return nil
	}
	told := make(map[string]bool) // the warnings of the tiers file come with every path
	for i := range results {
		for _, w := range results[i].Warnings {
			if !told[w] {
				told[w] = true
				fmt.Fprintf(os.Stderr, "warning: %s\n", w)
			}
		}
	}
	if err != nil {
		return invalid(err)
	}
	for i := range results {
		summarize(os.Stdout, &results[i])
	}
	return nil
}

// errInvalid ends a command that has said on standard output what is wrong.
var errInvalid = errors.New("the configuration is not valid")

func check(path string, g *config.Generation, err error) checked {
	out := checked{Path: path, Valid: err == nil}
	if err != nil {
		out.Problems = strings.Split(err.Error(), "\n")
	}
	if g == nil {
		return out
	}
	for _, w := range g.Warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	places := make(map[descriptors.RuleID]string)
	for i, r := range g.Rules.All() {
		places[r.ID()] = g.Places[i].String()
	}
	review := g.Rules.Review()
	for i := range review.Domains {
		for j := range review.Domains[i].Rules {
			r := &review.Domains[i].Rules[j]
			r.Place = places[r.ID]
		}
	}
	out.Rules, out.Summary = len(g.Rules.All()), &review
	return out
}

// summarize writes a summary for people.
func summarize(w io.Writer, c *checked) {
	path := c.Path
	if path == "" {
		path = "the built-in example"
	}
	fmt.Fprintf(w, "%s: valid\nrules without on_store_error: %s (store.on_error)\n", path, c.Summary.OnStoreError)
	for _, d := range c.Summary.Domains {
		fmt.Fprintf(w, "\ndomain %s: %d rules\n", d.Name, len(d.Rules))
		for i := range d.Rules {
			summarizeRule(w, &d.Rules[i])
		}
	}
	if t := c.Summary.TiersWithoutRule; len(t) > 0 {
		fmt.Fprintf(w, "\ntiers that no by_tier names: %s\n", strings.Join(t, ", "))
	}
	if t := c.Summary.TiersWithoutSubject; len(t) > 0 {
		fmt.Fprintf(w, "\ntiers that no subject has: %s\n", strings.Join(t, ", "))
	}
}

func summarizeRule(w io.Writer, r *policy.RuleReview) {
	fmt.Fprintf(w, "  %s  %s", r.Name, r.Path)
	if r.Place != "" {
		fmt.Fprintf(w, "  (%s)", r.Place)
	}
	fmt.Fprintln(w)
	if r.Unreachable != "" {
		fmt.Fprintf(w, "    UNREACHABLE: %s\n", r.Unreachable)
	}
	if len(r.Traits) > 0 {
		fmt.Fprintf(w, "    %s\n", strings.Join(r.Traits, ", "))
	}
	if len(r.Terms) == 0 {
		fmt.Fprintf(w, "    limits nothing\n")
	}
	for i := range r.Terms {
		t := &r.Terms[i]
		who := ""
		if t.Tier != "" {
			who = t.Tier + ": "
		} else if len(r.Terms) > 1 {
			who = "others: "
		}
		if t.Unlimited {
			fmt.Fprintf(w, "    %sunlimited\n", who)
		}
		for _, l := range t.Limits {
			fmt.Fprintf(w, "    %s%d per %s, %s\n", who, l.Requests, l.Window, cost(&l))
			if l.Lease != "" {
				fmt.Fprintf(w, "      lease %s, where a key is asked for often\n", l.Lease)
			}
			if l.Pointless != "" {
				fmt.Fprintf(w, "      POINTLESS: %s\n", l.Pointless)
			}
		}
		if t.Observe > 0 {
			fmt.Fprintf(w, "      only observed for %g %% of the subjects\n", t.Observe*100)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "    note: %s\n", note)
	}
}

// cost tells how exact a limit is and what it takes.
func cost(l *policy.LimitReview) string {
	precision := "exact"
	if l.Precision != "" {
		precision = "times rounded up to " + l.Precision
	}
	if l.Bytes == 0 {
		return precision + ", stores nothing"
	}
	return fmt.Sprintf("%s, up to %s a key", precision, size(l.Bytes))
}

func size(bytes int) string {
	switch {
	case bytes < 10_000:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 10_000_000:
		return fmt.Sprintf("%d kB", bytes/1000)
	default:
		return fmt.Sprintf("%d MB", bytes/1_000_000)
	}
}
