package ratelimit

import (
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

// appendReference appends the encoded response for v to b, as envoyproxy/ratelimit answers.
// With metadata the answer has dynamic metadata: the request and that of the rules.
func appendReference(b []byte, v *decide.Verdict, fields []answer.Header, body []byte, metadata bool, echo []byte) []byte {
	b = wire.AppendNumber(b, answerCode, uint64(code(v.Allowed)))
	for i, at := range v.Strictest {
		b = wire.AppendMessage(b, answerStatuses, func(b []byte) []byte {
			m := &v.Matches[i]
			if at < 0 {
				return appendUnlimited(b, m.Unlimited || m.ReplacedBy != nil && m.Rule.Terms.Unlimited)
			}
			s := &v.Limits[at]
			name := s.Rule.GivenName()
			if m.Overridden {
				name = ""
			}
			return appendLimit(b, s, limitForm{!s.OverByRule(), name, answer.ReferenceRemaining(s), answer.ReferenceReset(s, s.Wait())})
		})
	}
	b = appendReply(b, fields, body)
	if !metadata {
		return b
	}
	return wire.AppendStruct(b, answerMetadata, func(b []byte) []byte {
		b = append(b, echo...)
		if m := v.MetadataUnless((*decide.LimitStatus).OverByRule); len(m) > 0 {
			b = wire.AppendValueEntry(b, "metadata", m)
		}
		return b
	})
}
