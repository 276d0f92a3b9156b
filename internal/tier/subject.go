package tier

import "github.com/slidegate/slidegate/pkg/window"

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
