package limiter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/edge/answer"
)

// A Source says where rules come from. Everything in it is one set of rules.
type Source struct {
	// Paths are files of rules, directories of them, at most one tiers file and at most one settings
	// file of the service, in any order. The content says which is which, as for "rls validate".
	Paths []string
	// Texts are rules files in memory, such as embedded ones.
	Texts []Text
	// Domains are rules that are made in Go.
	Domains []Domain
	// Environ has SLIDEGATE_ variables that override settings, in the form of os.Environ. Nil: none.
	Environ []string
}

// A Text is a rules file in memory. Problems call it by its name.
type Text struct {
	Name string
	Data []byte
}

// Rules say what is limited. They belong to one [Limiter]: read them again for another one. The zero
// value is not usable. The methods are safe for concurrent use.
type Rules struct {
	generation *config.Generation
	settings   settings.Settings
	headers    *answer.Renderer
	warnings   []Problem
	used       atomic.Bool
}

// ReadRules reads rules from files: see Paths in [Source].
func ReadRules(paths ...string) (*Rules, error) { return Source{Paths: paths}.Read() }

// ReadFS reads the rules files in a file system, such as an embedded one, that match a pattern of
// [fs.Glob].
func ReadFS(fsys fs.FS, pattern string) (*Rules, error) {
	if fsys == nil {
		return nil, Problems{{Message: "ReadFS needs a file system"}}
	}
	names, err := fs.Glob(fsys, pattern)
	if err != nil {
		return nil, Problems{{Message: "the pattern " + strict.Quote(pattern) + " of rules files is malformed: " + err.Error()}}
	}
	if len(names) == 0 {
		return nil, Problems{{Message: "no file matches the pattern " + strict.Quote(pattern) + " of rules files"}}
	}
	var s Source
	var problems Problems
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			problems = append(problems, Problem{File: name, Message: err.Error()})
			continue
		}
		s.Texts = append(s.Texts, Text{name, data})
	}
	if problems != nil {
		return nil, problems
	}
	return s.Read()
}

// ParseRules reads one rules file in memory. Problems call it by its name.
func ParseRules(name string, data []byte) (*Rules, error) {
	return Source{Texts: []Text{{name, data}}}.Read()
}

// MakeRules returns rules that are made in Go.
func MakeRules(domains ...Domain) (*Rules, error) { return Source{Domains: domains}.Read() }

// Read reads and checks everything that s names. The error is [Problems].
func (s Source) Read() (*Rules, error) {
	if slices.Contains(s.Paths, "-") {
		return nil, Problems{{File: "-", Message: "the library does not read standard input: give the text to ParseRules"}}
	}
	in, err := config.NewInput(s.Paths, strings.NewReader(""))
	if err != nil {
		return nil, problemsOf(err)
	}
	if len(in.Tests) > 0 {
		return nil, Problems{{File: in.Tests[0], Message: "a file of tests of rules: give only rules, tiers and settings"}}
	}
	for _, t := range s.Texts {
		in.Texts = append(in.Texts, files.File{Name: t.Name, Data: t.Data})
	}
	for i := range s.Domains {
		src, err := s.Domains[i].file()
		if err != nil {
			return nil, err
		}
		in.Texts = append(in.Texts, src)
	}
	given, _, err := in.LoadSettings(s.Environ)
	if err != nil {
		return nil, problemsOf(err)
	}
	if err := check(&in, &given); err != nil {
		return nil, err
	}
	g, err := in.Load(given)
	if err != nil {
		return nil, problemsOf(err)
	}
	r := &Rules{generation: g, settings: given}
	r.headers = answer.NewRenderer(given.Headers.Styles...)
	r.warnings = problemsOf(strict.Problems(g.Warnings))
	return r, nil
}

// check refuses what a program cannot do, and what the service takes from its examples.
func check(in *config.Input, s *settings.Settings) error {
	var problems Problems
	if in.Rules == nil && in.Texts == nil && s.Rules.Path == "" {
		problems = append(problems, Problem{Message: "no rules: give the path of a rules file, its text, or a domain"})
	}
	if in.Rules == nil && in.Texts == nil && s.Rules.Source == settings.RulesXDS {
		problems = append(problems, Problem{File: "settings", Path: "rules.source", Message: "the library does not ask an xDS server: give the rules as files, as texts or in Go"})
	}
	switch t := &s.Tiers; t.Source {
	case settings.TiersNone, settings.TiersInHeader:
	case settings.TiersFile:
		if in.Tiers == "" && t.Path == "" {
			t.Source = settings.TiersNone // not the example
		}
	default:
		problems = append(problems, Problem{File: "settings", Path: "tiers.source", Message: "the library has only the sources file, header and none: keep the subjects in a tiers file, or let rls decide"})
	}
	if problems != nil {
		return problems
	}
	return nil
}

// Warnings say what is right but unwise, each with its position. Nil: nothing.
func (r *Rules) Warnings() []Problem { return r.warnings }

