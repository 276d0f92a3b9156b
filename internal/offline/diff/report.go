package diff

import "cmp"

// A Verdict says what a change does to requests.
type Verdict string

// The verdicts.
const (
	Stricter Verdict = "stricter" // some requests are denied that passed
	Looser   Verdict = "looser"   // some requests pass that were denied
	Both     Verdict = "both"     // either may be
	Neither  Verdict = "neither"  // the same requests pass
)

// String returns the verdict as people read it.
func (v Verdict) String() string {
	switch v {
	case Both:
		return "stricter and looser"
	case Neither:
		return "neither stricter nor looser"
	default:
		return string(v)
	}
}

// join returns the verdict of two changes together.
func join(a, b Verdict) Verdict {
	switch {
	case a == Neither || a == "":
		return cmp.Or(b, Neither)
	case a == b || b == Neither || b == "":
		return a
	default:
		return Both
	}
}

// The values of [Change.History].
const (
	Kept   = "kept"   // all logs go on
	Empty  = "empty"  // all logs start with nothing used
	Partly = "partly" // some limits have logs that start with nothing used
)

// A Report says what changes in meaning. Its lists are in a stable order. "rls diff --json" prints
// its JSON form, which docs/diff.schema.json describes.
type Report struct {
	// Changed is false if the sets mean the same.
	Changed bool `json:"changed"`
	// Verdict is that of all changes together.
	Verdict Verdict        `json:"verdict"`
	Old     SetSummary     `json:"old"`
	New     SetSummary     `json:"new"`
	Domains []DomainChange `json:"domains"`
	Rules   []RuleChange   `json:"rules"`
	// Matches are at most [MaxMatches], and MatchesLeftOut is how many more there are.
	Matches        []MatchChange   `json:"matches"`
	MatchesLeftOut int             `json:"matches_left_out"`
	Tiers          []TierChange    `json:"tiers"`
	Subjects       []SubjectChange `json:"subjects"`
	// Incomplete says why descriptors may match something else although Matches does not say
	// so. Empty: Matches, with those left out, are all.
	Incomplete string `json:"incomplete,omitempty"`
	// Live is what a running service has counted. Nil: none was asked.
	Live *Live `json:"live,omitempty"`
}

// SetSummary is one of the two sets.
type SetSummary struct {
	// Path is what the operator compares, as written.
	Path  string `json:"path"`
	Rules int    `json:"rules"`
	// Subjects is how many the tiers file has.
	Subjects int `json:"subjects"`
}

// A DomainChange is a domain that is new or gone, or that has other headers.
type DomainChange struct {
	Domain string `json:"domain"`
	// What is added, removed or headers.
	What string `json:"what"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// A RuleChange is a rule that is new or gone, or that means something else.
type RuleChange struct {
	// What is added, removed or changed.
	What   string `json:"what"`
	Domain string `json:"domain"`
	// Path is the rule's position in the rules: edge|route=search/api_key. It has no API key.
	Path string `json:"path"`
	// Name is the new name, or the old one of a rule that is gone.
	Name string `json:"name"`
	// OldLocation and NewLocation are file:line.
	OldLocation string  `json:"old_place,omitempty"`
	NewLocation string  `json:"new_place,omitempty"`
	Verdict     Verdict `json:"verdict"`
	// Note says that no request can match the rule.
	Note    string   `json:"note,omitempty"`
	Changes []Change `json:"changes"`
}

// A Change is one part of a rule, or of the limits of subjects under it, that is different.
type Change struct {
	// What is the key of rules files that stands for the part, or log if only the names of logs
	// are different.
	What string `json:"what"`
	// Rule is the name of the rule, in changes of tiers and subjects.
	Rule string `json:"rule,omitempty"`
	// Tiers are the tiers for which it is so. Empty: for all requests of the rule.
	Tiers   []string `json:"tiers,omitempty"`
	Old     string   `json:"old"`
	New     string   `json:"new"`
	Verdict Verdict  `json:"verdict"`
	// Worst is the most that the limits admit, before and after.
	Worst string `json:"worst_case,omitempty"`
	// History says whether what callers have used still counts: kept, empty or partly. Empty: the
	// change has nothing to do with it.
	History string `json:"history,omitempty"`
}

// A MatchChange is a kind of descriptors that get another rule.
type MatchChange struct {
	Domain string `json:"domain"`
	// Descriptor has a pattern for each entry: route=search, api_key=*.
	Descriptor string `json:"descriptor"`
	// Example is one such descriptor, as rls explain takes it. Values that must not be shown are
	// "***" in it.
	Example string `json:"example"`
	// OldRule and NewRule are names of rules, and OldPath and NewPath their positions. Empty: no rule.
	OldRule string  `json:"old_rule"`
	OldPath string  `json:"old_path"`
	NewRule string  `json:"new_rule"`
	NewPath string  `json:"new_path"`
	Verdict Verdict `json:"verdict"`
	// History is empty if the descriptors had a limit and still have one.
	History string `json:"history,omitempty"`
	// Kinds is how many kinds of descriptors change in this way. Descriptor is one of them.
	Kinds int `json:"kinds"`

	// implied is true if a RuleChange says the same: the rule is new or gone, and no other rule
	// has its descriptors.
	implied bool
}

// A TierChange is a tier that is new or gone or carries other limits, or another default tier.
type TierChange struct {
	// What is added, removed, limits or default.
	What    string  `json:"what"`
	Old     string  `json:"old,omitempty"`
	New     string  `json:"new,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Changes are the limits that the tier carries, or that callers with an unknown API key get with
	// another default tier, at most [MaxChanges]. LeftOut is how many more there are.
	Changes []Change `json:"changes"`
	LeftOut int      `json:"left_out"`
}

// A SubjectChange is a group of subjects with the same change.
type SubjectChange struct {
	// What is added, removed, tier, disabled, enabled, keys, labels or limits.
	What string `json:"what"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
	// Count is how many there are, and Subjects has the ids of the first [MaxSubjects].
	Count    int      `json:"count"`
	Subjects []string `json:"subjects"`
	Verdict  Verdict  `json:"verdict"`
	// Changes are the limits that are different for these subjects, at most [MaxChanges].
	// LeftOut is how many more there are.
	Changes []Change `json:"changes"`
	LeftOut int      `json:"left_out"`
}

// Bounds of the lists of a [Report].
const (
	MaxMatches  = 1000
	MaxSubjects = 20
	MaxChanges  = 20
)
