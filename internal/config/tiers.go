package config

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/tier"
)

// tiersDoc is a tiers file.
type tiersDoc struct {
	Tiers    field[[]field[string]] `yaml:"tiers,required"`
	Default  field[string]          `yaml:"default,required"`
	Subjects field[list]            `yaml:"subjects"`
}

// subject is one item of subjects.
type subject struct {
	ID        field[string]                 `yaml:"id,required"`
	Tier      field[string]                 `yaml:"tier"`
	Keys      []field[subjectKey]           `yaml:"keys"`
	Disabled  bool                          `yaml:"disabled"`
	Overrides overrides                     `yaml:"overrides"`
	Labels    field[ordered[field[string]]] `yaml:"labels"`
}

type subjectKey struct {
	SHA256 field[string] `yaml:"sha256"`
	Plain  field[Secret] `yaml:"plain"`
}

// tiersReader turns a tiers file into a directory.
type tiersReader struct {
	report  *report
	warn    *report
	secrets *tier.Secrets
	file    string
	// elsewhere is the source that has the subjects; empty: the file has.
	elsewhere string

	names     []string // of the tiers; nil if they could not be read
	directory *tier.Directory
	lines     []subjectLine // of the subjects in the directory
	byID      map[string]int
	plain     int            // keys in plain text
	overrides []overrideLine // of the subjects added
}

// subjectLine is where a subject stands.
type subjectLine struct {
	id   string
	line int
}

