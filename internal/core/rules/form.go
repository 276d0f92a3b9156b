package rules

import "slices"

// Form is how a kind of client reads denials.
type Form uint8

// The forms. The zero value chooses none.
const (
	FormUnset     Form = iota
	FormProblem        // a problem document (RFC 9457)
	FormOpenAI         // as the API of OpenAI
	FormAnthropic      // as the API of Anthropic
	FormGRPC           // a text for grpc-message, and google.rpc.Status with RetryInfo
	FormMCP            // an error of JSON-RPC with the id of the request
)

// Forms are the names of the forms.
var Forms = []string{"problem", "openai", "anthropic", "grpc", "mcp"}

// FormEntry is the key of the descriptor entry with the form of a route.
const FormEntry = "form"

// ParseForm returns the form with this name, or FormUnset.
func ParseForm(name string) Form { return Form(slices.Index(Forms, name) + 1) }

// NamesForm reports whether an entry names the form of a route. If a descriptor has no other entry, it
// needs no rule.
func NamesForm(key, value string) bool { return key == FormEntry && ParseForm(value) != FormUnset }

// String returns the name. It returns an empty text for FormUnset.
func (f Form) String() string {
	if f == FormUnset {
		return ""
	}
	return Forms[f-1]
}

// MarshalText implements [encoding.TextMarshaler].
func (f Form) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
