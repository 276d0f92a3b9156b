package diff

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
)

// Title says in a line whether anything changes.
func (r *Report) Title() string {
	if !r.Changed {
		return "no change in meaning"
	}
	return r.Verdict.String()
}

// String says what changes, and from what to what.
func (c *Change) String() string {
	text := c.What
	if c.Rule != "" {
		text = c.Rule + ": " + text
	}
	if len(c.Tiers) > 0 {
		text += " (" + strings.Join(c.Tiers, ", ") + ")"
	}
	return text + ": " + change(c.Old, c.New)
}

// change returns before → after, or the only one of them.
func change(before, after string) string {
	switch {
	case before == after || before == "":
		return cmp.Or(after, "none")
	case after == "":
		return "was " + before
	default:
		return before + " → " + after
	}
}

// Consequences say what the change means for requests. It may be empty.
func (c *Change) Consequences() string {
	var parts []string
	if c.Worst != "" && c.Old != "" && c.New != "" {
		parts = append(parts, "at worst "+c.Worst)
	}
	if c.What == scopePart {
		parts = append(parts, scopeWords(c.Old, c.New))
	}
	if words := historyWords[c.History]; words != "" {
		parts = append(parts, words)
	}
	return strings.Join(parts, "; ")
}

// scopeWords say what another scope of a rule means.
func scopeWords(before, after string) string {
	switch rules.RegionScope {
	case before:
		return "the limit is now for all regions together, no longer for each"
	case after:
		return "each region now admits the limit, no longer all regions together"
	default:
		return "another log for all regions"
	}
}

var historyWords = map[string]string{
	Kept:   "history kept",
	Empty:  "starts empty",
	Partly: "some logs start empty",
}

// String says which rule the descriptors had, and which they get.
func (m *MatchChange) String() string {
	text := fmt.Sprintf("%s: [%s] matched %s, now %s", m.Domain, m.Descriptor, cmp.Or(m.OldRule, "no rule"), cmp.Or(m.NewRule, "no rule"))
	if m.OldRule == m.NewRule {
		text = fmt.Sprintf("%s: [%s] matched %s, now %s", m.Domain, m.Descriptor, m.OldPath, m.NewPath)
	}
	if m.Kinds > 1 {
		text += fmt.Sprintf(" (and %d more kinds of descriptors)", m.Kinds-1)
	}
	if m.History == Empty {
		text += "; starts empty"
	}
	return text
}

// String says which domain changes, and how.
func (d *DomainChange) String() string {
	if d.What == "headers" {
		return fmt.Sprintf("domain %s: headers: %s", d.Domain, change(cmp.Or(d.Old, "those of the service"), cmp.Or(d.New, "those of the service")))
	}
	return fmt.Sprintf("domain %s: %s", d.Domain, d.What)
}

// String says which tier changes, and how.
func (t *TierChange) String() string {
	if t.What == "default" {
		return fmt.Sprintf("default tier, which unknown callers have: %s", change(t.Old, t.New))
	}
	return fmt.Sprintf("tier %s: %s", cmp.Or(t.New, t.Old), t.What)
}

// String says which subjects change, and how.
func (s *SubjectChange) String() string {
	var text string
	switch s.What {
	case "tier":
		text = "other tier: " + change(s.Old, s.New)
	case "added", "removed":
		text = s.What + ", of tier " + cmp.Or(s.New, s.Old)
	case "keys":
		text = "API keys: " + s.Old + ", " + s.New
	case "labels":
		text = "labels: " + s.New
	case "limits":
		text = "overrides"
	default:
		text = s.What
	}
	text += ": " + strings.Join(s.Subjects, ", ")
	if more := s.Count - len(s.Subjects); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// String says how many would be denied, and who.
func (l *LiveLimit) String() string {
	if l.History == Empty {
		return "starts empty: not comparable"
	}
	text := fmt.Sprintf("would be denied now: %d of %d", l.Denied, l.Logs)
	if l.Observed {
		text = fmt.Sprintf("would be denied now if it were not only observed: %d of %d", l.Denied, l.Logs)
	}
	if l.Already > 0 {
		text += fmt.Sprintf(", %d of them by the old limit too", l.Already)
	}
	if l.Unknown > 0 {
		text += fmt.Sprintf("; unknown: %d, because the customer source has the limits of their subjects, and is not asked", l.Unknown)
	}
	return text
}

// String says what a caller has used.
func (p *LiveCaller) String() string {
	return fmt.Sprintf("%s (used %d of %d new, %d old)", p.Who, p.Used, p.Limit, p.OldLimit)
}
