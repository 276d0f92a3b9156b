package main

import "testing"

// TestList proves that each mutant changes the file that it names: the old text is there
// exactly once. It runs no mutant.
func TestList(t *testing.T) {
	all, err := readList("mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, err := m.apply("../.."); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
