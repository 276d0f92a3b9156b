package main

import (
	"os"
	"testing"
)

// TestPoliciesDrawing holds docs/policies.svg to what the policies decide.
func TestPoliciesDrawing(t *testing.T) {
	want, err := policiesDrawing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/policies.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/policies.svg is not what the policies decide; go -C bench run ./demo -policies ../docs/policies.svg")
	}
}