// Domains returns the names of the domains, in their order as texts.
func (r *Rules) Domains() []string { return r.generation.Rules.Domains() }

// HasDomain reports whether there are rules for a domain. A request for another one is not limited.
func (r *Rules) HasDomain(name string) bool { return r.generation.Rules.HasDomain(name) }

// UnknownEntry says that no rule has entries with a key, and which key it may mean. It is empty if a
// rule has them.
func (r *Rules) UnknownEntry(key string) string {
	rules := r.generation.Rules
	if rules.Names(key) || key == rules.TrustedEntry() {
		return ""
	}
	var keys []string
	for _, rule := range rules.All() {
		for _, n := range rule.Path {
			keys = append(keys, n.Key)
		}
	}
	return "no rule has the entry " + strict.Quote(key) + strict.DidYouMean(key, keys)
}

// Digest is a short name for the content of the files and texts: the same content has the same one.
func (r *Rules) Digest() string { return r.generation.Digest }

// sameSecrets reports whether both digest API keys in the same way.
func (r *Rules) sameSecrets(other *Rules) bool {
	return reflect.DeepEqual(r.settings.Secrets, other.settings.Secrets) && reflect.DeepEqual(r.settings.Authz.Credentials, other.settings.Authz.Credentials)
}

// A Problem is a mistake in rules, tiers or settings. It shows no API key.
type Problem struct {
	// File is the file, the name of a [Text], the domain of a [Domain], "settings" or "environment".
	File string
	// Line and Column count from 1. Zero: unknown.
	Line, Column int
	// Path is the position inside the file, such as descriptors[route=search].rate_limit.unit.
	Path string
	// Message says what is wrong and what to do.
	Message string
}

// String returns file:line:column: path: message, without what is unknown.
func (p Problem) String() string { return strict.Problem(p).String() }

// Problems is the error of everything that reads rules: all problems at once.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return strict.Lines(ps) }

func problemsOf(err error) (problems Problems) {
	all, ok := errors.AsType[strict.Problems](err)
	if !ok {
		return Problems{{Message: err.Error()}}
	}
	for _, p := range all {
		problems = append(problems, Problem(p))
	}
	return problems
}

// A Domain is a set of rules that is made in Go. It has the keys of a rules file that programs need
// most; docs/reference/rules.md describes them. For the others write YAML.
type Domain struct {
	Name string `json:"domain"`
	// Headers are the styles of headers on answers. Nil: those of the settings.
	Headers []string `json:"headers,omitempty"`
	// Rules are for the first entry of a descriptor.
	Rules []Rule `json:"descriptors"`
}

// A Rule takes one entry of a descriptor. The rules in Rules take the next one.
type Rule struct {
	Key string `json:"key"`
	// Value is the value of the entry; each * stands for any number of bytes. Empty: any value.
	Value string `json:"value,omitempty"`
	// RateLimit limits descriptors that end here. Nil: nothing is limited here.
	RateLimit *RateLimit `json:"rate_limit,omitempty"`
	// Observe: the limits are decided and reported, but deny nothing.
	Observe bool `json:"shadow_mode,omitempty"`
	// ShareThreshold: all values that the wildcard takes share one log.
	ShareThreshold bool   `json:"share_threshold,omitempty"`
	Rules          []Rule `json:"descriptors,omitempty"`
}

// Terms are the limits of a rule or of one tier.
type Terms struct {
	// Limits must all have room.
	Limits []Limit `json:"limits,omitempty"`
	// Unlimited: the rule matches and limits nothing.
	Unlimited bool `json:"unlimited,omitempty"`
}

// A RateLimit has the limits of a [Rule], and what belongs to them.
type RateLimit struct {
	Terms
	// Name is in headers and bodies. Empty: it is made from the rule's path.
	Name string `json:"name,omitempty"`
	// Subject is the key of the entry that says who is limited, and so whose tier counts.
	Subject string `json:"subject,omitempty"`
	// ByTier has the limits of each tier, instead of Terms.
	ByTier map[string]Terms `json:"by_tier,omitempty"`
	// Charge is "allowed" or "always". Empty: "allowed".
	Charge string `json:"charge,omitempty"`
	// OnStoreError is local, allow, deny or report. Empty: store.on_error of the settings, local.
	OnStoreError string `json:"on_store_error,omitempty"`
	// RetryJitter is a percentage such as "10%" by which clients are asked to wait longer.
	RetryJitter string `json:"retry_jitter,omitempty"`
	// ClientRetry is "auto" or "never": whether denied clients are asked not to send the request again.
	// Empty: "auto", after long waits.
	ClientRetry string `json:"client_retry,omitempty"`
	// Scope is the store in which the limits count: region, or a name in store.scopes of the settings,
	// which are then among the Paths of the [Source]. Empty: region.
	Scope string `json:"scope,omitempty"`
	// Priority is low, normal or high: which requests Redis decides first if many wait. Empty: normal.
	Priority string `json:"priority,omitempty"`
	// ChargeOnce charges requests with the same idempotency key once. Nil: each is charged.
	ChargeOnce *ChargeOnce `json:"charge_once,omitempty"`
	// Body is openai, anthropic, grpc, mcp or problem, or any other text in place of the problem document
	// of a denial, then with ContentType.
	Body        string `json:"body,omitempty"`
	ContentType string `json:"content_type,omitempty"`
}

