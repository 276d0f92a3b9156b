package strict

import "testing"

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
