package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/reuse"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// ChargeOnce makes requests with one idempotency key charge the logs of a rule once
// (charge_once). The zero value charges every request. docs/charge-once.md has the semantics.
type ChargeOnce struct {
	// Entry is the key of the descriptor entry that has the idempotency key. It comes directly
	// after the entries of the rule's path, and is not part of the name of a log.
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

// node is where the rule matches with its entry.
func (o *ChargeOnce) node() descriptors.Node { return descriptors.Node{Key: o.Entry, AnyValue: true} }

// String describes o, or returns an empty text for the zero value.
func (o ChargeOnce) String() string {
	if o.Entry == "" {
		return ""
	}
	return fmt.Sprintf("%s for %s, %d retries", o.Entry, FormatWindow(o.For), o.Retries)
}

// checkOnce refuses a ChargeOnce that is invalid or contradicts the rule.
func (rs *Rules) checkOnce(r *Rule) error {
	o := &r.Once
	if o.Entry == "" {
		return nil
	}
	if rs.secrets.Is(o.Entry) {
		return fmt.Errorf("the entry %s of charge_once holds API keys, so it names no attempt", o.Entry)
	}
	if r.Subject == o.Entry || slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return n.Key == o.Entry }) {
		return fmt.Errorf("the entry %s of charge_once also says which log is charged: send the idempotency key in an entry of its own, behind those of the rule", o.Entry)
	}
	if r.Always {
		return fmt.Errorf("a rule that always charges cannot charge once: what is reported has happened each time")
	}
	terms := []*Terms{&r.Terms}
	for name := range r.ByTier {
		arm := r.ByTier[name]
		terms = append(terms, &arm)
	}
	for _, t := range terms {
		if t.inFlight() {
			return fmt.Errorf("a rule in flight cannot charge once: its stream already holds one place once")
		}
	}
	// A store would refuse other bounds with every request.
	probe := [1]window.Check{{Key: "{k}", Limit: window.Limit{Hits: 1, Window: time.Second}, Once: window.Once{ID: 1, For: o.For, Repeats: o.Retries}}}
	var decision [1]window.Decision
	if err := window.Validate(probe[:], decision[:]); err != nil {
		return fmt.Errorf("charge_once: %w", err)
	}
	return nil
}

// addOnce lets a rule that was added match with its entry too. No other rule may want this entry
// there.
func (dom *domain) addOnce(r *Rule) error {
	if r.Once.Entry == "" {
		return nil
	}
	if dom.tree.Leads(r.Path, r.Once.Entry) {
		return fmt.Errorf("charge_once takes the entry %s, and a rule below %s uses it too: rename one of the two", r.Once.Entry, r.label)
	}
	if err := dom.tree.Add(append(slices.Clip(r.Path), r.Once.node()), r); err != nil {
		return err
	}
	if dom.once == nil {
		dom.once = make(map[descriptors.RuleID]*Rule)
	}
	dom.once[r.id] = r
	return nil
}

// matchWithoutAttempt matches a descriptor without its last entry, if a rule of the domain takes
// that entry for an idempotency key. It removes the entry if a rule matches that does not charge
// once. Envoy sends the entry for all rules, so a client could pass such a rule by sending a key.
func (dom *domain) matchWithoutAttempt(d *Descriptor) *Rule {
	last := len(d.Entries) - 1
	if last < 1 || len(dom.once) == 0 {
		return nil
	}
	for _, r := range dom.once {
		if r.Once.Entry == d.Entries[last].Key {
			rule, ok := dom.tree.Match(d.Entries[:last])
			if !ok || rule.Once.Entry != "" {
				return nil
			}
			d.Entries = d.Entries[:last]
			return rule
		}
	}
	return nil
}

// freeOfOnce refuses a rule whose path goes through the entry of a rule that charges once.
func (dom *domain) freeOfOnce(r *Rule) error {
	if len(dom.once) == 0 {
		return nil
	}
	for i := 1; i < len(r.Path); i++ {
		if above := dom.once[descriptors.NewRuleID(r.Domain, r.Path[:i])]; above != nil && above.Once.Entry == r.Path[i].Key {
			return fmt.Errorf("the entry %s is that of charge_once of the rule %s, so no rule below it can use it: rename one of the two", above.Once.Entry, above.label)
		}
	}
	return nil
}

// attemptOf returns the idempotency key in a descriptor that the rule matches, or an empty text.
func (r *Rule) attemptOf(entries descriptors.Descriptor) string {
	if r.Once.Entry == "" || len(entries) == len(r.Path) {
		return ""
	}
	return entries[len(r.Path)].Value
}

// Limited returns the entries of a descriptor without an idempotency key that the rule takes.
func (m *Match) Limited(entries descriptors.Descriptor) descriptors.Descriptor {
	if m.Rule == nil || m.Rule.Once.Entry == "" {
		return entries
	}
	return entries[:min(len(entries), len(m.Rule.Path))]
}

// once makes a check one of an attempt, if its descriptor has an idempotency key.
func (c *Call) once(s *LimitStatus, check *window.Check) {
	o := &s.Rule.Once
	attempt := s.Rule.attemptOf(c.req.Descriptors[s.Descriptor].Entries)
	switch {
	case attempt == "":
	case s.Mode == window.Refund:
		// The retry is free instead.
		s.Cost, check.Cost = 0, 0
	case s.Mode == window.Always:
		// The end of a stream: what it reports has been spent.
	default:
		// The name of a log has no zero byte, so two attempts never share this text.
		c.key = append(append(append(reuse.Slice(c.key), check.Key...), 0), attempt...)
		digest := sha256.Sum256(c.key)
		check.Once = window.Once{ID: max(1, binary.BigEndian.Uint64(digest[:])), For: o.For, Repeats: o.Retries}
	}
}

// receiptBytes is about what one receipt takes in a store, with a name of usual length.
const receiptBytes = 200

// onceNote says what charge_once lets one caller save up and makes a store keep, or returns an empty
// text.
func (r *Rule) onceNote() string {
	if r.Once.Entry == "" {
		return ""
	}
	most, tierName := mostReceipts(&r.Once, &r.Terms), ""
	for name := range r.ByTier {
		terms := r.ByTier[name]
		if n := mostReceipts(&r.Once, &terms); n > most || n == most && name < tierName {
			most, tierName = n, name
		}
	}
	who := "a caller"
	if tierName != "" {
		who += " of tier " + tierName
	}
	return fmt.Sprintf("charge_once: %s can save up to %s free retries and send them at once; the store keeps up to %s receipts of it, of about %d bytes each",
		who, grouped(most*uint64(r.Once.Retries)), grouped(most), receiptBytes)
}

// mostReceipts returns the most receipts that one log of a limit can have at a time, of the limit
// with the most.
func mostReceipts(o *ChargeOnce, t *Terms) (most uint64) {
	for i := range t.Limits {
		l := t.Limits[i].Limit
		if l.Hits == window.MaxHits {
			continue // it has no log
		}
		windows := uint64((o.For + l.Window - 1) / l.Window)
		n := l.Hits * windows
		switch l.Policy {
		case window.Sliding:
		case window.TokenBucket:
			n = l.Hits + uint64(l.Rate)*windows
		default:
			n += l.Hits // around the end of a window
		}
		most = max(most, n)
	}
	return most
}
