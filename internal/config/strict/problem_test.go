package strict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestNearest: a beginning counts where it can be that of one name alone, and less
// than a name that is nearly the same.
func TestNearest(t *testing.T) {
	names := []string{"value_to_metric", "value_to_header", "detailed_metric", "shadow_mode", "details"}
	for name, want := range map[string]string{
		"detailed_m": "detailed_metric", "shadow": "shadow_mode", "sha": "", "value_to": "", "detail": "details", "Shadow-": "shadow_mode",
	} {
		if got := nearest(name, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestProblemIsSafe: a terminal obeys no part of a problem. Names of files and of xDS resources may
// have any character.
func TestProblemIsSafe(t *testing.T) {
	p := Problem{File: "\x1b[2Ja.yaml", Line: 1, Path: "a\u202eb", Message: "c\u009bd"}
	if got, want := (Problems{p}).Error(), `\x1b[2Ja.yaml:1: a\u202eb: c\u009bd`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSuggest: names that begin with the text come first, then those with the fewest edits.
func TestSuggest(t *testing.T) {
	names := []string{"acne", "Acme-eu", "globex", "acme", "acme", "ac", "emca"}
	for name, want := range map[string]string{
		"acm": "Acme-eu acme ac", "ACME": "Acme-eu acme acne", "acmee": "acme", "a": "Acme-eu ac acme acne", "xyz": "", "": "",
		strings.Repeat("a", 65): "",
	} {
		if got := strings.Join(Suggest(name, slices.Values(names), 10), " "); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("acme-%02d", 99-i))
	}
	if got := Suggest("acme", slices.Values(many), 3); !slices.Equal(got, []string{"acme-00", "acme-01", "acme-02"}) {
		t.Errorf("got %v, want the first three", got)
	}
}
