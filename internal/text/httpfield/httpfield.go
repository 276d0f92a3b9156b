// Package httpfield says which names and values the fields of an HTTP header can have. It is a part of
// golang.org/x/net/http/httpguts, which imports tables of Unicode that the library would bring along.
package httpfield

import "strings"

// ValidName reports whether text is a token of RFC 9110: the name of a field, or an authentication scheme.
func ValidName(text string) bool {
	for _, b := range []byte(text) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0:
			return false
		}
	}
	return text != ""
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
