package config

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/portable"
	configrules "github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/config/tiers"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
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

// A Generation is one consistent reading of rules and tiers. It is immutable and safe for
// concurrent use.
type Generation struct {
	Rules *rules.Rules
	// Locations are the locations of the rules, in the order of Rules.All.
	Locations []configrules.Location
	// Secrets digests API keys the way the rules and the tiers were read.
	Secrets *tier.Secrets
	// Files are the files that were read, in order, without the built-in ones.
	Files []string
	// Sent is what the rules were made from if an xDS server sent them. Nil: the rules
	// are from files, or Rules are missing.
	Sent *Sent
	// Digest is a short name for the content of all files, or of what was sent: the same
	// content has the same digest, in every instance.
	Digest string
	// Warnings say what is unwise, in the order of the files. Nil: no warning.
	Warnings []strict.Problem

	tiers tiersRead
}

type tiersRead struct {
	secrets  *tier.Secrets
	file     *tiers.File
	digest   []byte   // of the content; nil: there is no file
	files    []string // its path, unless it is built in
	warnings []strict.Problem
}

// digestLen is the length of a generation's digest in bytes. It is enough to distinguish the
// generations of one service, and short enough to read.
const digestLen = 6

// Load reads the rules and the tiers that the settings name. The error is
// [strict.Problems]: everything that is wrong with any of the files. On error the generation
// is nil. Load is safe for concurrent use.
func Load(s settings.Settings) (*Generation, error) { return new(Input).Load(s) }

// load reads the files, and again if one of them changes meanwhile.
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
	l.report.Addf(cmp.Or(s.Rules.Path, s.Tiers.Path), 0, "", "the files changed %d times while rls read them: wait until they no longer change, or swap a whole directory at once", maxReads)
	return nil, l.report.Err()
}

const maxReads = 10

// settled reports whether the files are still as they were read. If a directory is swapped
// between the reading of two of its files, they do not belong together.
func (l *loader) settled() bool {
	if l.tiers != nil && !l.tiers.Settled() {
		return false
	}
	if l.tiersOf != nil && !l.tiersOf.Settled() {
		return false
	}
	for i := range l.rules {
		if !l.rules[i].Settled() {
			return false
		}
	}
	if len(l.paths) == 0 {
		return true
	}
	now := files.List(l.paths, l.settings.DropIn.Files)
	return slices.Equal(now.Files, l.listed.Files) && slices.Equal(now.Dangles, l.listed.Dangles) &&
		slices.Equal(now.Skipped, l.listed.Skipped) && slices.Equal(now.Failed, l.listed.Failed)
}

type loader struct {
	settings settings.Settings
	paths    []string              // of rules, which are one set; nil: the built-in example
	noRules  bool                  // not even those
	served   bool                  // rules come from an xDS server, and paths is nil
	sent     *Sent                 // what it sent; nil: nothing yet
	portable func(text string) any // see Input.Portable
	before   *Generation           // its tiers are used, and no file is read; nil: the tiers are read
	texts    []files.File          // of rules that are not in paths
	stdin    []byte                // what the path Stdin stands for; nil: nothing
	report   strict.Report
	warn     strict.Report
	files    []string
	listed   files.Listing // what the paths of rules stood for
	contents
}

// contents are the files that were read.
type contents struct {
	rules   []files.File
	tiers   *files.File // nil: tiers.source is "none", or the file cannot be read
	tiersOf *files.File // rules.tiers_of; nil: there is none, or it cannot be read
}

