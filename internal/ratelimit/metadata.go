package ratelimit

import (
	"maps"
	"math"
	"slices"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/headers"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
)

// echo is the request that dynamic metadata repeats. The zero value: none.
type echo struct {
	request *rlsv3.RateLimitRequest
	secrets *tier.Secrets
}

// appendMetadata appends what access logs and later filters read, if there is
// anything. Texts are strings and never empty, because Envoy's metadata action
// drops a descriptor for an empty or absent one.
func appendMetadata(b []byte, v *policy.Verdict, asked echo) []byte {
	before := len(b)
	b = appendMessage(b, answerMetadata, func(b []byte) []byte { return appendVerdict(b, v, asked) })
	if len(b) == before+emptyMessage {
		return b[:before]
	}
	return b
}

// emptyMessage is what appendMessage appends for a message without fields: a tag
// and a length of a byte each.
const emptyMessage = 2

// appendVerdict appends the fields of the metadata in ascending order of their
// names, as a deterministic encoding has them.
func appendVerdict(b []byte, v *policy.Verdict, asked echo) []byte {
	if v.Degraded {
		b = appendEntry(b, "degraded", func(b []byte) []byte { return appendBool(b, true) })
		b = appendTextEntry(b, "degraded_by", v.DegradedBy().String())
	}
	if r := asked.request; r != nil {
		b = appendEntry(b, "descriptors", func(b []byte) []byte { return appendDescriptors(b, r, asked.secrets) })
		b = appendTextEntry(b, "domain", r.GetDomain())
		if n := r.GetHitsAddend(); n != 0 {
			b = appendNumberEntry(b, "hitsAddend", float64(n))
		}
	}
	var s *policy.LimitStatus
	if v.Decisive >= 0 {
		s = &v.Limits[v.Decisive]
		b = appendNumberEntry(b, "limit", float64(s.Limit.Hits))
	}
	if m := v.Metadata(); len(m) > 0 {
		b = appendEntry(b, "metadata", func(b []byte) []byte { return appendValue(b, m, 1) })
	}
	if s != nil {
		b = appendNumberEntry(b, "remaining", float64(s.Decision.Remaining))
		if !v.Allowed {
			b = appendNumberEntry(b, "retry_after", float64(headers.RetryAfter(s)))
		}
		b = appendTextEntry(b, "rule", s.Rule.Name)
	}
	if v.Shadowed >= 0 {
		b = appendTextEntry(b, "shadowed", v.Limits[v.Shadowed].Rule.Name)
	}
	if s != nil && s.Subject != "" {
		b = appendTextEntry(b, "subject", s.Subject)
	}
	if s != nil && s.Tier != "" {
		b = appendTextEntry(b, "tier", s.Tier)
	}
	return b
}

// appendDescriptors appends the descriptors of a request as envoyproxy/ratelimit
// lays them out.
func appendDescriptors(b []byte, r *rlsv3.RateLimitRequest, secrets *tier.Secrets) []byte {
	return appendList(b, func(b []byte) []byte {
		for _, d := range r.GetDescriptors() {
			b = appendMessage(b, listValues, func(b []byte) []byte {
				return appendMessage(b, valueStruct, func(b []byte) []byte { return appendDescriptor(b, d, secrets) })
			})
		}
		return b
	})
}

func appendDescriptor(b []byte, d *ratelimitcommonv3.RateLimitDescriptor, secrets *tier.Secrets) []byte {
	b = appendEntry(b, "entries", func(b []byte) []byte {
		return appendList(b, func(b []byte) []byte {
			for _, e := range d.GetEntries() {
				value := e.GetValue()
				if secrets.Is(e.GetKey()) {
					value = "***"
				}
				b = appendMessage(b, listValues, func(b []byte) []byte {
					return appendAnyText(b, valueText, e.GetKey()+"="+value)
				})
			}
			return b
		})
	})
	if n := d.GetHitsAddend(); n != nil {
		b = appendNumberEntry(b, "hitsAddend", float64(n.GetValue()))
	}
	if o := d.GetLimit(); o != nil {
		b = appendTextEntry(b, "limit", overrideText(o))
	}
	return b
}

// maxDepth bounds how deep metadata is nested: readers in C++ refuse a message
// that is nested a hundred deep, and one mapping in another is three of these.
// What is deeper is null.
const maxDepth = 20

// appendValue appends the fields of a Value. What has no place in one is null, and
// so is a number that JSON cannot write.
func appendValue(b []byte, value any, depth int) []byte {
	switch v := value.(type) {
	case bool:
		return appendBool(b, v)
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return appendFloat(b, v)
		}
	case string:
		return appendAnyText(b, valueText, v)
	case []any:
		if depth <= maxDepth {
			return appendList(b, func(b []byte) []byte {
				for _, item := range v {
					b = appendMessage(b, listValues, func(b []byte) []byte { return appendValue(b, item, depth+1) })
				}
				return b
			})
		}
	case map[string]any:
		if depth <= maxDepth {
			return appendMessage(b, valueStruct, func(b []byte) []byte {
				for _, key := range slices.Sorted(maps.Keys(v)) {
					b = appendEntry(b, key, func(b []byte) []byte { return appendValue(b, v[key], depth+1) })
				}
				return b
			})
		}
	}
	return protowire.AppendVarint(protowire.AppendTag(b, valueNull, protowire.VarintType), 0)
}

func appendBool(b []byte, v bool) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, valueBool, protowire.VarintType), protowire.EncodeBool(v))
}

func appendFloat(b []byte, n float64) []byte {
	b = protowire.AppendTag(b, valueNumber, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(n))
}

// appendList appends the field of a Value that is a list of what write appends.
func appendList(b []byte, write func([]byte) []byte) []byte {
	return appendMessage(b, valueList, write)
}

func appendNumberEntry(b []byte, key string, n float64) []byte {
	return appendEntry(b, key, func(b []byte) []byte { return appendFloat(b, n) })
}

func appendTextEntry(b []byte, key, text string) []byte {
	// An empty one is a value of the kind text, an absent one of no kind at all.
	return appendEntry(b, key, func(b []byte) []byte { return appendAnyText(b, valueText, text) })
}

// appendEntry appends one field of a Struct.
func appendEntry(b []byte, key string, value func([]byte) []byte) []byte {
	return appendMessage(b, structFields, func(b []byte) []byte {
		return appendMessage(appendAnyText(b, mapKey, key), mapValue, value)
	})
}
