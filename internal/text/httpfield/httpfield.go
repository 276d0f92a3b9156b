// Package httpfield says which names and values the fields of an HTTP header can have. It is a part of
// golang.org/x/net/http/httpguts, which imports tables of Unicode that the library would bring along.
package httpfield

import "strings"

// ValidName reports whether text is a token of RFC 9110: the name of a field, or an authentication scheme.
func ValidName(text string) bool {
	const bytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
	return text != "" && strings.Trim(text, bytes) == ""
}

// ValidValue reports whether text can be the value of a field: it has no control characters but tabs.
func ValidValue(text string) bool {
	for _, b := range []byte(text) {
		if b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}