// readFiles reads all files before it checks any, so that reading takes as little time as
// possible.
func (l *loader) readFiles() {
	if p := l.settings.Tiers.Path; l.settings.Tiers.Source == settings.TiersNone || l.before != nil {
	} else if p == "" {
		l.warn.File(builtInTiers)
		l.tiers = &files.File{Name: builtInTiers, Data: exampleTiers}
	} else {
		l.report.File(p)
		l.warn.File(p)
		l.files = append(l.files, p)
		src, err := l.readSource(p, maxTiersFile)
		const elsewhere = "keep the subjects in PostgreSQL, in Redis or behind an HTTP endpoint, and set tiers.source to postgres, redis or http"
		switch {
		case errors.Is(err, files.TooLarge(maxTiersFile)):
			l.report.Addf(p, 0, "", "%s, about 100,000 subjects: %s", err, elsewhere)
		case strict.Parts(src.Data) > maxParts:
			l.report.Addf(p, 0, "", "%s: %s", errParts, elsewhere)
		case err != nil:
			l.report.Addf(p, 0, "", "%s", err)
		default:
			l.tiers = &src
		}
	}
	l.readTiersOf()
	which := l.settings.DropIn.Files
	l.readTexts()
	if len(l.paths) == 0 {
		if l.texts == nil && !l.noRules && !l.served {
			l.rules = []files.File{{Name: builtInRules, Data: exampleRules}}
		}
		return
	}
	listed := files.List(l.paths, which)
	l.listed = *listed
	switch {
	case len(listed.Files)+len(listed.Failed) > 0:
	case l.settings.DropIn.Answers:
		l.warn.Addf(l.paths[0], 0, "", "the directory holds no %s: rls limits no request, as envoyproxy/ratelimit does", which)
	default:
		l.report.Addf(l.paths[0], 0, "", "the directory holds no %s", which)
	}
	// Problems and warnings are in the order of the files.
	for _, file := range slices.Sorted(slices.Values(slices.Concat(listed.Files, listed.Dangles, listed.Skipped))) {
		l.report.File(file)
		l.warn.File(file)
	}
	for _, link := range listed.Dangles {
		l.warn.Addf(link, 0, "", "ignored: a symbolic link that leads nowhere")
	}
	for _, file := range listed.Skipped {
		if l.portable != nil {
			l.report.Addf(file, 0, "", "rls skips this file, which is not .yaml or .yml, and envoyproxy/ratelimit reads it: move it to another directory, or rename it")
			continue
		}
		l.warn.Addf(file, 0, "", "skipped: not .yaml or .yml; envoyproxy/ratelimit reads it")
	}
	l.readRulesFiles()
}

// readTiersOf reads the file rules.tiers_of.
func (l *loader) readTiersOf() {
	p := l.settings.Rules.TiersOf
	if p == "" || l.noRules {
		return
	}
	l.report.File(p)
	l.warn.File(p)
	l.files = append(l.files, p)
	if src, err := l.readSource(p, maxRulesFile); err != nil {
		l.report.Addf(p, 0, "", "%s", err)
	} else {
		l.tiersOf = &src
	}
}

func (l *loader) readTexts() {
	for i := range l.texts {
		src := &l.texts[i]
		l.report.File(src.Name)
		l.warn.File(src.Name)
		if len(src.Data) > maxRulesFile {
			l.report.Addf(src.Name, 0, "", "%s", files.TooLarge(maxRulesFile))
			continue
		}
		l.rules = append(l.rules, *src)
	}
}

func (l *loader) readSource(name string, most int64) (files.File, error) {
	if name != files.Stdin || l.stdin == nil {
		return files.ReadFile(name, most)
	}
	if int64(len(l.stdin)) > most {
		return files.File{}, files.TooLarge(most)
	}
	return files.File{Name: name, Data: l.stdin}, nil
}

func (l *loader) readRulesFiles() {
	for _, problem := range l.listed.Failed {
		l.report.Add(problem)
	}
	room, parts := int64(maxRules), maxAllParts
	for _, file := range l.listed.Files {
		l.files = append(l.files, file)
		src, err := l.readSource(file, maxRulesFile)
		has := strict.Parts(src.Data)
		if has > maxParts {
			err = errParts
		}
		if errors.Is(err, files.TooLarge(maxRulesFile)) || errors.Is(err, errParts) {
			l.report.Addf(file, 0, "", "%s: spread its rules over several files; with rules.merge_domains several files may have one domain", err)
			continue
		}
		if err != nil {
			l.report.Addf(file, 0, "", "%s", err)
			continue
		}
		if room -= int64(len(src.Data)); room < 0 {
			l.report.Addf(file, 0, "", "with this file the rules are larger than %d MiB", maxRules>>20)
			return
		}
		if parts -= has; parts < 0 {
			l.report.Addf(file, 0, "", "with this file the rules have more than %d keys and items of lists", maxAllParts)
			return
		}
		l.rules = append(l.rules, src)
	}
}