// read reads the file and reports its problems. If the list of tiers is wrong, names
// stays nil. If the file is not one YAML document, directory stays nil.
func (t *tiersReader) read(src source) {
	t.report.file(src.name)
	t.warn.file(src.name)
	t.file = src.name
	docs, problem := parse(t.file, src.data)
	switch {
	case problem != nil:
		t.report.add(*problem)
		return
	case len(docs) > 1:
		t.report.addf(t.file, docs[1].Line, "", "a tiers file holds one YAML document, this is another")
		return
	case len(docs) == 0 || root(docs[0]) == nil:
		t.report.addf(t.file, 0, "", "the file is empty: it needs tiers, default and subjects")
		return
	}
	d := &decoder{file: t.file, report: t.report, hideValues: true}
	var doc tiersDoc
	d.decode(root(docs[0]), reflect.ValueOf(&doc).Elem(), nil)
	t.tiers(d, &doc)
	list := doc.Subjects.value.node
	switch {
	case t.elsewhere != "":
		if t.file != builtInTiers && list != nil && len(list.Content) > 0 {
			d.problem(doc.Subjects.spot, "subjects come from tiers.source %s: this file has the names of the tiers and the default alone", t.elsewhere)
		}
	case list != nil:
		for i, n := range list.Content {
			var s field[subject]
			at := &path{parent: doc.Subjects.path, index: i, item: n}
			s.readLocated(d, n, at)
			t.subject(d, &s)
		}
	}
	if t.plain > 0 && t.file != builtInTiers {
		t.warn.addf(t.file, 0, "", "%s in plain text: write their sha256 (rls digest) outside of examples", counted(t.plain, "API key"))
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// maxTiers bounds the names, which are searched one by one. A tier is something
// that is sold, so there are a handful; thousands are subjects in the wrong place.
const maxTiers = 1000

// tiers reads the names and makes the directory.
func (t *tiersReader) tiers(d *decoder, doc *tiersDoc) {
	names := make([]string, 0, len(doc.Tiers.value))
	for i := range doc.Tiers.value {
		f := &doc.Tiers.value[i]
		switch {
		case f.bad, len(names) > maxTiers:
		case f.value == "":
			d.problem(f.spot, "a tier needs a name")
		case slices.Contains(names, f.value):
			d.problem(f.spot, "this tier is listed twice")
		default:
			names = append(names, f.value)
		}
	}
	if doc.Tiers.set && !doc.Tiers.bad && len(doc.Tiers.value) == 0 {
		d.problem(doc.Tiers.spot, "at least one tier is needed")
	}
	if len(names) > maxTiers {
		d.problem(doc.Tiers.spot, "more than %d tiers", maxTiers)
		names = nil
	}
	fallback := doc.Default.value
	if len(names) == 0 {
		// The file has a problem. The subjects are judged all the same, in a directory
		// that is never used.
		names = []string{fallback}
	} else {
		t.names = names
		if !slices.Contains(names, fallback) {
			if doc.Default.set && !doc.Default.bad {
				d.problem(doc.Default.spot, "%s", unknownTier(fallback, names))
			}
			fallback = names[0] // never used, as above
		}
	}
	// Neither name nor default can be wrong here.
	t.directory, _ = tier.NewDirectory(names, fallback)
}

// unknownTier says that a text is not the name of a tier. It does not repeat the
// text, which may be an API key.
func unknownTier(name string, names []string) string {
	return "unknown tier, expected one of " + someNames(names) + didYouMean(name, names)
}

// subject adds one item of the list to the directory and reports its problems.
func (t *tiersReader) subject(d *decoder, f *field[subject]) {
	s := &f.value
	if s.ID.set && !s.ID.bad && s.ID.value == "" {
		d.problem(s.ID.spot, "a subject needs an id")
	}
	if s.Tier.set && !s.Tier.bad && s.Tier.value == "" {
		d.problem(s.Tier.spot, "a tier needs a name; leave the key out for the default tier")
	}
	digests := make([]string, 0, len(s.Keys))
	spots := make([]spot, 0, len(s.Keys))
	for i := range s.Keys {
		if digest, ok := t.digest(d, &s.Keys[i]); ok {
			digests = append(digests, digest)
			spots = append(spots, s.Keys[i].spot)
		}
	}
	extra := tier.Extra{Overrides: d.overrides(s.Overrides), Labels: d.labels(&s.Labels)}
	added := tier.Subject{ID: s.ID.value, Tier: s.Tier.value, Disabled: s.Disabled}
	if len(extra.Overrides) > 0 || len(extra.Labels) > 0 {
		added.Extra = &extra
	}
	t.add(d, added, digests, subjectSpots{id: s.ID.orElse(f.spot), tier: s.Tier.spot, keys: spots})
	for i := range s.Overrides {
		e := &s.Overrides[i]
		if o, ok := extra.Overrides[e.key]; ok && len(t.overrides) < maxProblems {
			t.overrides = append(t.overrides, overrideLine{e.key, len(o.Limits), Problem{File: t.file, Line: e.line, Path: d.render(e.path)}})
		}
	}
}

// digest reads one key. A message never repeats a plain one.
func (t *tiersReader) digest(d *decoder, f *field[subjectKey]) (string, bool) {
	k := &f.value
	switch {
	case f.bad:
	case k.SHA256.set && k.Plain.set:
		d.problem(f.spot, "both sha256 and plain: give one of the two")
	case k.Plain.set && t.secrets.Key(string(k.Plain.value)) == "":
		d.problem(k.Plain.spot, "an API key cannot be empty")
	case k.Plain.set:
		t.plain++
		return t.secrets.Digest(string(k.Plain.value)), true
	case !k.SHA256.set:
		d.problem(f.spot, "neither sha256 nor plain: give one of the two")
	case len(k.SHA256.value) == tier.DigestLen && !isDigest(k.SHA256.value):
		d.problem(k.SHA256.spot, "a sha256 is %d hex digits, this has other characters", tier.DigestLen)
	case !isDigest(k.SHA256.value):
		d.problem(k.SHA256.spot, "a sha256 is %d hex digits, this is %s", tier.DigestLen, counted(len(k.SHA256.value), "character"))
	default:
		return strings.ToLower(k.SHA256.value), true
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

// subjectSpots says where the parts of a subject stand.
type subjectSpots struct {
	id, tier spot
	keys     []spot
}

// add puts a subject into the directory and reports every reason why it cannot be
// there.
func (t *tiersReader) add(d *decoder, s tier.Subject, digests []string, at subjectSpots) {
	if s.Tier != "" && !t.directory.HasTier(s.Tier) {
		if t.names != nil {
			d.problem(at.tier, "%s", unknownTier(s.Tier, t.names))
		}
		s.Tier = ""
	}
	switch {
	case strings.HasPrefix(s.ID, tier.AnonymousPrefix):
		d.problem(at.id, "an id cannot begin with %q, which stands for the address of a caller without a key", tier.AnonymousPrefix)
		s.ID = ""
	case t.directory.ByID(s.ID) != nil:
		d.problem(at.id, "this id is also that of the subject on line %d", t.line(s.ID))
		s.ID = ""
	}
	if s.ID == "" {
		// The file has a problem. The subject is kept under a name that no id has, so
		// that later subjects with one of its keys are found, too.
		s.ID = fmt.Sprintf("\x00%d", len(t.lines))
	}
	kept := 0
	for i, digest := range digests {
		if other := t.directory.ByDigest(digest); other != nil {
			d.problem(at.keys[i], "this key is also that of the subject on line %d", t.line(other.ID))
		} else if first := slices.Index(digests[:kept], digest); first >= 0 {
			d.problem(at.keys[i], "the same key as on line %d", at.keys[first].line)
		} else {
			digests[kept], at.keys[kept] = digest, at.keys[i]
			kept++
		}
	}
	if err := t.directory.Add(s, digests[:kept]...); err != nil {
		d.problem(at.id, "this subject cannot be kept") // the error has its id
		return
	}
	t.lines = append(t.lines, subjectLine{s.ID, at.id.line})
}

// line returns where a subject stands. The index is made for the first question:
// good files ask none.
func (t *tiersReader) line(id string) int {
	if t.byID == nil {
		t.byID = make(map[string]int)
	}
	for _, l := range t.lines[len(t.byID):] {
		t.byID[l.id] = l.line
	}
	return t.byID[id]
}
