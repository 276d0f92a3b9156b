package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Limit of a rule, with the name it has in headers.
type Limit struct {
	window.Limit
	// Policy is the name of this limit in the RateLimit and RateLimit-Policy
	// headers: the rule's name, and the window too where the rule has several.
	// [Rules.Add] sets it.
	Policy string
}

// A Rule limits the descriptors that end on its path. The exported fields are
// what a rules file says and are given to [Rules.Add]; a rule is immutable
// after that.
type Rule struct {
	Domain string
	Path   []descriptors.Node
	// Name stands in statuses, headers, metadata and metrics, so it holds only
	// letters, digits and "_.-". Empty: made from the path.
	Name string
	// Subject is the key of the entry that says who is limited and so which tier
	// counts: an entry of the descriptor itself, else of any descriptor of the
	// request. Empty: the descriptor's own (last) entry if the rule has ByTier,
	// else the first entry that holds an API key.
	Subject string
	// Limits hold for every subject whose tier is not in ByTier. All of them
	// must have room. Empty together with ByTier: the rule matches and limits
	// nothing.
	Limits []Limit
	ByTier map[string][]Limit

	id         descriptors.RuleID
	label      string
	identity   []identityPart
	subject    int  // index of the subject's entry in the path; -1: elsewhere or none
	hasSubject bool // there is a subject: in the path, or by key in the request
	meter      Meter
}

// identityPart is one entry whose value says whose log it is.
type identityPart struct {
	entry  int
	secret bool
}

// ID names the rule; see [descriptors.RuleID].
func (r *Rule) ID() descriptors.RuleID { return r.id }

// String returns the rule's domain and path for people: like its id, but without
// the digests of API keys.
func (r *Rule) String() string { return r.label }

// limits returns the limits of a tier.
func (r *Rule) limits(tierName string) []Limit {
	if l, ok := r.ByTier[tierName]; ok {
		return l
	}
	return r.Limits
}

// Rules is one generation of the configuration: the rules of every domain and
// the subjects they speak of. It is read-only once given to a [Decider].
type Rules struct {
	secrets *tier.Secrets
	tiers   *tier.Directory // nil: no subject is known, every key is its own
	share   bool
	domains map[string]*domain
	rules   []*Rule
}

type domain struct {
	tree descriptors.Tree[*Rule]
	// unruled meters descriptors that no rule of the domain limits.
	unruled Meter
	// override stands for limits that come with a descriptor.
	override *Rule
}

// Identity settles whom a log belongs to.
type Identity struct {
	// Secrets names the entries that hold API keys. Required.
	Secrets *tier.Secrets
	// Tiers knows the subjects. Nil: none is known (tiers.source none).
	Tiers *tier.Directory
	// EachUnknownKey gives every unknown key a log of its own. Otherwise unknown
	// keys share one log per client address, so that making up keys gains
	// nothing. Without Tiers every key is unknown and has its own log.
	EachUnknownKey bool
}

// NewRules returns a generation without rules.
func NewRules(who Identity) *Rules {
	return &Rules{
		secrets: who.Secrets,
		tiers:   who.Tiers,
		share:   who.Tiers != nil && !who.EachUnknownKey,
		domains: make(map[string]*domain),
	}
}

// AddDomain makes a domain known, so that requests for it are not counted as
// unknown even if it has no rules.
func (rs *Rules) AddDomain(name string) error {
	if name == "" {
		return fmt.Errorf("a domain needs a name")
	}
	if rs.domains[name] == nil {
		rs.domains[name] = &domain{override: &Rule{
			Domain: name, Name: overrideName, id: descriptors.NewRuleID(name, nil), subject: -1,
		}}
	}
	return nil
}

// Add puts a rule into its domain. It refuses a rule that cannot mean anything:
// a bad name or limit, a tier that the directory does not have, a tier that the
// rule leaves without any limit, a second rule on the same path.
func (rs *Rules) Add(r Rule) error {
	if err := rs.AddDomain(r.Domain); err != nil {
		return err
	}
	r.Path = slices.Clone(r.Path)
	for i, n := range r.Path {
		if n.AnyValue {
			continue
		}
		// The tree sees digests, and addresses in their one form, so a rule for one
		// API key or address is kept by these.
		r.Path[i].Value = rs.secrets.Value(n.Key, canonical(descriptors.Entry{Key: n.Key, Value: n.Value}))
	}
	r.label = labelOf(rs.secrets, r.Domain, r.Path)
	r.id = descriptors.NewRuleID(r.Domain, r.Path)
	if r.Name == "" {
		r.Name = nameOf(rs.secrets, r.Path)
	} else if !ValidName(r.Name) {
		return fmt.Errorf("name %q: only letters, digits and \"_.-\" are allowed, and at most %d of them", r.Name, maxName)
	} else if r.Name == overrideName {
		return fmt.Errorf("name %q is what limits that come with a request are called", r.Name)
	}
	if err := rs.checkLimits(&r); err != nil {
		return err
	}
	r.Limits = named(r.Name, r.Limits)
	if r.ByTier != nil {
		byTier := make(map[string][]Limit, len(r.ByTier))
		for t, limits := range r.ByTier {
			byTier[t] = named(r.Name, limits)
		}
		r.ByTier = byTier
	}
	rs.setIdentity(&r)
	if err := rs.domains[r.Domain].tree.Add(r.Path, &r); err != nil {
		return err
	}
	rs.rules = append(rs.rules, &r)
	return nil
}

