package main

import (
	"strings"
	"unicode/utf8"
)

// wrap returns a paragraph in lines of at most 100 characters.
func wrap(text string) string { return wrapAt(text, 100) }

func wrapAt(text string, most int) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case line+1+n > most:
			b.WriteByte('\n')
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += n
	}
	b.WriteByte('\n')
	return b.String()
}

// item returns an item of a list in lines of at most 98 characters, so that it can be indented.
func item(text string) string {
	return "- " + strings.TrimSpace(strings.ReplaceAll(wrapAt(text, 96), "\n", "\n  ")) + "\n"
}