func (l *loader) generation() (*Generation, error) {
	t := l.readTiers()
	l.warnOfIdleSource()
	read, locations := l.readRules(t.secrets, t.file)
	if !l.noRules && !read.Missing() {
		t.file.CheckSubjects(read, &l.warn)
	}
	if err := l.report.Err(); err != nil {
		return nil, err
	}
	g := &Generation{
		Rules:     read,
		Locations: locations,
		Secrets:   t.secrets,
		Files:     l.files,
		Sent:      l.sent,
		Digest:    l.digest(),
		Warnings:  l.warn.Sorted(),
		tiers:     t,
	}
	if l.served {
		g.Files, g.Digest = t.files, l.sent.digest(t.digest)
		if l.tiersOf != nil {
			sum := sha256.Sum256(l.tiersOf.Data)
			g.Files = append(slices.Clip(g.Files), l.tiersOf.Name)
			g.Digest = l.sent.digest(append(slices.Clip(t.digest), sum[:]...))
		}
	}
	return g, nil
}

// readTiers reads the tiers file, or returns the tiers of the generation before.
func (l *loader) readTiers() tiersRead {
	if l.before != nil {
		for _, w := range l.before.tiers.warnings {
			l.warn.Add(w)
		}
		return l.before.tiers
	}
	s := &l.settings
	t := tiersRead{secrets: s.NewSecrets(s.Secrets.Key), file: new(tiers.File)}
	if s.Secrets.PreviousKey != "" || s.Secrets.PreviousUnkeyed {
		t.secrets.Previous(s.Secrets.PreviousKey.Reveal())
	}
	if l.tiers == nil {
		return t
	}
	builtIn := l.tiers.Name == builtInTiers
	t.file = tiers.Read(tiers.Options{
		Secrets: t.secrets, Elsewhere: l.elsewhere(), BuiltIn: builtIn, Report: &l.report, Warn: &l.warn,
	}, *l.tiers)
	if builtIn && (len(l.paths) > 0 || l.served) && s.Tiers.Source == settings.TiersFile {
		l.warn.Addf(builtInTiers, 0, "", "the demo keys of the example are valid for your rules: set tiers.path, or tiers.source to none")
	}
	if l.served {
		sum := sha256.Sum256(l.tiers.Data)
		t.digest, t.warnings = sum[:], l.warn.Sorted()
		if !builtIn {
			t.files = []string{l.tiers.Name}
		}
	}
	return t
}

// elsewhere returns the source that has the subjects, or "" if the tiers file has them.
func (l *loader) elsewhere() string {
	if source := l.settings.Tiers.Source; source != settings.TiersFile && source != settings.TiersNone {
		return source
	}
	return ""
}

// identity returns how the rules find the subject of a request.
func (l *loader) identity(secrets *tier.Secrets, directory *tier.Directory) rules.Identity {
	t := &l.settings.Tiers
	return rules.Identity{
		Secrets: secrets,
		Tiers:   directory,
		// If tiers come with requests, no key is known here. Another service has checked
		// the key before.
		EachUnknownKey: t.UnknownKey == settings.UnknownKeyEach || t.Source == settings.TiersInHeader,
		TrustedEntry:   t.TrustedEntry,
		Elsewhere:      l.elsewhere() != "",
	}
}