func (rs *Rules) checkLimits(r *Rule) error {
	if err := validLimits(r.Limits); err != nil {
		return err
	}
	if len(r.ByTier) == 0 {
		return nil
	}
	if rs.tiers == nil {
		return fmt.Errorf("by_tier needs tiers: set tiers.source")
	}
	for t, limits := range r.ByTier {
		if !rs.tiers.HasTier(t) {
			return fmt.Errorf("by_tier: unknown tier %q, expected one of %q", t, rs.tiers.Tiers())
		}
		if err := validLimits(limits); err != nil {
			return fmt.Errorf("by_tier: %s: %w", t, err)
		}
	}
	for _, t := range rs.tiers.Tiers() {
		if _, ok := r.ByTier[t]; !ok && len(r.Limits) == 0 {
			return fmt.Errorf("by_tier: tier %q has no limit here and the rule has none of its own", t)
		}
	}
	return nil
}

func validLimits(limits []Limit) error {
	for i, l := range limits {
		if err := l.Valid(); err != nil {
			return err
		}
		for _, other := range limits[:i] {
			if other.Window == l.Window {
				return fmt.Errorf("two limits for the same window of %v", l.Window)
			}
		}
	}
	return nil
}

// setIdentity finds which entries of the path tell one log from another. Fixed
// values do not: they are in the rule's id.
func (rs *Rules) setIdentity(r *Rule) {
	r.subject = -1
	firstSecret := -1
	for i, n := range r.Path {
		if n.AnyValue {
			r.identity = append(r.identity, identityPart{entry: i, secret: rs.secrets.Is(n.Key)})
		}
		if firstSecret < 0 && rs.secrets.Is(n.Key) {
			firstSecret = i
		}
	}
	switch {
	case r.Subject != "":
		r.subject = slices.IndexFunc(r.Path, func(n descriptors.Node) bool { return n.Key == r.Subject })
		r.hasSubject = true
	case len(r.ByTier) > 0:
		r.subject = len(r.Path) - 1
		r.Subject = r.Path[r.subject].Key
		r.hasSubject = true
	case firstSecret >= 0:
		r.subject = firstSecret
		r.Subject = r.Path[firstSecret].Key
		r.hasSubject = true
	}
}

// All returns the rules in the order in which they were added.
func (rs *Rules) All() []*Rule { return rs.rules }

// Domains returns the names of the domains, sorted.
func (rs *Rules) Domains() []string {
	names := make([]string, 0, len(rs.domains))
	for n := range rs.domains {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Tiers returns the directory, or nil where no subject is known.
func (rs *Rules) Tiers() *tier.Directory { return rs.tiers }

// labelOf writes domain|key=value/key for people.
func labelOf(secrets *tier.Secrets, domain string, path []descriptors.Node) string {
	parts := make([]string, len(path))
	for i, n := range path {
		if !n.AnyValue && secrets.Is(n.Key) {
			n.Value = "***"
		}
		parts[i] = n.String()
	}
	return domain + "|" + strings.Join(parts, "/")
}

// overrideName is what limits that come with a descriptor are called where no
// rule matches.
const overrideName = "override"

const maxName = 64

// ValidName reports whether a rule may have this name. Envoy puts it unescaped
// into a header.
func ValidName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// nameOf makes a name from a path: its keys and fixed values joined by dots, but
// never the value of an API key.
func nameOf(secrets *tier.Secrets, path []descriptors.Node) string {
	var parts []string
	for _, n := range path {
		parts = append(parts, n.Key)
		if !n.AnyValue && !secrets.Is(n.Key) {
			parts = append(parts, n.Value)
		}
	}
	name := []byte(strings.Join(parts, "."))
	for i, c := range name {
		if !ValidName(string(c)) {
			name[i] = '-'
		}
	}
	return string(name[:min(len(name), maxName)])
}

// named gives every limit its name in headers.
func named(rule string, limits []Limit) []Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		limits[i].Policy = rule
		if len(limits) > 1 {
			limits[i].Policy += "-" + FormatWindow(limits[i].Window)
		}
	}
	return limits
}

// FormatWindow writes a window the way a rules file would: 10s, 1m, 1d.
func FormatWindow(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{
		{7 * 24 * time.Hour, "w"},
		{24 * time.Hour, "d"},
		{time.Hour, "h"},
		{time.Minute, "m"},
		{time.Second, "s"},
		{time.Millisecond, "ms"},
	} {
		if d%u.length == 0 {
			return strconv.FormatInt(int64(d/u.length), 10) + u.name
		}
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}
