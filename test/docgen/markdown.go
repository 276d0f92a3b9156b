package main

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed text
var texts embed.FS

// written returns the hand-written text of a page, text/NAME.txt.
func written(name string) string {
	text, err := texts.ReadFile("text/" + name + ".txt")
	if err != nil {
		panic(err) // the file is part of the program
	}
	return string(text)
}

// code returns s in the type of code, and nothing for nothing.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// fill replaces the lines and words of a text that are names of parts. Each name stands in it once.
func fill(text string, parts map[string]string) (string, error) {
	for name, part := range parts {
		if n := strings.Count(text, name); n != 1 {
			return "", fmt.Errorf("the text has %s %d times", name, n)
		}
		text = strings.Replace(text, name, strings.TrimSuffix(part, "\n"), 1)
	}
	return text, nil
}
