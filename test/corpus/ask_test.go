package corpus

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/pkg/descriptors"
)

// ask is one request of a transcript.
type ask struct {
	at    time.Duration
	in    *rlsv3.RateLimitRequest
	times int
	json  bool
	want  []string
}

var (
	requestOption    = regexp.MustCompile(`^\[([a-z]+) ?([^\]]*)\] *`)
	descriptorOption = regexp.MustCompile(` *\(([a-z]+) ?([^)]*)\)$`)
)

// readAsk reads a line that begins with "at ".
func readAsk(line string) (*ask, error) {
	rest, want, ok := strings.Cut(strings.TrimPrefix(line, "at "), " want ")
	if !ok {
		return nil, fmt.Errorf("it does not say what it wants")
	}
	at, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	a := &ask{times: 1, in: &rlsv3.RateLimitRequest{Domain: "edge"}, want: strings.Fields(want)}
	var err error
	if a.at, err = time.ParseDuration(at); err != nil {
		return nil, err
	}
	rest = strings.TrimSpace(rest)
	for m := requestOption.FindStringSubmatch(rest); m != nil; m = requestOption.FindStringSubmatch(rest) {
		rest = rest[len(m[0]):]
		switch m[1] {
		case "domain":
			a.in.Domain = m[2]
		case "json":
			a.json = true
		case "times":
			a.times, err = strconv.Atoi(m[2])
		case "hits":
			var n uint64
			n, err = strconv.ParseUint(m[2], 10, 32)
			a.in.HitsAddend = uint32(n)
		default:
			err = fmt.Errorf("unknown option %q", m[1])
		}
		if err != nil {
			return nil, err
		}
	}
	for text := range strings.SplitSeq(rest, " ; ") {
		d, err := readDescriptor(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		a.in.Descriptors = append(a.in.Descriptors, d)
	}
	return a, nil
}

func readDescriptor(text string) (*ratelimitcommonv3.RateLimitDescriptor, error) {
	d := new(ratelimitcommonv3.RateLimitDescriptor)
	for m := descriptorOption.FindStringSubmatch(text); m != nil; m = descriptorOption.FindStringSubmatch(text) {
		text = text[:len(text)-len(m[0])]
		switch m[1] {
		case "refund":
			d.IsNegativeHits = true
		case "hits":
			n, err := strconv.ParseUint(m[2], 10, 64)
			if err != nil {
				return nil, err
			}
			d.HitsAddend = wrapperspb.UInt64(n)
		case "limit":
			limit, err := readOverride(m[2])
			if err != nil {
				return nil, err
			}
			d.Limit = limit
		default:
			return nil, fmt.Errorf("unknown option %q", m[1])
		}
	}
	if text == "{}" {
		return d, nil
	}
	entries, err := descriptors.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	return d, nil
}

// readOverride reads "5 per minute" or "5 per 2 minute".
func readOverride(text string) (*ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride, error) {
	f := strings.Fields(text)
	if len(f) < 3 || len(f) > 4 || f[1] != "per" {
		return nil, fmt.Errorf("limit %q: write 5 per minute, or 5 per 2 minute", text)
	}
	hits, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return nil, err
	}
	unit, ok := typev3.RateLimitUnit_value[strings.ToUpper(f[len(f)-1])]
	if !ok {
		return nil, fmt.Errorf("unknown unit %q", f[len(f)-1])
	}
	o := &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(hits), Unit: typev3.RateLimitUnit(unit)}
	if len(f) == 4 {
		n, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			return nil, err
		}
		o.UnitMultiplier = wrapperspb.UInt32(uint32(n))
	}
	return o, nil
}

// check compares an answer with what was wanted of it.
func (a *ask) check(out *rlsv3.RateLimitResponse, err error) error {
	words := a.want
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	first := next()
	if err != nil {
		if first != "error" || next() != codeOf(err) || len(words) > 0 {
			return fmt.Errorf("%w, want %s", err, strings.Join(a.want, " "))
		}
		return nil
	}
	if code := short(out.GetOverallCode()); code != first {
		return fmt.Errorf("answer %s, want %s", code, first)
	}
	if len(out.GetStatuses()) != len(a.in.GetDescriptors()) {
		return fmt.Errorf("%d statuses for %d descriptors", len(out.GetStatuses()), len(a.in.GetDescriptors()))
	}
	for i, s := range out.GetStatuses() {
		if got, want := remaining(s), next(); got != want {
			return fmt.Errorf("descriptor %d: %s remains, want %s", i+1, got, want)
		}
	}
	metadata := out.GetDynamicMetadata().AsMap()
	for len(words) > 0 {
		what, want := next(), next()
		field, known := map[string]string{"by": "rule", "in": "retry_after", "shadow": "shadowed"}[what]
		if !known {
			return fmt.Errorf("want has %q, which says nothing", what)
		}
		got := fmt.Sprint(metadata[field])
		if n, isNumber := metadata[field].(float64); isNumber {
			got = strconv.FormatFloat(n, 'f', -1, 64)
		}
		if got != want {
			return fmt.Errorf("%s %s, want %s", what, got, want)
		}
	}
	return nil
}

func short(c rlsv3.RateLimitResponse_Code) string {
	switch c {
	case rlsv3.RateLimitResponse_OK:
		return "OK"
	case rlsv3.RateLimitResponse_OVER_LIMIT:
		return "OVER"
	default:
		return c.String()
	}
}

// remaining returns the remaining hits that want expects of a status.
func remaining(s *rlsv3.RateLimitResponse_DescriptorStatus) string {
	over := ""
	if s.GetCode() != rlsv3.RateLimitResponse_OK {
		over = "!"
	}
	switch {
	case s.GetCurrentLimit() != nil:
		return strconv.FormatUint(uint64(s.GetLimitRemaining()), 10) + over
	case s.GetLimitRemaining() == math.MaxUint32:
		return "unlimited" + over
	default:
		return "-" + over
	}
}
