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
