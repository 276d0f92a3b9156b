package xds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// typeURL is the type of resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// maxDepth is how deep the messages of a resource may nest. Files of rules may nest half as deep.
const maxDepth = 100

// Decode returns the rules in the resources of a response, in the order of their domains. The
// error has each resource that cannot be decoded.
func Decode(resources []*anypb.Any) ([]rules.Domain, error) {
	domains := make([]rules.Domain, 0, len(resources))
	var bad []string
	for i, resource := range resources {
		if resource.GetTypeUrl() != typeURL {
			bad = append(bad, fmt.Sprintf("resource %d: the type is %s, expected %s", i, strict.Quote(resource.GetTypeUrl()), typeURL))
			continue
		}
		d, err := decode(resource.GetValue())
		if err != nil {
			bad = append(bad, fmt.Sprintf("resource %d: %s", i, err))
			continue
		}
		domains = append(domains, d)
	}
	if len(bad) > 0 {
		return nil, errors.New(strings.Join(bad[:min(len(bad), maxReasons)], "\n"))
	}
	slices.SortFunc(domains, func(a, b rules.Domain) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source))
	})
	return domains, nil
}

// maxReasons bounds the lines of an error.
const maxReasons = 10

// The library's own text is for programs.
var errMalformed = fmt.Errorf("not an encoded RateLimitConfig whose texts are UTF-8, at most %d levels deep", maxDepth)

// decode returns the rules of one resource.
func decode(encoded []byte) (rules.Domain, error) {
	in := new(ratelimitv3.RateLimitConfig)
	if (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(encoded, in) != nil {
		return rules.Domain{}, errMalformed
	}
	d := rules.Domain{Source: "xds " + cmp.Or(in.GetName(), in.GetDomain()), Name: in.GetDomain(), Unknown: unknown(in)}
	d.Descriptors = descriptorsOf(in.GetDescriptors(), &d.Unknown)
	return d, nil
}

// unknown reports whether a message has a field that its type does not have.
func unknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// descriptorsOf returns descriptors as rules. It sets strange if a message has an unknown field.
func descriptorsOf(in []*ratelimitv3.RateLimitDescriptor, strange *bool) []rules.Descriptor {
	if len(in) == 0 {
		return nil
	}
	out := make([]rules.Descriptor, len(in))
	for i, d := range in {
		*strange = *strange || unknown(d) || unknown(d.GetRateLimit())
		out[i] = rules.Descriptor{
			Key:         d.GetKey(),
			Value:       d.GetValue(),
			Limit:       limitOf(d.GetRateLimit()),
			ShadowMode:  d.GetShadowMode(),
			QuotaMode:   d.GetQuotaMode(),
			Detailed:    d.GetDetailedMetric(),
			Descriptors: descriptorsOf(d.GetDescriptors(), strange),
		}
		if d.GetMetadata() != nil {
			out[i].Metadata = d.GetMetadata().AsMap()
		}
	}
	return out
}

func limitOf(in *ratelimitv3.RateLimitPolicy) *rules.Limit {
	if in == nil {
		return nil
	}
	out := &rules.Limit{
		RequestsPerUnit: uint64(in.GetRequestsPerUnit()),
		Unlimited:       in.GetUnlimited(),
		Name:            in.GetName(),
	}
	// An unset unit has a name as well: UNKNOWN. It is a mistake where there is a limit.
	if unit := in.GetUnit(); unit != ratelimitv3.RateLimitUnit_UNKNOWN || !out.Unlimited {
		out.Unit = unit.String()
	}
	for _, r := range in.GetReplaces() {
		out.Replaces = append(out.Replaces, r.GetName())
	}
	return out
}