// ChargeOnce says which requests are one: docs/advanced.md describes it.
type ChargeOnce struct {
	// Entry is the key of the entry with the idempotency key, one for all rules of a domain. The entry
	// decides no rule and no log, and may be missing.
	Entry string
	// For is how long one charge covers retries. Zero: 10 minutes.
	For time.Duration
	// Retries is how many retries one charge covers. Zero: 3.
	Retries uint64
}

// MarshalJSON writes the keys of a rules file.
func (c ChargeOnce) MarshalJSON() ([]byte, error) {
	m := map[string]any{"entry": c.Entry}
	if c.For != 0 {
		m["for"] = c.For.String()
	}
	if c.Retries != 0 {
		m["retries"] = c.Retries
	}
	return json.Marshal(m)
}

// A Limit is one limit in the notation of its policy.
type Limit struct {
	// Policy is sliding, token_bucket, fixed, calendar, sliding_counter or in_flight. Empty: sliding.
	Policy string
	// Requests is how many hits Window holds, or one Unit of a calendar.
	Requests uint64
	Window   time.Duration
	// Lease is what a program may reserve ahead in Redis on a key that is asked for often: a time such
	// as "50ms", a percentage of the limit, or "none". Empty: what the settings say.
	Lease string
	// Rate and Burst are of a token bucket: how many hits come back in which time, such as "10/s", and
	// the most at once.
	Rate  string
	Burst uint64
	// Unit and TimeZone are of a calendar: hour, day, week, month, quarter or year.
	Unit, TimeZone string
	// Max and Hold are of in_flight: how many requests at a time, and when one that is never released
	// counts no more.
	Max  uint64
	Hold time.Duration
	// Budget makes the limit reserve what a request may cost, until [Decision.Settle]. Nil: it pays at once.
	Budget *Budget
	// Currency says that hits are millionths of a currency, such as usd, for denials. Empty: they are units.
	Currency string
}

// A Budget says how a limit reserves what requests may cost.
type Budget struct {
	// Reserve is the estimate of a request without a cost, and Max the largest one; zero: 1,000,000,000.
	Reserve, Max uint64
	// Hold is when a request that was not settled has cost its estimate: 1s to 24h.
	Hold time.Duration
}

// MarshalJSON writes the keys of a rules file.
func (b Budget) MarshalJSON() ([]byte, error) {
	m := map[string]any{"reserve": b.Reserve, "hold": b.Hold.String()}
	if b.Max != 0 {
		m["max"] = b.Max
	}
	return json.Marshal(m)
}

// MarshalJSON writes the keys of a rules file. It writes each field that is set, so that the reader
// refuses one that the policy does not have.
func (l Limit) MarshalJSON() ([]byte, error) {
	m := make(map[string]any)
	text := func(key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	text("policy", l.Policy)
	text("rate", l.Rate)
	text("unit", l.Unit)
	text("time_zone", l.TimeZone)
	text("lease", l.Lease)
	text("currency", l.Currency)
	if l.Budget != nil {
		m["budget"] = l.Budget
	}
	flight := l.Max != 0 || l.Hold != 0
	if flight {
		m["max"] = l.Max
	}
	if l.Hold != 0 {
		m["hold"] = l.Hold.String()
	}
	bucket := l.Rate != "" || l.Burst != 0
	if bucket {
		m["burst"] = l.Burst
	}
	if l.Window != 0 {
		m["window"] = l.Window.String()
	}
	switch {
	case l.Unit != "":
		m["requests_per_unit"] = l.Requests
	case l.Requests != 0 || !bucket && !flight:
		m["requests"] = l.Requests
	}
	return json.Marshal(m)
}

// file returns the domain as a rules file: JSON is YAML.
func (d *Domain) file() (files.File, error) {
	name := "domain " + cmp.Or(d.Name, "without a name")
	data, err := json.Marshal(d)
	if err != nil {
		return files.File{}, Problems{{File: name, Message: err.Error()}}
	}
	if strings.Contains(string(data), `\ufffd`) || strings.ContainsRune(string(data), utf8.RuneError) {
		return files.File{}, Problems{{File: name, Message: "a text is not UTF-8, or has the character U+FFFD: no rules file can have it"}}
	}
	return files.File{Name: name, Data: []byte(escapeControls(string(data))), Made: true}, nil
}

// escapeControls escapes what JSON may have as it is and YAML may not, or reads as a line break.
func escapeControls(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r >= 0x7f && r <= 0x9f || r == '\ufeff' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
