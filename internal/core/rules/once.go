package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// ChargeOnce makes requests with one idempotency key charge the logs of a rule once
// (charge_once). The zero value charges every request. docs/advanced.md has the semantics.
type ChargeOnce struct {
	// Entry is the key of the descriptor entries that have idempotency keys. All rules of a domain
	// have one such key. It is removed from each descriptor of the domain, wherever it is, before a
	// rule is matched or a log is named.
	Entry string
	// For is how long a charge covers repeats: window.MinOnce to window.MaxOnce.
	For time.Duration
	// Retries is how many repeats one charge covers: 1 to window.MaxRepeats.
	Retries uint8
}

// The defaults of rules files.
const (
	DefaultOnceFor     = 10 * time.Minute
	DefaultOnceRetries = 3
)

// String describes o, or returns an empty text for the zero value.
func (o ChargeOnce) String() string {
	if o.Entry == "" {
		return ""
	}
	return fmt.Sprintf("%s for %s, %d retries", o.Entry, FormatWindow(o.For), o.Retries)
}

// CheckOnce returns an error if the entry of a ChargeOnce also names a log, a subject or a tier. It
// may be called before [Rules.Add].
func (rs *Rules) CheckOnce(r *Rule) error {
	entry := r.Charge.Once.Entry
	shown := safetext.Runes(entry, 64)
	switch {
	case entry == "":
	case rs.who.Secrets.Is(entry):
		return fmt.Errorf("%s holds API keys, and an attempt needs its own key: send the idempotency key in another entry", shown)
	case r.uses(entry):
		return fmt.Errorf("the entry %s of charge_once also says which log is charged: send the idempotency key in another entry", shown)
	case entry == rs.who.TrustedEntry || IsAddressKey(entry):
		return fmt.Errorf("the entry %s of charge_once also says who is limited: send the idempotency key in another entry", shown)
	}
	return nil
}

// AttemptEntry returns the key of the entries that have idempotency keys in a domain. It is empty if
// no rule of the domain charges once.
func (rs *Rules) AttemptEntry(domain string) string {
	if dom := rs.Domain(domain); dom != nil && dom.Once != nil {
		return dom.Once.Charge.Once.Entry
	}
	return ""
}

// uses reports whether a key is in the path of the rule or names its subject.
func (r *Rule) uses(key string) bool {
	return r.Subject == key || slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return n.Key == key })
}

// takeOnce returns an error if a rule uses the entry with the idempotency keys of the domain, in
// whatever order the rules are added.
func (dom *Domain) takeOnce(r *Rule, others []*Rule) error {
	if of := dom.Once; of != nil {
		if entry := of.Charge.Once.Entry; r.uses(entry) {
			return fmt.Errorf("the entry %s has the idempotency keys of charge_once of the rule %s, so no rule of the domain can use it: rename one of the two", entry, of)
		}
		return nil
	}
	if r.Charge.Once.Entry == "" {
		return nil
	}
	for _, other := range others {
		if other.Domain == r.Domain && other.uses(r.Charge.Once.Entry) {
			return fmt.Errorf("charge_once takes the entry %s, and the rule %s uses it too: rename one of the two", r.Charge.Once.Entry, other)
		}
	}
	dom.Once = r
	return nil
}

// CountAttempts moves the entries with idempotency keys behind the other entries of a descriptor,
// whose order stays, and returns how many there are.
func (dom *Domain) CountAttempts(entries descriptors.Descriptor) int {
	if dom.Once == nil {
		return 0
	}
	n := 0
	for i := range entries {
		if entries[i].Key != dom.Once.Charge.Once.Entry {
			entries[n], entries[i] = entries[i], entries[n]
			n++
		}
	}
	return len(entries) - n
}
