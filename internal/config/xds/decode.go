package xds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/strict"
)

const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Bounds on the resources of one response.
const (
	// maxMessages is how many messages a response may have whatever its length: a descriptor is a
	// message, and so is its rate_limit. They take 64 MiB.
	maxMessages = 1 << 18
	// bytesAMessage is how many bytes a response has at least for each message beyond that. A
	// message takes about 256 bytes, so a response takes ten times its length at most.
	bytesAMessage = 25
	maxDepth      = 100 // files of rules may nest half as deep
)

// Decode returns the rules in the resources of a response, in the order of their domains. The
// error has each resource that cannot be decoded.
func Decode(resources []*anypb.Any) ([]rules.Domain, error) {
	domains := make([]rules.Domain, 0, min(len(resources), maxMessages))
	total := 0
	for _, resource := range resources {
		total += len(resource.GetValue())
	}
	count := counter{left: max(maxMessages, total/bytesAMessage)}
	var bad []string
	for i, resource := range resources {
		if resource.GetTypeUrl() != typeURL {
			bad = append(bad, fmt.Sprintf("resource %d: the type is %s, expected %s", i, strict.Quote(resource.GetTypeUrl()), typeURL))
			continue
		}
		d, err := decode(resource.GetValue(), &count)
		if errors.Is(err, errTooMany) {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
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

const maxReasons = 10

var (
	errTooMany   = fmt.Errorf("the response has more than %d descriptors, limits and values, of less than %d bytes each: send fewer rules", maxMessages, bytesAMessage)
	errEmpty     = errors.New("a descriptor key cannot be empty") // as rules say it, and before each takes 100 times its bytes
	errTooDeep   = fmt.Errorf("nested deeper than %d levels", maxDepth)
	errMalformed = errors.New("not an encoded RateLimitConfig whose texts are UTF-8")
)

func decode(encoded []byte, count *counter) (rules.Domain, error) {
	unknown, err := count.message(encoded, (*ratelimitv3.RateLimitConfig)(nil).ProtoReflect().Descriptor(), 0)
	if err != nil {
		return rules.Domain{}, err
	}
	in := new(ratelimitv3.RateLimitConfig)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, in); err != nil {
		return rules.Domain{}, errMalformed // the text of err is for programs
	}
	return rules.Domain{
		Source:      "xds " + cmp.Or(in.GetName(), in.GetDomain()),
		Name:        in.GetDomain(),
		Descriptors: descriptorsOf(in.GetDescriptors()),
		Unknown:     unknown,
	}, nil
}

// A counter counts the messages in encoded messages, without decoding them.
type counter struct{ left int }

// message counts an encoded message and those in it. unknown says that one of them has a field
// that its type does not have.
func (c *counter) message(encoded []byte, of protoreflect.MessageDescriptor, depth int) (unknown bool, err error) {
	if c.left--; c.left < 0 {
		return false, errTooMany
	}
	if depth >= maxDepth {
		return false, errTooDeep
	}
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return false, errMalformed
		}
		encoded = encoded[n:]
		n = protowire.ConsumeFieldValue(number, kind, encoded)
		if n < 0 {
			return false, errMalformed
		}
		value := encoded[:n]
		encoded = encoded[n:]
		field := of.Fields().ByNumber(number)
		if field == nil {
			unknown = true
			continue
		}
		if field.Message() == nil || kind != protowire.BytesType {
			continue
		}
		inner, _ := protowire.ConsumeBytes(value)
		if len(inner) == 0 && field.Name() == "descriptors" {
			return false, errEmpty
		}
		innerUnknown, err := c.message(inner, field.Message(), depth+1)
		if err != nil {
			return false, err
		}
		unknown = unknown || innerUnknown
	}
	return unknown, nil
}

func descriptorsOf(in []*ratelimitv3.RateLimitDescriptor) []rules.Descriptor {
	if len(in) == 0 {
		return nil
	}
	out := make([]rules.Descriptor, len(in))
	for i, d := range in {
		out[i] = rules.Descriptor{
			Key:         d.GetKey(),
			Value:       d.GetValue(),
			Limit:       limitOf(d.GetRateLimit()),
			ShadowMode:  d.GetShadowMode(),
			QuotaMode:   d.GetQuotaMode(),
			Detailed:    d.GetDetailedMetric(),
			Descriptors: descriptorsOf(d.GetDescriptors()),
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
