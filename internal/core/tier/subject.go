package tier

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/core/tier/strictjson"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Subject is a consumer whose requests are limited. It is immutable.
type Subject struct {
	ID       string
	Tier     string
	Disabled bool // known, but its keys no longer count
	// Extra is nil for most subjects.
	Extra *Extra
}

// Extra has the fields that few subjects need.
type Extra struct {
	// Overrides have limits of this subject alone, by the name of the rule whose
	// limits they replace.
	Overrides map[string]Override
	// Labels are texts for metadata and headers.
	Labels map[string]string
	// Limits replace those that the tiers file has for the subject's tier. Nil: those of the file.
	Limits *limits.Set
}

// An Override replaces the limits of one rule for one subject, or says whether they deny.
type Override struct {
	// Limits have different windows. All must have room. Without Limits and Unlimited the
	// subject has the limits of its tier.
	Limits []window.Limit
	// Unlimited means that the rule does not limit the subject. Limits is empty then.
	Unlimited bool
	// Observe says whether the limits are only observed for the subject.
	Observe Observe
	// Until is when the override ends. Zero: never.
	Until time.Time
}

// Limited reports whether the override replaces the limits of the subject's tier.
func (o *Override) Limited() bool { return o.Unlimited || len(o.Limits) > 0 }

// Observe says whether an override makes limits only observed.
type Observe uint8

const (
	// ObserveByRule leaves the choice to the rule.
	ObserveByRule Observe = iota
	// ObserveOnly counts the subject's requests and never denies them.
	ObserveOnly
	// ObserveNot denies, also if the rule observes all others.
	ObserveNot
)

// Override returns the subject's override of a rule, by the name of the rule. ok is false if
// there is none.
func (s *Subject) Override(rule string) (o Override, ok bool) {
	if s.Extra == nil {
		return o, false
	}
	o, ok = s.Extra.Overrides[rule]
	return o, ok
}

// Labels returns the subject's labels, nil if there are none.
func (s *Subject) Labels() map[string]string {
	if s.Extra == nil {
		return nil
	}
	return s.Extra.Labels
}

// Limits returns the limits of the tier that came with the subject, nil if there are none.
func (s *Subject) Limits() *limits.Set {
	if s == nil || s.Extra == nil {
		return nil
	}
	return s.Extra.Limits
}

// Bounds of a subject, for all sources.
const (
	// MaxText is the maximum length of an id, a tier or the value of a label in bytes.
	MaxText = 256
	// MaxLabels is the maximum number of labels.
	MaxLabels = 32
	// MaxLabelName is the maximum length of a label's name.
	MaxLabelName = strictjson.MaxName
	// MaxPart is the maximum length of [Parts].Overrides, Labels and Limits, of each in bytes.
	MaxPart = 64 << 10
)

// Parts are the fields of a subject as sources keep it.
type Parts struct {
	// ID must be a [ValidID].
	ID string
	// Tier is UTF-8 without control characters. Empty: the default tier.
	Tier     string
	Disabled bool
	// Overrides are the subject's limits by the name of the rule, in the language of
	// rules files. Labels are a JSON object of texts. Limits are what the subject's tier carries,
	// as a tiers file writes it. Each may be empty or null.
	Overrides, Labels, Limits []byte
}

// NewSubject makes a subject from its parts. The function overrides reads the overrides.
// An error wraps [ErrBadRecord] and names the subject and the part. It does not repeat
// an invalid id, which may be an API key in the wrong field. If the subject is disabled,
// its other parts cause no error: a misspelt label must not keep its keys valid.
func NewSubject(p Parts, overrides func([]byte) (map[string]Override, error)) (*Subject, error) {
	if err := ValidID(p.ID); err != nil {
		return nil, fmt.Errorf("%w: id: %w", ErrBadRecord, err)
	}
	s, err := p.subject(overrides)
	switch {
	case err == nil:
		return s, nil
	case p.Disabled:
		return &Subject{ID: p.ID, Disabled: true}, nil
	default:
		return nil, fmt.Errorf("%w: subject %q: %w", ErrBadRecord, p.ID, err)
	}
}

