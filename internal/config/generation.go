package config

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

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
	// Places are where the rules stand, in the order of Rules.All.
	Places []Place
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
func Load(s Settings) (*Generation, error) { return new(Input).Load(s) }

// load reads files until none of them changes meanwhile.
func load(begin loader) (*Generation, error) {
	l := new(loader)
	for range maxReads {
		*l = begin
		l.readFiles()
		if l.settled() {
			return l.generation()
		}
	}
	s := &begin.settings
	l.report.addf(cmp.Or(s.Rules.Path, s.Tiers.Path), 0, "", "the files changed while they were read, %d times: leave them alone, or swap a whole directory at once", maxReads)
	return nil, l.report.err()
}

// maxReads is how often files are read that change meanwhile.
const maxReads = 10

// settled reports whether what was read is what is there: a directory that is
// swapped between two of its files would give a generation that nobody wrote.
func (l *loader) settled() bool {
	if l.tiers != nil && !l.tiers.settled() {
		return false
	}
	for i := range l.rules {
		if !l.rules[i].settled() {
			return false
		}
	}
	if len(l.paths) == 0 {
		return true
	}
	now := rulesFiles(l.paths, l.settings.Rules.IgnoreDotFiles)
	return slices.Equal(now.files, l.listed.files) &&
		slices.Equal(now.skipped, l.listed.skipped) && slices.Equal(now.failed, l.listed.failed)
}

// loader makes one generation.
type loader struct {
	settings Settings
	paths    []string // of rules, which are one set; nil: the built-in example
	noRules  bool     // not even those
	stdin    []byte   // what the path Stdin stands for; nil: nothing
	report   report
	warn     report
	rules    []source
	tiers    *source // nil: tiers.source is none, or the file cannot be read
	files    []string
	listed   listing // what the paths of rules stood for
}

// readFiles reads everything before anything is judged, so that the files are
// read within as short a time as possible.
func (l *loader) readFiles() {
	if p := l.settings.Tiers.Path; l.settings.Tiers.Source == TiersNone {
	} else if p == "" {
		l.warn.file(builtInTiers)
		l.tiers = &source{name: builtInTiers, data: exampleTiers}
	} else {
		l.report.file(p)
		l.warn.file(p)
		l.files = append(l.files, p)
		src, err := l.readSource(p, maxTiersFile)
		switch {
		case errors.Is(err, tooLarge(maxTiersFile)):
			l.report.addf(p, 0, "", "%s, about 100,000 subjects: keep the subjects in PostgreSQL, in Redis or behind an HTTP endpoint, and set tiers.source to postgres, redis or http", err)
		case err != nil:
			l.report.addf(p, 0, "", "%s", err)
		default:
			l.tiers = &src
		}
	}
	if len(l.paths) == 0 {
		if !l.noRules {
			l.rules = []source{{name: builtInRules, data: exampleRules}}
		}
		return
	}
	listed := rulesFiles(l.paths, l.settings.Rules.IgnoreDotFiles)
	l.listed = *listed
	if len(listed.files)+len(listed.failed) == 0 {
		l.report.addf(l.paths[0], 0, "", "the directory holds no *.yaml or *.yml file")
	}
	// All are known now, so their problems and warnings stand in one order.
	for _, file := range slices.Sorted(slices.Values(slices.Concat(listed.files, listed.skipped))) {
		l.report.file(file)
		l.warn.file(file)
	}
	for _, file := range listed.skipped {
		l.warn.addf(file, 0, "", "skipped: not .yaml or .yml; envoyproxy/ratelimit reads it")
	}
	l.readRulesFiles()
}

// readSource reads a file, or what was given for standard input.
func (l *loader) readSource(name string, most int64) (source, error) {
	if name != Stdin || l.stdin == nil {
		return readSource(name, most)
	}
	if int64(len(l.stdin)) > most {
		return source{}, tooLarge(most)
	}
	return source{name: name, data: l.stdin}, nil
}

// readRulesFiles reads what the paths of rules stand for.
func (l *loader) readRulesFiles() {
	for _, problem := range l.listed.failed {
		l.report.add(problem)
	}
	room := int64(maxRules)
	for _, file := range l.listed.files {
		l.files = append(l.files, file)
		src, err := l.readSource(file, maxRulesFile)
		if errors.Is(err, tooLarge(maxRulesFile)) {
			l.report.addf(file, 0, "", "%s: spread its rules over several files; with rules.merge_domains several files may have one domain", err)
			continue
		}
		if err != nil {
			l.report.addf(file, 0, "", "%s", err)
			continue
		}
		if room -= int64(len(src.data)); room < 0 {
			l.report.addf(file, 0, "", "with this file the rules are larger than %d MiB", maxRules>>20)
			return
		}
		l.rules = append(l.rules, src)
	}
}

