package wire

import (
	"github.com/slidegate/slidegate/internal/headers"
	"github.com/slidegate/slidegate/internal/policy"
)

// AppendVerdict appends the entries of a Struct that tell of v, but for whom it is
// about, in ascending order of their names. asked appends entries that stand
// between "degraded_by" and "limit"; nil: none.
func AppendVerdict(b []byte, v *policy.Verdict, asked func([]byte) []byte) []byte {
	if v.Unresolved {
		b = AppendEntry(b, "caller_unresolved", func(b []byte) []byte { return appendBool(b, true) })
	}
	if v.Degraded {
		b = AppendEntry(b, "degraded", func(b []byte) []byte { return appendBool(b, true) })
		b = AppendTextEntry(b, "degraded_by", v.DegradedBy().String())
	}
	if asked != nil {
		b = asked(b)
	}
	var s *policy.LimitStatus
	if v.Decisive >= 0 {
		s = &v.Limits[v.Decisive]
		b = AppendNumberEntry(b, "limit", float64(s.Limit.Hits))
	}
	if m := v.Metadata(); len(m) > 0 {
		b = AppendEntry(b, "metadata", func(b []byte) []byte { return appendValue(b, m, 1) })
	}
	if s != nil {
		b = AppendNumberEntry(b, "remaining", float64(s.Decision.Remaining))
		if !v.Allowed {
			b = AppendNumberEntry(b, "retry_after", float64(headers.RetryAfter(s)))
		}
		b = AppendTextEntry(b, "rule", s.Rule.Name)
	}
	if v.Shadowed >= 0 {
		b = AppendTextEntry(b, "shadowed", v.Limits[v.Shadowed].Rule.Name)
	}
	return b
}

// AppendSubject appends the entries of a Struct that say whom an answer is about.
// Empty ones are left out: Envoy's metadata action drops a descriptor for an empty
// text as for an absent one.
func AppendSubject(b []byte, subject, tier string) []byte {
	if subject != "" {
		b = AppendTextEntry(b, "subject", subject)
	}
	if tier != "" {
		b = AppendTextEntry(b, "tier", tier)
	}
	return b
}
