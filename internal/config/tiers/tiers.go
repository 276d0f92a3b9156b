package tiers

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/files"
	configrules "github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
)

// tiersDoc is a tiers file.
type tiersDoc struct {
	Tiers    strict.Field[tierList]    `yaml:"tiers,required" doc:"the names of the tiers, or a mapping of each name to the limits that the tier carries"`
	Default  strict.Field[string]      `yaml:"default,required" doc:"the tier of customers without one and of unknown keys"`
	Subjects strict.Field[strict.List] `yaml:"subjects" doc:"the customers; the file may have 16 MiB"`
}

// subject is one item of subjects.
type subject struct {
	ID        strict.Field[string]                               `yaml:"id,required" doc:"its id, unique. Never use an API key: the id is shown"`
	Tier      strict.Field[string]                               `yaml:"tier" doc:"its tier; without it the default"`
	Keys      []strict.Field[subjectKey]                         `yaml:"keys" doc:"its API keys, which share one counter for each rule"`
	Disabled  bool                                               `yaml:"disabled" doc:"rate limits treat its keys as unknown; an authorization answers 403"`
	Overrides configrules.Overrides                              `yaml:"overrides" doc:"limits of this customer by the name of the rule, in the language of by_tier; observe: true counts and never denies; until: 2026-01-31T18:00:00Z ends it"`
	Labels    strict.Field[strict.Ordered[strict.Field[string]]] `yaml:"labels" doc:"texts for metadata and headers, at most 32. Names have letters, digits and _.- (at most 64), values at most 256 bytes"`
}

type subjectKey struct {
	SHA256 strict.Field[string]          `yaml:"sha256" doc:"the digest of an API key, as rls digest prints it"`
	Plain  strict.Field[settings.Secret] `yaml:"plain" doc:"the API key itself, for examples; rls validate warns"`
}

// A KeyDoc describes a key of a tiers file, for docs/reference/settings.md.
type KeyDoc struct{ Path, Doc string }

// Keys returns all keys of a tiers file.
func Keys() (all []KeyDoc) {
	for _, part := range []struct {
		prefix string
		of     reflect.Type
	}{
		{"", reflect.TypeFor[tiersDoc]()},
		{"tiers.NAME.", reflect.TypeFor[carried]()},
		{"tiers.NAME.limit.", reflect.TypeFor[carriedLimit]()},
		{"subjects[].", reflect.TypeFor[subject]()},
		{"subjects[].keys[].", reflect.TypeFor[subjectKey]()},
	} {
		for _, k := range strict.KeysOf(part.of) {
			all = append(all, KeyDoc{part.prefix + k.Name, k.Field.Tag.Get("doc")})
		}
	}
	return all
}

// Options say how [Read] reads a tiers file.
type Options struct {
	Secrets *tier.Secrets
	// Elsewhere is the source that has the subjects. Empty: the file has them.
	Elsewhere string
	// BuiltIn says that the file is the built-in example. It may hold API keys in plain
	// text, and subjects also if Elsewhere has them.
	BuiltIn bool
	// Report takes the problems, and Warn the warnings.
	Report, Warn *strict.Report
}

// A File is the content of a tiers file. The zero value stands for no file.
type File struct {
	Names     []string        // of the tiers; nil: they could not be read
	Directory *tier.Directory // nil: the file could not be parsed

	// overrides and labels are those of the subjects in the directory.
	overrides []overrideLine
	labels    map[labelValue]*labelLine
}

// Read reads a tiers file.
func Read(o Options, src files.File) *File {
	t := tiersReader{Options: o, file: src.Name, lines: make(map[string]int), values: make(map[string]int)}
	t.result.labels = make(map[labelValue]*labelLine)
	t.read(src)
	result := t.result // a pointer into t would keep all of the options, and what they point to
	return &result
}

// tiersReader turns a tiers file into a directory.
type tiersReader struct {
	Options
	file   string
	result File

	lines map[string]int // of the subjects in the directory, by their ids
	plain int            // keys in plain text
	// values are the numbers of different values of each label.
	values map[string]int
}

