package grant

import (
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Set finds the grant of a request. It is immutable.
type Set struct {
	byRule map[string]map[descriptors.Text]*Grant
}

// NewSet returns the set of grants, or nil if there are none. If two grants have one rule and one
// caller, the last counts.
func NewSet(all []*Grant) *Set {
	if len(all) == 0 {
		return nil
	}
	s := &Set{make(map[string]map[descriptors.Text]*Grant)}
	for _, g := range all {
		of := s.byRule[g.Rule]
		if of == nil {
			of = make(map[descriptors.Text]*Grant)
			s.byRule[g.Rule] = of
		}
		switch {
		case g.Subject != "":
			of[descriptors.Text{Prefix: prefixID, Value: g.Subject}] = g
		case g.Digest != "":
			of[descriptors.Text{Prefix: "key.", Value: g.Digest}] = g
		default:
			// The address can be the caller of the rule, or the value of an entry.
			for _, prefix := range []string{prefixID, "addr.", ""} {
				of[descriptors.Text{Prefix: prefix, Value: g.Address}] = g
			}
		}
	}
	return s
}

// prefixID is that of an id in names of logs.
const prefixID = "id."

// Find returns the grant for the log of a rule, or nil. who is the rule's subject, if it has one, and
// entries are those of the descriptor. now is the time since 1970-01-01 UTC.
func (s *Set) Find(rule *rules.Rule, who *identity.Subject, entries descriptors.Descriptor, now func() time.Duration) *Grant {
	of := s.byRule[rule.Name]
	if of == nil {
		return nil
	}
	var found *Grant
	if rule.HasSubject() {
		found = of[who.Log]
	}
	for i := range rule.Path {
		if found == nil && rules.IsAddressKey(rule.Path[i].Key) && !rule.HasOneLog(i) {
			found = of[descriptors.Text{Value: entries[i].Value}]
		}
	}
	if found == nil || found.Ended(time.Unix(0, int64(now()))) {
		return nil
	}
	return found
}

// Active has the set that decides now. The zero value and nil have none. It is safe for concurrent use.
type Active struct{ set atomic.Pointer[Set] }

// Load returns the set that decides now, or nil.
func (a *Active) Load() *Set {
	if a == nil {
		return nil
	}
	return a.set.Load()
}

// Store replaces the set that decides.
func (a *Active) Store(all []*Grant) { a.set.Store(NewSet(all)) }
