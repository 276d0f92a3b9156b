package ratelimit

import (
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/internal/wire"
)

// echo is the request that dynamic metadata repeats. The zero value: none.
type echo struct {
	request *rlsv3.RateLimitRequest
	secrets *tier.Secrets
}

// appendMetadata appends what access logs and later filters read, if there is
// anything.
func appendMetadata(b []byte, v *policy.Verdict, asked echo) []byte {
	return wire.AppendStruct(b, answerMetadata, func(b []byte) []byte {
		b = wire.AppendVerdict(b, v, asked.append)
		if v.Decisive < 0 {
			return b
		}
		s := &v.Limits[v.Decisive]
		return wire.AppendSubject(b, s.Subject, s.Tier)
	})
}

// append appends the entries that repeat the request.
func (e echo) append(b []byte) []byte {
	r := e.request
	if r == nil {
		return b
	}
	b = wire.AppendEntry(b, "descriptors", func(b []byte) []byte { return appendDescriptors(b, r, e.secrets) })
	b = wire.AppendTextEntry(b, "domain", r.GetDomain())
	if n := r.GetHitsAddend(); n != 0 {
		b = wire.AppendNumberEntry(b, "hitsAddend", float64(n))
	}
	return b
}

// appendDescriptors appends the descriptors of a request as envoyproxy/ratelimit
// lays them out.
func appendDescriptors(b []byte, r *rlsv3.RateLimitRequest, secrets *tier.Secrets) []byte {
	return wire.AppendListValue(b, func(b []byte) []byte {
		for _, d := range r.GetDescriptors() {
			b = wire.AppendItem(b, func(b []byte) []byte {
				return wire.AppendStructValue(b, func(b []byte) []byte { return appendDescriptor(b, d, secrets) })
			})
		}
		return b
	})
}

func appendDescriptor(b []byte, d *ratelimitcommonv3.RateLimitDescriptor, secrets *tier.Secrets) []byte {
	b = wire.AppendEntry(b, "entries", func(b []byte) []byte {
		return wire.AppendListValue(b, func(b []byte) []byte {
			for _, e := range d.GetEntries() {
				value := e.GetValue()
				if secrets.Is(e.GetKey()) {
					value = "***"
				}
				b = wire.AppendItem(b, func(b []byte) []byte {
					return wire.AppendTextValue(b, e.GetKey()+"="+value)
				})
			}
			return b
		})
	})
	if n := d.GetHitsAddend(); n != nil {
		b = wire.AppendNumberEntry(b, "hitsAddend", float64(n.GetValue()))
	}
	if o := d.GetLimit(); o != nil {
		b = wire.AppendTextEntry(b, "limit", overrideText(o))
	}
	return b
}
