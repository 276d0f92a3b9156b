package corpus

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// golden is one file of the corpus.
type golden struct {
	comment  string
	sections []section
}

// section is a file within it.
type section struct{ name, text string }

const marker = "-- "

// readGolden reads a file of the corpus.
func readGolden(file string) (*golden, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	g := new(golden)
	to := &g.comment
	for line := range strings.Lines(string(data)) {
		name, isMarker := strings.CutPrefix(strings.TrimRight(line, "\n"), marker)
		if name, ends := strings.CutSuffix(name, " --"); isMarker && ends {
			if _, again := g.get(name); again {
				return nil, fmt.Errorf("%s: a second %s", file, name)
			}
			g.sections = append(g.sections, section{name: name})
			to = &g.sections[len(g.sections)-1].text
			continue
		}
		*to += line
	}
	return g, nil
}

// String returns the text of the file.
func (g *golden) String() string {
	var b strings.Builder
	b.WriteString(g.comment)
	for _, s := range g.sections {
		b.WriteString(marker + s.name + " --\n" + s.text)
	}
	return b.String()
}

func (g *golden) get(name string) (string, bool) {
	for _, s := range g.sections {
		if s.name == name {
			return s.text, true
		}
	}
	return "", false
}

func (g *golden) set(name, text string) {
	for i := range g.sections {
		if g.sections[i].name == name {
			g.sections[i].text = text
			return
		}
	}
	g.sections = append(g.sections, section{name, text})
}

// files returns the configuration of a generation by the names of its files. The
// settings and tiers of the first one apply if it has none of its own.
func (g *golden) files(generation string) map[string]string {
	files := make(map[string]string)
	for _, s := range g.sections {
		dir, base := path.Split(s.name)
		switch {
		case slices.Contains([]string{"transcript", "warnings", "metrics"}, s.name):
		case path.Clean(dir) == path.Clean(generation):
			files[base] = s.text
		case dir == "" && (base == settingsFile || base == dropInFile || base == tiersFile):
			if _, own := files[base]; !own {
				files[base] = s.text
			}
		}
	}
	return files
}
