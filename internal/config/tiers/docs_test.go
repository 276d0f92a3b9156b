package tiers

import "testing"

// TestKeys: each key of a tiers file has a text in the reference.
func TestKeys(t *testing.T) {
	all := Keys()
	for _, k := range all {
		if k.Doc == "" {
			t.Errorf("%s has no doc tag", k.Path)
		}
	}
	if len(all) < 9 {
		t.Errorf("only %d keys were found", len(all))
	}
}