// subject reads the parts other than the id.
func (p *Parts) subject(overrides func([]byte) (map[string]Override, error)) (*Subject, error) {
	if err := validText(p.Tier); err != nil {
		return nil, fmt.Errorf("tier: %w", err)
	}
	s := &Subject{ID: p.ID, Tier: p.Tier, Disabled: p.Disabled}
	var extra Extra
	var err error
	if extra.Overrides, err = read("overrides", p.Overrides, overrides); err != nil {
		return nil, err
	}
	if extra.Labels, err = read("labels", p.Labels, readLabels); err != nil {
		return nil, err
	}
	if extra.Limits, err = read("limits", p.Limits, limits.Read); err != nil {
		return nil, err
	}
	if len(extra.Overrides) > 0 || len(extra.Labels) > 0 || extra.Limits != nil {
		s.Extra = &extra
	}
	return s, nil
}

// read reads the part of a subject that has a name; it may be empty.
func read[T any](name string, part []byte, parse func([]byte) (T, error)) (value T, err error) {
	if isEmpty(part) {
		return value, nil
	}
	if err = tooLong(len(part), MaxPart); err == nil {
		value, err = parse(part)
	}
	if err != nil {
		return value, fmt.Errorf("%s: %w", name, err)
	}
	return value, nil
}

func isEmpty(part []byte) bool {
	part = bytes.TrimSpace(part)
	return len(part) == 0 || string(part) == "null"
}

func tooLong(n, most int) error {
	if n > most {
		return fmt.Errorf("%d bytes, at most %d are allowed", n, most)
	}
	return nil
}

// AnonymousPrefix begins the text that replaces the id of a caller without an API key.
// The address of the caller follows. No id begins with it.
const AnonymousPrefix = "ip:"

// ValidID returns what is wrong with the id of a subject, or nil. Ids become values of
// headers: 1 to [MaxText] bytes of visible ASCII, with spaces inside. They do not begin
// with [AnonymousPrefix].
func ValidID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("it is empty")
	case strings.HasPrefix(id, AnonymousPrefix):
		return fmt.Errorf("it begins with %q, which stands for the address of a caller without a key", AnonymousPrefix)
	}
	if err := tooLong(len(id), MaxText); err != nil {
		return err
	}
	if id[0] == ' ' || id[len(id)-1] == ' ' {
		return fmt.Errorf("it begins or ends with a space, which a header would lose")
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return fmt.Errorf("byte %d is %#02x, only visible ASCII and spaces are allowed", i+1, id[i])
		}
	}
	return nil
}

// ValidLabels returns what is wrong with labels, or nil: at most [MaxLabels], with names
// of 1 to [MaxLabelName] letters, digits and _.-, and values of at most
// [MaxText] bytes of UTF-8 without control characters.
func ValidLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels, at most %d are allowed", len(labels), MaxLabels)
	}
	for name, value := range labels {
		if !ValidLabelName(name) {
			return fmt.Errorf("a name is not 1 to %d letters, digits and _.-", MaxLabelName)
		}
		if err := validText(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// ValidLabelName reports whether a label can have a name: 1 to [MaxLabelName] letters, digits and _.-
func ValidLabelName(name string) bool { return strictjson.IsName(name) }

func validText(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("it is not UTF-8")
	}
	for i, r := range text {
		if unicode.IsControl(r) {
			return fmt.Errorf("byte %d is a control character", i+1)
		}
	}
	return tooLong(len(text), MaxText)
}

func readLabels(data []byte) (map[string]string, error) {
	labels := make(map[string]string)
	err := strictjson.Object(data, func(name string, value json.RawMessage) error {
		text, err := strictjson.Text(value)
		if err != nil && ValidLabelName(name) {
			return fmt.Errorf("%s: %w", name, err)
		}
		labels[name] = text
		return err
	})
	if err != nil {
		return nil, err
	}
	return labels, ValidLabels(labels)
}
