package main

import (
	"fmt"
	"os"
	"strings"
)

// A mutant is one way to break one file.
type mutant struct {
	name     string
	file     string   // from the root of the repository
	packages []string // whose tests should notice
	long     bool     // and it takes those that -short leaves out
	old, new string
	survives string // why no test can notice; empty: one must
}

// readList reads mutants.txt: blocks, each of fields "name: value", where old and
// new may go on over lines that begin with a tab. Lines that begin with # are
// comments.
func readList(file string) ([]mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var (
		all   []mutant
		m     *mutant
		field *string
	)
	for i, line := range strings.Split(string(text), "\n") {
		location := fmt.Sprintf("%s:%d", file, i+1)
		if more, ok := strings.CutPrefix(line, "\t"); ok {
			if field == nil {
				return nil, fmt.Errorf("%s: a line that goes on without a field before it", location)
			}
			*field = strings.TrimPrefix(*field+"\n"+more, "\n")
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			field = nil
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("%s: %q is no field", location, line)
		}
		value = strings.TrimPrefix(value, " ")
		if name == "mutant" {
			all = append(all, mutant{name: value})
			m, field = &all[len(all)-1], nil
			continue
		}
		if m == nil {
			return nil, fmt.Errorf("%s: a field before the first mutant", location)
		}
		switch name {
		case "file":
			m.file = value
		case "tests":
			m.packages = strings.Fields(value)
		case "long":
			m.long = true
		case "old":
			field = &m.old
		case "new":
			field = &m.new
		case "survives":
			field = &m.survives
		default:
			return nil, fmt.Errorf("%s: unknown field %q", location, name)
		}
		if field != nil {
			*field = value
		}
	}
	return all, nil
}

// apply returns the content of the mutant's file with the change.
func (m *mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(root + "/" + m.file)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), m.old); n != 1 || m.old == "" {
		return nil, fmt.Errorf("%s: %q is in it %d times, want once", m.file, m.old, n)
	}
	return []byte(strings.Replace(string(text), m.old, m.new, 1)), nil
}