func (l *loader) generation() (*Generation, error) {
	s := &l.settings
	secrets := s.NewSecrets(l.secret(s.Secrets.Key, s.Secrets.KeyFile))
	if previous := l.secret(s.Secrets.PreviousKey, s.Secrets.PreviousKeyFile); previous != "" || s.Secrets.PreviousUnkeyed {
		secrets.Previous(previous.Reveal())
	}

	tiers := tiersReader{report: &l.report, warn: &l.warn, secrets: secrets}
	if s.Tiers.Source != TiersFile && s.Tiers.Source != TiersNone {
		tiers.elsewhere = s.Tiers.Source
	}
	if l.tiers != nil {
		tiers.read(*l.tiers)
		if l.tiers.name == builtInTiers && len(l.paths) > 0 && s.Tiers.Source == TiersFile {
			l.warn.addf(builtInTiers, 0, "", "the demo keys of the example are valid for your rules: set tiers.path, or tiers.source to none")
		}
	}
	l.warnOfIdleSource()
	rules := l.readRules(secrets, &tiers)
	l.judgeOverrides(&tiers, rules.rules)
	if err := l.report.err(); err != nil {
		return nil, err
	}
	return &Generation{
		Rules:    rules.rules,
		Places:   rules.places,
		Secrets:  secrets,
		Files:    l.files,
		Digest:   l.digest(),
		Warnings: l.warn.sorted(),
	}, nil
}

// secret returns a secret, from its file for settings that did not come from
// [LoadSettings].
func (l *loader) secret(s Secret, file string) Secret {
	if s != "" || file == "" {
		return s
	}
	s, err := readSecret(file)
	if err != nil {
		l.report.addf(file, 0, "", "%s", err)
	}
	return s
}

// identity says how the rules find out who calls.
func (l *loader) identity(secrets *tier.Secrets, tiers *tiersReader) policy.Identity {
	t := &l.settings.Tiers
	return policy.Identity{
		Secrets: secrets,
		Tiers:   tiers.directory,
		// Where tiers come with requests every key is unknown, and whether it is one
		// has been judged before us.
		EachUnknownKey: t.UnknownKey == UnknownKeyEach || t.Source == TiersInHeader,
		TrustedEntry:   t.TrustedEntry,
		Elsewhere:      tiers.elsewhere != "",
	}
}

// warnOfIdleSource warns of settings of a source of tiers that is not the one that is
// asked: somebody may have forgotten to say so.
func (l *loader) warnOfIdleSource() {
	t, d := &l.settings.Tiers, defaultTiers()
	for _, s := range []struct {
		source string
		set    bool
	}{
		{TiersInRedis, t.Redis != d.Redis},
		{TiersInPostgres, t.Postgres != d.Postgres},
		{TiersOverHTTP, t.HTTP != d.HTTP},
	} {
		// Settings that were not loaded have no defaults.
		if s.set && s.source != t.Source && l.settings.Store.Type != "" {
			l.warn.addf("settings", 0, "tiers.source", "is %s, but tiers.%s is set, which nobody asks then", t.Source, s.source)
		}
	}
}

// readRules reads the rules and reports their problems.
func (l *loader) readRules(secrets *tier.Secrets, tiers *tiersReader) *rulesReader {
	r := &rulesReader{
		settings:   &l.settings.Rules,
		report:     &l.report,
		warn:       &l.warn,
		secrets:    secrets,
		rules:      policy.NewRules(l.identity(secrets, tiers)),
		tiers:      tiers.names,
		tiersKnown: l.settings.Tiers.Source == TiersNone || tiers.names != nil,
		domains:    make(map[string]*domainReader),
		keys:       make(map[string]bool),
	}
	if l.settings.Store.Type == StoreRedis {
		r.maxLogSlots = l.settings.Store.Redis.MaxLogSlots
	}
	if choice, ok := policy.ParseOnStoreError(l.settings.Store.OnError); ok {
		r.rules.SetOnStoreError(choice)
	}
	if l.settings.Rules.ShadowMode {
		r.rules.ObserveAll()
	}
	if l.settings.Rules.QuotaMode {
		r.rules.QuotaAll()
	}
	for _, src := range l.rules {
		r.read(src)
	}
	r.finish()
	return r
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
