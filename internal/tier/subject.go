package tier

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Subject is somebody who calls. It is immutable.
type Subject struct {
	ID       string
	Tier     string
	Disabled bool // known, but no longer a customer
	// Extra is nil for nearly everybody.
	Extra *Extra
}

// Extra is what few subjects have.
type Extra struct {
	// Overrides are limits of the subject's own, by the name of the rule whose
	// limits they replace.
	Overrides map[string]Override
	// Labels are texts for metadata and headers.
	Labels map[string]string
}

// An Override replaces the limits of one rule for one subject.
type Override struct {
	// Limits have different windows. All must have room.
	Limits []window.Limit
	// Unlimited says on purpose that nothing is limited. Limits is empty then.
	Unlimited bool
}

// Override returns the limits that the subject has of its own under a rule.
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

// Bounds of what a subject may be, whatever source it comes from.
const (
	// MaxText is the length of an id, a tier or the value of a label in bytes.
	MaxText = 256
	// MaxLabels is how many labels a subject has.
	MaxLabels = 32
	// MaxLabelName is the length of a label's name.
	MaxLabelName = 64
	// MaxPart is the length of [Parts.Overrides] and of [Parts.Labels] in bytes.
	MaxPart = 64 << 10
)

// Parts are a subject as sources keep it.
type Parts struct {
	// ID is what [ValidID] says.
	ID string
	// Tier is UTF-8 without control characters. Empty: the default tier.
	Tier     string
	Disabled bool
	// Overrides are the subject's limits by the name of the rule, in the rules' own
	// language; Labels a JSON object of texts. Empty and null: none.
	Overrides, Labels []byte
}

// NewSubject makes a subject of its parts, whose overrides it has read by the
// given function. An error wraps [ErrBadRecord] and names the subject and the part,
// but repeats no bad id, which may be an API key in the wrong place. A subject that is
// disabled is never an error for its other parts: nobody is served on because of a
// misspelt label.
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

// subject reads what stands beside the id.
func (p *Parts) subject(overrides func([]byte) (map[string]Override, error)) (*Subject, error) {
	if err := validText(p.Tier); err != nil {
		return nil, fmt.Errorf("tier: %w", err)
	}
	s := &Subject{ID: p.ID, Tier: p.Tier, Disabled: p.Disabled}
	var extra Extra
	if !isEmpty(p.Overrides) {
		err := tooLong(len(p.Overrides), MaxPart)
		if err == nil {
			extra.Overrides, err = overrides(p.Overrides)
		}
		if err != nil {
			return nil, fmt.Errorf("overrides: %w", err)
		}
	}
	if !isEmpty(p.Labels) {
		err := tooLong(len(p.Labels), MaxPart)
		if err == nil {
			extra.Labels, err = readLabels(p.Labels)
		}
		if err != nil {
			return nil, fmt.Errorf("labels: %w", err)
		}
	}
	if len(extra.Overrides) > 0 || len(extra.Labels) > 0 {
		s.Extra = &extra
	}
	return s, nil
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

// AnonymousPrefix begins what stands for the id of who has no API key; an address
// follows. It is nobody's id.
const AnonymousPrefix = "ip:"

// ValidID reports what is wrong with the id of a subject, or nil. Ids become
// values of headers: 1 to [MaxText] bytes of visible ASCII, with spaces inside.
// None begins with [AnonymousPrefix], so that nobody is looked up by it.
func ValidID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("it is empty")
	case strings.HasPrefix(id, AnonymousPrefix):
		return fmt.Errorf("it begins with %q, which stands for the address of who has no key", AnonymousPrefix)
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

// ValidLabels reports what is wrong with labels, or nil: at most [MaxLabels],
// names of 1 to [MaxLabelName] letters, digits and _.-, and values of at most
// [MaxText] bytes of UTF-8 without control characters.
func ValidLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels, at most %d are allowed", len(labels), MaxLabels)
	}
	for name, value := range labels {
		if !validLabelName(name) {
			return fmt.Errorf("a name is not 1 to %d letters, digits and _.-", MaxLabelName)
		}
		if err := validText(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func validLabelName(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= MaxLabelName
}

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
	err := ReadObject(data, func(name string, value json.RawMessage) error {
		text, err := ReadText(value)
		if err != nil && validLabelName(name) {
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
