package tier

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier/limits"
)

// Directory is one generation of tiers and subjects. Build it with
// [NewDirectory] and Add; after that it is read-only and safe for concurrent
// use. Rules without a directory know no subject.
type Directory struct {
	tiers       []string
	defaultTier string
	byDigest    map[Sum]*Subject
	limits      map[string]*limits.Set // of the tiers that carry some
	byID        map[string]*Subject
}

// NewDirectory returns a directory without subjects. defaultTier is the tier of unknown
// keys and of subjects without a tier. It must be one of tiers.
func NewDirectory(tiers []string, defaultTier string) (*Directory, error) {
	d := &Directory{
		tiers:       tiers,
		defaultTier: defaultTier,
		byDigest:    make(map[Sum]*Subject),
		byID:        make(map[string]*Subject),
	}
	if !d.HasTier(defaultTier) {
		return nil, fmt.Errorf("the default tier %q is not one of %q", defaultTier, tiers)
	}
	return d, nil
}

// SetLimits sets the limits that tiers carry, by their names.
func (d *Directory) SetLimits(limits map[string]*limits.Set) { d.limits = limits }

// Limits returns the limits that a tier carries, nil if there are none. d may be nil.
func (d *Directory) Limits(tier string) *limits.Set {
	if d == nil {
		return nil
	}
	return d.limits[tier]
}

// Carried returns the keys of the limits that tiers carry, sorted. It is never nil.
func (d *Directory) Carried() []string {
	keys := make(map[string]bool)
	for _, set := range d.limits {
		for _, l := range set.All() {
			keys[l.Key()] = true
		}
	}
	all := slices.AppendSeq([]string{}, maps.Keys(keys))
	slices.Sort(all)
	return all
}

// Add adds a subject with the digests of its API keys. A subject without a tier gets the
// default tier. Add refuses an id or a digest that the directory already has, an invalid
// digest and an unknown tier, and then adds nothing.
func (d *Directory) Add(s Subject, digests ...string) error {
	switch {
	case s.ID == "":
		return fmt.Errorf("a subject needs an id")
	case strings.HasPrefix(s.ID, AnonymousPrefix):
		return fmt.Errorf("subject %q: %q stands for the address of a caller without a key", s.ID, AnonymousPrefix)
	}
	if s.Tier == "" {
		s.Tier = d.defaultTier
	}
	known := slices.Index(d.tiers, s.Tier)
	if known < 0 {
		return fmt.Errorf("subject %q: unknown tier %q, expected one of %q", s.ID, s.Tier, d.tiers)
	}
	s.Tier = d.tiers[known] // one text for all of its subjects
	if d.byID[s.ID] != nil {
		return fmt.Errorf("subject %q: a second subject with this id", s.ID)
	}
	sums := make([]Sum, len(digests))
	for i, digest := range digests {
		var ok bool
		if sums[i], ok = SumOf(Key{Digest: digest}); !ok {
			return fmt.Errorf("subject %q: a digest is %d hex digits", s.ID, DigestLen)
		}
		if other := d.byDigest[sums[i]]; other != nil {
			return fmt.Errorf("subject %q: one of its keys also belongs to %q", s.ID, other.ID)
		}
	}
	d.byID[s.ID] = &s
	for _, key := range sums {
		d.byDigest[key] = &s
	}
	return nil
}

// ByDigest returns the subject of the API key with this digest, or nil. The subject may
// be disabled.
func (d *Directory) ByDigest(digest string) *Subject {
	key, ok := SumOf(Key{Digest: digest})
	if !ok {
		return nil
	}
	return d.byDigest[key]
}

// ByID returns the subject with this id, or nil.
func (d *Directory) ByID(id string) *Subject { return d.byID[id] }

// Resolve implements [Resolver]. It never waits and always answers.
func (d *Directory) Resolve(_ context.Context, k Key, _ time.Duration) (a Answer, ok bool) {
	if k.Digest == "" {
		return Answer{Subject: d.byID[k.ID]}, true
	}
	return Answer{Subject: d.ByDigest(k.Digest)}, true
}

// DefaultTier returns the tier of unknown keys and of subjects without a tier.
func (d *Directory) DefaultTier() string { return d.defaultTier }

// Tiers returns the names of the tiers, in the order of the file.
func (d *Directory) Tiers() []string { return d.tiers }

// SubjectsByTier returns how many subjects each tier has, without tiers that have none.
func (d *Directory) SubjectsByTier() map[string]int {
	counts := make(map[string]int)
	for _, s := range d.byID {
		counts[s.Tier]++
	}
	return counts
}

// Observed returns for how many subjects an override says that the rule with a name only observes,
// and for how many that it does not, by the name of the rule.
func (d *Directory) Observed() (only, not map[string]int) {
	only, not = make(map[string]int), make(map[string]int)
	for _, s := range d.byID {
		if s.Extra == nil {
			continue
		}
		for rule, o := range s.Extra.Overrides {
			switch o.Observe {
			case ObserveOnly:
				only[rule]++
			case ObserveNot:
				not[rule]++
			}
		}
	}
	return only, not
}

// All returns the subjects, in no order.
func (d *Directory) All() iter.Seq[*Subject] { return maps.Values(d.byID) }

// NewKeys returns how many API keys each subject has that it does not have in another directory, by
// its id.
func (d *Directory) NewKeys(other *Directory) map[string]int {
	counts := make(map[string]int)
	for key, s := range d.byDigest {
		if o := other.byDigest[key]; o == nil || o.ID != s.ID {
			counts[s.ID]++
		}
	}
	return counts
}

// Subjects returns the number of subjects.
func (d *Directory) Subjects() int { return len(d.byID) }

// HasTier reports whether there is a tier with this name.
func (d *Directory) HasTier(tier string) bool { return slices.Contains(d.tiers, tier) }
