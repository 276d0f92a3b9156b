package dynamic

import (
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/window"
)

// AppendVerdict appends the entries of a Struct that describe v, in ascending order of their names.
// It names the policy of the decisive limit if that is not sliding. It does not append the caller:
// see [AppendSubject]. echo, unless it is nil, appends entries whose names are between "degraded_by"
// and "limit".
func AppendVerdict(b []byte, v *decide.Verdict, echo func([]byte) []byte) []byte {
	if v.Unresolved {
		b = wire.AppendBoolEntry(b, "caller_unresolved", true)
	}
	if v.Degraded {
		b = wire.AppendBoolEntry(b, "degraded", true)
		b = wire.AppendTextEntry(b, "degraded_by", v.DegradedBy().String())
	}
	if echo != nil {
		b = echo(b)
	}
	var s *decide.LimitStatus
	if v.Decisive >= 0 {
		s = &v.Limits[v.Decisive]
		b = wire.AppendNumberEntry(b, "limit", float64(s.Limit.Hits))
	}
	if m := v.Metadata(); len(m) > 0 {
		b = wire.AppendValueEntry(b, "metadata", m)
	}
	if s != nil {
		if s.Limit.Policy != window.Sliding {
			b = wire.AppendTextEntry(b, "policy", s.Limit.Policy.String())
		}
		b = wire.AppendNumberEntry(b, "remaining", float64(s.Decision.Remaining))
		if s.Limit.Budget != nil {
			b = wire.AppendNumberEntry(b, "reserved", float64(s.Decision.Reserved))
		}
		if answer.Retryable(v) {
			b = wire.AppendNumberEntry(b, "retry_after", float64(answer.RetryAfter(s)))
		}
		b = wire.AppendTextEntry(b, "rule", s.Rule.Name)
	}
	if v.Shadowed >= 0 {
		b = wire.AppendTextEntry(b, "shadowed", v.Limits[v.Shadowed].Rule.Name)
	}
	return b
}

// AppendSubject appends the entries of a Struct that name the caller and its tier. It
// leaves out an empty value: Envoy's metadata action drops a descriptor with an empty text,
// as with an absent one.
func AppendSubject(b []byte, subject, tier string) []byte {
	if subject != "" {
		b = wire.AppendTextEntry(b, "subject", subject)
	}
	if tier != "" {
		b = wire.AppendTextEntry(b, "tier", tier)
	}
	return b
}
