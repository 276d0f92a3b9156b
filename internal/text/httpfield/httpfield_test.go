package httpfield

import (
	"testing"

	"golang.org/x/net/http/httpguts"
)

// TestValid compares every byte, alone and inside a text, with the library of net/http.
func TestValid(t *testing.T) {
	texts := []string{"", "x-api-key", "é", "a b\tc"}
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}), string([]byte{'a', byte(b), 'z'}))
	}
	for _, text := range texts {
		if got, want := ValidName(text), httpguts.ValidHeaderFieldName(text); got != want {
			t.Errorf("ValidName(%q) = %v, want %v", text, got, want)
		}
		if got, want := ValidValue(text), httpguts.ValidHeaderFieldValue(text); got != want {
			t.Errorf("ValidValue(%q) = %v, want %v", text, got, want)
		}
	}
}
