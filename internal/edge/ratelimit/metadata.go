package ratelimit

import (
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/answer/dynamic"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// appendMetadata appends the dynamic metadata, unless it has no entries. echo are the
// encoded entries that repeat the request.
func appendMetadata(b []byte, v *decide.Verdict, echo []byte) []byte {
	return wire.AppendStruct(b, answerMetadata, func(b []byte) []byte {
		b = dynamic.AppendVerdict(b, v, func(b []byte) []byte {
			b = append(b, echo...)
			if v.KeyDigest != "" {
				b = wire.AppendTextEntry(b, "key_digest", tier.ShortDigest(v.KeyDigest))
			}
			return b
		})
		return dynamic.AppendSubject(b, v.Subject, v.Tier)
	})
}

// maxEcho is the longest request, in bytes, that an answer repeats. The encoded metadata is
// about twice as long.
const maxEcho = 64 << 10

// appendEcho appends the entries of metadata that repeat a request, in the layout of
// envoyproxy/ratelimit. They repeat values as sent, except that "***" replaces an API key
// and white space around values is removed. So call it before the request is decided,
// which writes addresses in another form.
func appendEcho(b []byte, m *message, secrets *tier.Secrets) []byte {
	b = wire.AppendEntry(b, "descriptors", func(b []byte) []byte {
		return wire.AppendListValue(b, func(b []byte) []byte {
			rest := m.entries
			for i := range m.descriptors {
				d := &m.descriptors[i]
				entries := rest[:d.entries]
				rest = rest[d.entries:]
				b = wire.AppendItem(b, func(b []byte) []byte {
					return wire.AppendStructValue(b, func(b []byte) []byte { return d.appendEcho(b, entries, secrets) })
				})
			}
			return b
		})
	})
	b = wire.AppendTextEntry(b, "domain", m.domain)
	if n := m.hitsAddend; n != 0 {
		b = wire.AppendNumberEntry(b, "hitsAddend", float64(n))
	}
	return b
}

func (d *described) appendEcho(b []byte, entries []descriptors.Entry, secrets *tier.Secrets) []byte {
	b = wire.AppendEntry(b, "entries", func(b []byte) []byte {
		return wire.AppendListValue(b, func(b []byte) []byte {
			for _, e := range entries {
				value := descriptors.Trim(e.Value)
				if secrets.Is(e.Key) {
					value = "***"
				}
				b = wire.AppendItem(b, func(b []byte) []byte {
					return wire.AppendTextValue(b, e.Key+"="+value)
				})
			}
			return b
		})
	})
	if d.hasAddend {
		b = wire.AppendNumberEntry(b, "hitsAddend", float64(d.hitsAddend))
	}
	if d.limited {
		b = wire.AppendTextEntry(b, "limit", d.limit.text())
	}
	return b
}
