package config

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
)

//go:embed example/rules.yaml
var exampleRules []byte

//go:embed example/tiers.yaml
var exampleTiers []byte

// The names of the built-in files in problems.
const (
	builtInRules = "built-in rules.yaml"
	builtInTiers = "built-in tiers.yaml"
)

// A Generation is one consistent reading of the rules and tiers files. It is
// immutable and safe for concurrent use.
type Generation struct {
	Rules *policy.Rules
	// Secrets digests API keys the way the rules and the tiers were read.
	Secrets *tier.Secrets
	// Files are those that were read, in order. The built-in ones are not there.
	Files []string
	// Digest is a short name for the content of all files: the same content has
	// the same digest, in every instance.
	Digest string
	// Warnings say what is unwise, in the order of the files. Nil: nothing.
	Warnings []Problem
}

// digestLen is the length of a generation's digest in bytes: enough to tell the
// generations of one service apart, short enough to read.
const digestLen = 6

// Load reads the rules and the tiers that the settings name. The error is
// [Problems]: everything that is wrong with any of the files; there is no
// generation then. Load keeps nothing and may run concurrently with itself.
func Load(s Settings) (*Generation, error) {
	l := &loader{settings: s}
	l.readFiles()
	return l.generation()
}

// loader makes one generation.
type loader struct {
	settings Settings
	report   report
	warn     report
	rules    []source
	tiers    *source // nil: tiers.source is none, or the file cannot be read
	files    []string
}

// readFiles reads everything before anything is judged, so that the files are
// read within as short a time as possible.
func (l *loader) readFiles() {
	if p := l.settings.Tiers.Path; l.settings.Tiers.Source == TiersNone {
	} else if p == "" {
		l.tiers = &source{builtInTiers, exampleTiers}
	} else {
		l.report.file(p)
		l.files = append(l.files, p)
		if data, err := readFile(p, maxTiersFile); err != nil {
			l.report.addf(p, 0, "", "%s", err)
		} else {
			l.tiers = &source{p, data}
		}
	}
	p := l.settings.Rules.Path
	if p == "" {
		l.rules = []source{{builtInRules, exampleRules}}
		return
	}
	files, err := rulesFiles(p)
	switch {
	case err != nil:
		l.report.addf(p, 0, "", "%s", err)
	case len(files) == 0:
		l.report.addf(p, 0, "", "the directory holds no *.yaml or *.yml file")
	}
	for _, file := range files {
		l.report.file(file)
		l.files = append(l.files, file)
		if data, err := readFile(file, maxRulesFile); err != nil {
			l.report.addf(file, 0, "", "%s", err)
		} else {
			l.rules = append(l.rules, source{file, data})
		}
	}
}

func (l *loader) generation() (*Generation, error) {
	s := &l.settings
	key := s.Secrets.Key
	if key == "" && s.Secrets.KeyFile != "" {
		// Settings that did not come from LoadSettings.
		var err error
		if key, err = readSecret(s.Secrets.KeyFile); err != nil {
			l.report.addf(s.Secrets.KeyFile, 0, "", "%s", err)
		}
	}
	secrets := tier.NewSecrets(s.Secrets.Entries, key.Reveal())

	tiers := tiersReader{report: &l.report, warn: &l.warn, secrets: secrets}
	if l.tiers != nil {
		tiers.read(*l.tiers)
		if l.tiers.name == builtInTiers && s.Rules.Path != "" {
			l.warn.addf(builtInTiers, 0, "", "the demo keys of the example are valid for your rules: set tiers.path, or tiers.source to none")
		}
	}
	rules := rulesReader{
		report:  &l.report,
		warn:    &l.warn,
		secrets: secrets,
		rules: policy.NewRules(policy.Identity{
			Secrets:        secrets,
			Tiers:          tiers.directory,
			EachUnknownKey: s.Tiers.UnknownKey == UnknownKeyEach,
		}),
		tiers:      tiers.names,
		tiersKnown: s.Tiers.Source == TiersNone || tiers.directory != nil,
		domains:    make(map[string]string),
	}
	for _, src := range l.rules {
		rules.read(src)
	}
	if err := l.report.err(); err != nil {
		return nil, err
	}
	return &Generation{
		Rules:    rules.rules,
		Secrets:  secrets,
		Files:    l.files,
		Digest:   l.digest(),
		Warnings: l.warn.sorted(),
	}, nil
}

// digest names the content. Lengths go in with it, so that no shift of text from
// one file to the next gives the same digest.
func (l *loader) digest() string {
	h := sha256.New()
	write := func(src source) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(src.data))))
		h.Write(src.data)
	}
	if l.tiers != nil {
		write(*l.tiers)
	}
	for _, src := range l.rules {
		write(src)
	}
	return hex.EncodeToString(h.Sum(nil)[:digestLen])
}