// warnOfIdleSource warns of settings of a customer source that tiers.source does not name.
// The operator may have forgotten to set it.
func (l *loader) warnOfIdleSource() {
	t, d := &l.settings.Tiers, settings.Default().Tiers
	for _, s := range []struct {
		source string
		set    bool
	}{
		{settings.TiersInRedis, !reflect.DeepEqual(t.Redis, d.Redis)},
		{settings.TiersInPostgres, t.Postgres != d.Postgres},
		{settings.TiersOverHTTP, t.HTTP != d.HTTP},
	} {
		// Settings of a test may have no defaults.
		if s.set && s.source != t.Source && l.settings.Store.Type != "" {
			l.warn.Addf("settings", 0, "tiers.source", "is %s, so rls does not ask tiers.%s, although it is set", t.Source, s.source)
		}
	}
	if r := &l.settings.Rules; r.Source == settings.RulesFiles && !reflect.DeepEqual(r.XDS, settings.Default().Rules.XDS) {
		l.warn.Addf("settings", 0, "rules.source", "is %s, so rls does not ask rules.xds, although it is set", r.Source)
	}
}

func (l *loader) readRules(secrets *tier.Secrets, file *tiers.File) (*rules.Rules, []configrules.Location) {
	s := &l.settings
	o := configrules.Options{
		Settings:   s.Rules,
		Identity:   l.identity(secrets, file.Directory),
		Tiers:      file.Names,
		TiersKnown: s.Tiers.Source == settings.TiersNone || file.Names != nil,

		UsageReports: s.DropIn.UsageReports,
		QuotaMode:    s.DropIn.QuotaMode,
		TiersOf:      l.tiersOf,
		Report:       &l.report,
		Warn:         &l.warn,
	}
	o.Scopes = scopesOf(&s.Store)
	o.OnStoreError, _ = rules.ParseOnStoreError(s.Store.OnError)
	switch {
	case !l.served:
		read, locations := configrules.Read(o, l.rules)
		if l.portable != nil {
			portable.Check(o, l.rules, l.portable)
			if s.Tiers.Path != "" {
				file.CheckPortable(&l.report)
			}
		}
		return read, locations
	case l.sent == nil:
		none, _ := configrules.ReadDomains(o, nil)
		none.SetMissing()
		return none, nil
	default:
		return configrules.ReadDomains(o, l.sent.Domains)
	}
}

func scopesOf(s *settings.Store) []configrules.Scope {
	all := []configrules.Scope{{Name: settings.ScopeRegion, Section: "store.redis"}}
	if s.Type == settings.StoreRedis {
		all[0].MaxLogSlots = settings.MaxLogSlots
		all[0].Cluster = s.Redis.URL.Topology == settings.RedisCluster
	}
	for i := range s.Scopes {
		one := &s.Scopes[i]
		all = append(all, configrules.Scope{
			Name: one.Name, MaxLogSlots: settings.MaxLogSlots, Timeout: one.Timeout, Section: "store.scopes." + one.Name + ".redis",
			Cluster: one.Redis.URL.Topology == settings.RedisCluster,
		})
	}
	return all
}

// digest returns the digest of the content. It includes the lengths of the files, so that
// moving text from one file to the next changes it.
func (l *loader) digest() string {
	h := sha256.New()
	write := func(src files.File) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(src.Data))))
		h.Write(src.Data)
	}
	if l.tiers != nil {
		write(*l.tiers)
	}
	if l.tiersOf != nil {
		write(*l.tiersOf)
	}
	for _, src := range l.rules {
		write(src)
	}
	return hex.EncodeToString(h.Sum(nil)[:digestLen])
}

// Bounds on the size of files. They report a wrong path, such as that of a disk image, before the
// process runs out of memory.
const (
	// The YAML library builds a tree of a whole file. A usual file takes about 30 times its size.
	// 16 MiB hold about 100,000 rules.
	maxRulesFile = 16 << 20
	// maxRules bounds the sum of all rules files of a directory.
	maxRules = 256 << 20
	// 16 MiB hold about 100,000 subjects with one key each.
	maxTiersFile = 16 << 20
	// maxParts bounds the keys and items of a file ([strict.Parts]), each of which takes up to
	// 1.2 kB while it is read, even if it is one byte of the file. 100,000 rules have 900,000, and
	// 16 MiB of subjects with tier, key, label and override 1.9 million.
	maxParts = 2_000_000
	// maxAllParts bounds the sum for all rules files: 256 MiB of usual rules have as many.
	maxAllParts = 16_000_000
)

var errParts = fmt.Errorf("more than %d keys and items of lists", maxParts)