// read reads the file and reports its problems. If the list of tiers is wrong, names
// stays nil. If the file is not one YAML document, directory stays nil.
func (t *tiersReader) read(src files.File) {
	t.Report.File(src.Name)
	t.Warn.File(src.Name)
	root := strict.Document(t.file, src.Data, t.Report, "a tiers file", "tiers, default and subjects")
	if root == nil {
		return
	}
	d := &strict.Decoder{File: t.file, Report: t.Report, Warn: t.Warn, HideValues: true}
	var doc tiersDoc
	d.Decode(root, reflect.ValueOf(&doc).Elem(), nil)
	t.tiers(d, &doc)
	list := doc.Subjects.Value.Node
	switch {
	case t.Elsewhere != "":
		if !t.BuiltIn && list != nil && len(list.Content) > 0 {
			d.Problem(doc.Subjects.Position, "subjects come from tiers.source %s: keep only tiers and default in this file", t.Elsewhere)
		}
	case list != nil:
		for i, n := range list.Content {
			var s strict.Field[subject]
			at := &strict.Path{Parent: doc.Subjects.Path, Index: i, Item: n}
			s.ReadLocated(d, n, at)
			t.subject(d, &s)
		}
	}
	if t.plain > 0 && !t.BuiltIn {
		t.Warn.Addf(t.file, 0, "", "%s in plain text: write their sha256 (rls digest) outside of examples", counted(t.plain, "API key"))
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// maxTiers bounds the names, which are searched one by one. A service sells a handful of tiers.
// Thousands of names are subjects by mistake.
const maxTiers = 1000

// tiers reads the names and makes the directory.
func (t *tiersReader) tiers(d *strict.Decoder, doc *tiersDoc) {
	names := make([]string, 0, len(doc.Tiers.Value))
	limits := make(map[string]*limits.Set)
	for i := range doc.Tiers.Value {
		f := &doc.Tiers.Value[i].name
		switch {
		case f.Bad, len(names) > maxTiers:
		case f.Value == "":
			d.Problem(f.Position, "a tier needs a name")
		case slices.Contains(names, f.Value):
			d.Problem(f.Position, "this tier is listed twice")
		default:
			names = append(names, f.Value)
			if carries := doc.Tiers.Value[i].carries.limits(d); carries != nil {
				limits[f.Value] = carries
			}
		}
	}
	if doc.Tiers.Set && !doc.Tiers.Bad && len(doc.Tiers.Value) == 0 {
		d.Problem(doc.Tiers.Position, "at least one tier is needed")
	}
	if len(names) > maxTiers {
		d.Problem(doc.Tiers.Position, "more than %d tiers", maxTiers)
		names = nil
	}
	fallback := doc.Default.Value
	if len(names) == 0 {
		// The file has a problem. The subjects are checked in a directory that is not used.
		names = []string{fallback}
	} else {
		t.result.Names = names
		if !slices.Contains(names, fallback) {
			if doc.Default.Set && !doc.Default.Bad {
				d.Problem(doc.Default.Position, "%s", unknownTier(fallback, names))
			}
			fallback = names[0] // the directory is not used, as above
		}
	}
	// The names and the default are valid here.
	t.result.Directory, _ = tier.NewDirectory(names, fallback)
	t.result.Directory.SetLimits(limits)
}

// unknownTier returns the message for a text that is not the name of a tier. It does not
// repeat the text, which may be an API key.
func unknownTier(name string, names []string) string {
	return "unknown tier, expected one of " + strict.SomeNames(names) + strict.DidYouMean(name, names)
}

// subject adds one item of the list to the directory and reports its problems.
func (t *tiersReader) subject(d *strict.Decoder, f *strict.Field[subject]) {
	s := &f.Value
	if s.ID.Set && !s.ID.Bad && s.ID.Value == "" {
		d.Problem(s.ID.Position, "a subject needs an id")
	}
	if canonical := rules.CanonicalAddress(s.ID.Value); canonical != s.ID.Value {
		d.Warning(s.ID.Position, "no request has this subject: requests have the address %s", canonical)
	}
	if s.Tier.Set && !s.Tier.Bad && s.Tier.Value == "" {
		d.Problem(s.Tier.Position, "a tier needs a name; remove the key for the default tier")
	}
	digests := make([]string, 0, len(s.Keys))
	positions := make([]strict.Position, 0, len(s.Keys))
	for i := range s.Keys {
		if digest, ok := t.digest(d, &s.Keys[i]); ok {
			digests = append(digests, digest)
			positions = append(positions, s.Keys[i].Position)
		}
	}
	extra := tier.Extra{Overrides: configrules.DecodeOverrides(d, s.Overrides), Labels: readLabels(d, &s.Labels)}
	added := tier.Subject{ID: s.ID.Value, Tier: s.Tier.Value, Disabled: s.Disabled}
	if len(extra.Overrides) > 0 || len(extra.Labels) > 0 {
		added.Extra = &extra
	}
	t.add(d, added, digests, subjectPositions{id: s.ID.OrElse(f.Position), tier: s.Tier.Position, keys: positions})
	t.keepLabels(d, s, extra.Labels)
	for i := range s.Overrides {
		e := &s.Overrides[i]
		if o, ok := extra.Overrides[e.Key]; ok && len(t.result.overrides) < strict.MaxProblems {
			t.result.overrides = append(t.result.overrides, overrideLine{e.Key, s.ID.Value, s.Tier.Value, o, strict.Problem{File: t.file, Line: e.Line, Path: d.Render(e.Path)}})
		}
	}
}

// digest returns the digest of one key. Messages never repeat a plain key.
func (t *tiersReader) digest(d *strict.Decoder, f *strict.Field[subjectKey]) (string, bool) {
	k := &f.Value
	switch {
	case f.Bad:
	case k.SHA256.Set && k.Plain.Set:
		d.Problem(f.Position, "both sha256 and plain: give one of the two")
	case k.Plain.Set && t.Secrets.Key(string(k.Plain.Value)) == "":
		d.Problem(k.Plain.Position, "an API key cannot be empty")
	case k.Plain.Set:
		t.plain++
		return t.Secrets.Digest(string(k.Plain.Value)), true
	case !k.SHA256.Set:
		d.Problem(f.Position, "neither sha256 nor plain: give one of the two")
	case len(k.SHA256.Value) == tier.DigestLen && !isDigest(k.SHA256.Value):
		d.Problem(k.SHA256.Position, "a sha256 is %d hex digits, this one has other characters", tier.DigestLen)
	case !isDigest(k.SHA256.Value):
		d.Problem(k.SHA256.Position, "a sha256 is %d hex digits, this is %s", tier.DigestLen, counted(len(k.SHA256.Value), "character"))
	default:
		return strings.ToLower(k.SHA256.Value), true
	}
	return "", false
}

func isDigest(text string) bool {
	if len(text) != tier.DigestLen {
		return false
	}
	var sum [tier.DigestLen / 2]byte
	_, err := hex.Decode(sum[:], []byte(text))
	return err == nil
}

// subjectPositions are the positions of the parts of a subject.
type subjectPositions struct {
	id, tier strict.Position
	keys     []strict.Position
}

// add puts a subject into the directory, and reports its problems.
func (t *tiersReader) add(d *strict.Decoder, s tier.Subject, digests []string, at subjectPositions) {
	if s.Tier != "" && !t.result.Directory.HasTier(s.Tier) {
		if t.result.Names != nil {
			d.Problem(at.tier, "%s", unknownTier(s.Tier, t.result.Names))
		}
		s.Tier = ""
	}
	switch {
	case strings.HasPrefix(s.ID, tier.AnonymousPrefix):
		d.Problem(at.id, "an id cannot begin with %q, which marks the address of a client without a key", tier.AnonymousPrefix)
		s.ID = ""
	case t.result.Directory.ByID(s.ID) != nil:
		d.Problem(at.id, "the subject on line %d has the same id", t.lines[s.ID])
		s.ID = ""
	}
	if s.ID == "" {
		// The file has a problem. The subject stays under a name that is not a valid id, so
		// that a later subject with one of its keys is reported, too.
		s.ID = fmt.Sprintf("\x00%d", len(t.lines))
	}
	kept := 0
	for i, digest := range digests {
		if other := t.result.Directory.ByDigest(digest); other != nil {
			d.Problem(at.keys[i], "the subject on line %d has the same key", t.lines[other.ID])
		} else if first := slices.Index(digests[:kept], digest); first >= 0 {
			d.Problem(at.keys[i], "the same key as on line %d", at.keys[first].Line)
		} else {
			digests[kept], at.keys[kept] = digest, at.keys[i]
			kept++
		}
	}
	if err := t.result.Directory.Add(s, digests[:kept]...); err != nil {
		d.Problem(at.id, "this subject cannot be kept") // the error has its id
		return
	}
	t.lines[s.ID] = at.id.Line
}

// readLabels reads the labels of a subject, or nil if it has none.
func readLabels(d *strict.Decoder, f *strict.Field[strict.Ordered[strict.Field[string]]]) map[string]string {
	if len(f.Value) == 0 {
		return nil
	}
	if len(f.Value) > tier.MaxLabels {
		d.Problem(f.Position, "%s, at most %d are allowed", counted(len(f.Value), "label"), tier.MaxLabels)
		return nil
	}
	read := make(map[string]string, len(f.Value))
	for i := range f.Value {
		e := &f.Value[i]
		if e.Value.Bad {
			continue
		}
		if err := tier.ValidLabels(map[string]string{e.Key: e.Value.Value}); err != nil {
			d.Problem(e.Position, "%s", strings.TrimPrefix(err.Error(), e.Key+": "))
			continue
		}
		read[e.Key] = e.Value.Value
	}
	return read
}

// overrideLine is an override, and where it is in the file.
type overrideLine struct {
	rule     string
	subject  string
	tier     string // empty: the default
	override tier.Override
	at       strict.Problem // without a message
}

// CheckPortable reports the overrides in the file, because envoyproxy/ratelimit has no subjects.
func (t *File) CheckPortable(report *strict.Report) {
	for _, o := range t.overrides {
		p := o.at
		p.Message = "envoyproxy/ratelimit has no limits of single subjects: the limit of the rule would apply there"
		report.Add(p)
	}
}

// CheckSubjects warns of overrides and labels in the file that do not count under the active rules
// as they are written.
func (t *File) CheckSubjects(active *rules.Rules, warn *strict.Report) {
	t.checkOverrides(active, warn)
	t.checkLabels(active, warn)
}

// checkOverrides warns of overrides that do not count as they are written.
func (t *File) checkOverrides(active *rules.Rules, warn *strict.Report) {
	if len(t.overrides) == 0 {
		return
	}
	named := make(map[string][]*rules.Rule)
	for _, r := range active.All() {
		named[r.Name] = append(named[r.Name], r)
	}
	var names []string // to suggest one of
	if len(named) <= configrules.MaxSuggest {
		names = slices.Sorted(maps.Keys(named))
	}
	for _, o := range t.overrides {
		p := o.at
		if len(named[o.rule]) == 0 {
			p.Message = "no rule has this name" + strict.DidYouMean(o.rule, names)
		}
		for _, r := range named[o.rule] {
			if note := active.OverrideNote(r, cmp.Or(o.tier, active.Tiers().DefaultTier()), &o.override); note != "" {
				p.Message = fmt.Sprintf("subject %s, rule %s: %s", strict.Label(o.subject), strict.Label(r.Name), note)
				break
			}
		}
		if p.Message != "" {
			warn.Add(p)
		}
	}
}

// A labelValue is a label with a value, of subjects of one tier.
type labelValue struct{ label, value, tier string }

// labelLine is where the first value of a label is in the file.
type labelLine struct {
	subject string
	more    int            // subjects with the same value
	at      strict.Problem // without a message
}

// keepLabels keeps the position of each value of a label, up to a number of values of each label.
func (t *tiersReader) keepLabels(d *strict.Decoder, s *subject, read map[string]string) {
	for i := range s.Labels.Value {
		e := &s.Labels.Value[i]
		value, ok := read[e.Key]
		if !ok {
			continue
		}
		v := labelValue{e.Key, value, s.Tier.Value}
		if known := t.result.labels[v]; known != nil {
			known.more++
			continue
		}
		if t.values[e.Key]++; t.values[e.Key] > strict.MaxProblems {
			continue
		}
		t.result.labels[v] = &labelLine{subject: s.ID.Value, at: strict.Problem{File: t.file, Line: e.Line, Path: d.Render(e.Path)}}
	}
}

// checkLabels warns of values that are no day, of labels that say when the periods of a rule start.
func (t *File) checkLabels(active *rules.Rules, warn *strict.Report) {
	if len(t.labels) == 0 {
		return
	}
	reported := make(map[*labelLine]bool)
	for _, r := range active.All() {
		check := func(of func(tier string) bool, terms *rules.Terms) {
			for i := range terms.Limits {
				l := &terms.Limits[i]
				if l.StartsLabel == "" {
					continue
				}
				for v, line := range t.labels {
					if v.label != l.StartsLabel || reported[line] || !of(cmp.Or(v.tier, active.Tiers().DefaultTier())) {
						continue
					}
					if _, err := l.Calendar.Starting(v.value); err != nil {
						reported[line] = true
						warn.Add(line.problem(r, err))
					}
				}
			}
		}
		check(func(tier string) bool { _, ok := r.ByTier[tier]; return !ok }, &r.Terms)
		for name, terms := range r.ByTier {
			check(func(tier string) bool { return tier == name }, &terms)
		}
	}
}

// problem says that the value is no day for a rule.
func (l *labelLine) problem(r *rules.Rule, err error) strict.Problem {
	who := strict.Label(l.subject)
	if l.more > 0 {
		who += fmt.Sprintf(" and %d more with this value", l.more)
	}
	p := l.at
	p.Message = fmt.Sprintf("subject %s: the periods of the rule %s start on the day in this label, which %s; they start as the rule says",
		who, strict.Label(r.Name), strings.TrimPrefix(err.Error(), "calendar: the text "))
	return p
}
