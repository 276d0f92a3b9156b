package xds

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// loadSent loads what a server sends, without tiers.
func loadSent(t testing.TB, resources []*anypb.Any) (*config.Generation, error) {
	t.Helper()
	domains, err := Decode(resources)
	if err != nil {
		return nil, err
	}
	s := settings.Default()
	s.Tiers.Source, s.Rules.Source = settings.TiersNone, settings.RulesXDS
	return config.LoadSent(s, &config.Sent{Version: "1", Domains: domains}, nil)
}

// loadFile loads a rules file, without tiers.
func loadFile(t testing.TB, text string) (*config.Generation, error) {
	t.Helper()
	s := settings.Default()
	s.Tiers.Source, s.Rules.Path = settings.TiersNone, configtest.Write(t, "rules.yaml", text)
	return config.Load(s)
}

// TestEveryField: everything that a message can say means what it means in a file.
func TestEveryField(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"plan": "gold", "list": []any{1.0, true, nil}})
	if err != nil {
		t.Fatal(err)
	}
	type (
		d = ratelimitv3.RateLimitDescriptor
		l = ratelimitv3.RateLimitPolicy
	)
	message := &ratelimitv3.RateLimitConfig{Name: "resource", Domain: "edge", Descriptors: []*d{
		{Key: "none", Value: "v", Descriptors: []*d{{Key: "deeper", RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_SECOND, RequestsPerUnit: 1}}}},
		{Key: "zero", RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_MINUTE}},
		{Key: "most", RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_HOUR, RequestsPerUnit: 4294967295}},
		{Key: "day", ShadowMode: true, RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_DAY, RequestsPerUnit: 2}},
		{Key: "week", QuotaMode: true, RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_WEEK, RequestsPerUnit: 3}},
		{Key: "month", DetailedMetric: true, RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_MONTH, RequestsPerUnit: 4}},
		{Key: "year", Metadata: metadata, RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_YEAR, RequestsPerUnit: 5, Name: "named"}},
		{Key: "free", RateLimit: &l{Unlimited: true, Replaces: []*ratelimitv3.RateLimitReplace{{Name: "named"}}}},
		{Key: "path", Value: "/v1/*", RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_SECOND, RequestsPerUnit: 6}},
		{Key: "leaf"},
	}}
	file := `domain: edge
descriptors:
  - {key: none, value: v, descriptors: [{key: deeper, rate_limit: {unit: second, requests_per_unit: 1}}]}
  - {key: zero, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: most, rate_limit: {unit: hour, requests_per_unit: 4294967295}}
  - {key: day, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: week, quota_mode: true, rate_limit: {unit: week, requests_per_unit: 3}}
  - {key: month, detailed_metric: true, rate_limit: {unit: month, requests_per_unit: 4}}
  - {key: year, metadata: {plan: gold, list: [1, true, null]}, rate_limit: {unit: year, requests_per_unit: 5, name: named}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: named}]}}
  - {key: path, value: "/v1/*", rate_limit: {unit: second, requests_per_unit: 6}}
  - {key: leaf}
`
	got, err := loadSent(t, response(t, "1", message).Resources)
	if err != nil {
		t.Fatal(err)
	}
	want, err := loadFile(t, file)
	if err != nil {
		t.Fatal(err)
	}
	configtest.Diff(t, configtest.DescribeAll(want.Rules), configtest.DescribeAll(got.Rules), "rules")
	if len(got.Warnings) > 0 {
		t.Errorf("warnings: %v", got.Warnings)
	}
	if place := got.Locations[0].String(); place != "xds resource" {
		t.Errorf("the place of the first rule is %s", place)
	}
}

// TestNoWarnings: what a program writes without meaning gives no warning: names, empty values,
// modes on every level, levels without a limit.
func TestNoWarnings(t *testing.T) {
	g, err := loadSent(t, response(t, "1", gatewayConfigs()...).Resources)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Warnings) > 0 {
		t.Errorf("warnings: %v", g.Warnings)
	}
}

// TestBadResources: each mistake is a reason with its place.
func TestBadResources(t *testing.T) {
	type (
		d = ratelimitv3.RateLimitDescriptor
		l = ratelimitv3.RateLimitPolicy
	)
	ok := &l{Unit: ratelimitv3.RateLimitUnit_SECOND, RequestsPerUnit: 1}
	large, err := structpb.NewStruct(map[string]any{"text": strings.Repeat("x", 17<<10)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		give *ratelimitv3.RateLimitConfig
		want string
	}{
		{"no domain", &ratelimitv3.RateLimitConfig{Name: "r"}, "xds r: a domain needs a name"},
		{"no key", &ratelimitv3.RateLimitConfig{Name: "r", Domain: "a", Descriptors: []*d{{RateLimit: ok}}}, "xds r: descriptors[0]: a descriptor key cannot be empty"},
		{
			"no unit", &ratelimitv3.RateLimitConfig{Name: "r", Domain: "a", Descriptors: []*d{{Key: "k", Value: "v", Descriptors: []*d{{Key: "l", RateLimit: &l{RequestsPerUnit: 1}}}}}},
			`xds r: descriptors[k=v].descriptors[l]: unknown unit "UNKNOWN", expected one of second, minute, hour, day, week, month, year`,
		},
		{
			"an unknown unit", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*d{{Key: "k", RateLimit: &l{Unit: 99, RequestsPerUnit: 1}}}},
			`xds a: descriptors[k]: unknown unit "99", expected one of second, minute, hour, day, week, month, year`,
		},
		{
			"a unit with unlimited", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*d{{Key: "k", RateLimit: &l{Unit: ratelimitv3.RateLimitUnit_DAY, Unlimited: true}}}},
			"xds a: descriptors[k]: unit with unlimited: give one of the two",
		},
		{
			"a descriptor twice", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*d{{Key: "k", RateLimit: ok}, {Key: "k", RateLimit: ok}}},
			"xds a: descriptors[k]: a second descriptor like the one before it: put both into one",
		},
		{
			"replaces itself", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*d{{Key: "k", RateLimit: &l{Unit: 1, Name: "n", Replaces: []*ratelimitv3.RateLimitReplace{{Name: "n"}}}}}},
			"xds a: descriptors[k]: a rule cannot replace itself",
		},
		{
			"too much metadata", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*d{{Key: "k", RateLimit: ok, Metadata: large}}},
			"xds a: descriptors[k]: more than 1000 values or 16 KiB: it is in every answer",
		},
		{
			"an API key", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*d{{Key: "api_key", Value: "s3cret", RateLimit: &l{}}}},
			`xds a: descriptors[api_key=***]: unknown unit "UNKNOWN", expected one of second, minute, hour, day, week, month, year`,
		},
	} {
		_, err := loadSent(t, response(t, "1", tt.give).Resources)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got\n%v\nwant\n%s", tt.name, err, tt.want)
		}
	}
}

// TestBoundsOfResponses: a response that would take far more memory than its bytes is refused
// before it is decoded.
func TestBoundsOfResponses(t *testing.T) {
	short := func(n int) *anypb.Any {
		return &anypb.Any{TypeUrl: typeURL, Value: []byte(strings.Repeat("\x1a\x03\x0a\x01k", n))}
	}
	if _, err := Decode([]*anypb.Any{short(maxMessages)}); !errors.Is(err, errTooMany) {
		t.Errorf("many descriptors: %v", err)
	}
	half := short(maxMessages / 2)
	if _, err := Decode([]*anypb.Any{half, half}); !errors.Is(err, errTooMany) {
		t.Errorf("many descriptors in two resources: %v", err)
	}
	deep := &ratelimitv3.RateLimitDescriptor{Key: "k"}
	for range maxDepth {
		deep = &ratelimitv3.RateLimitDescriptor{Key: "k", Descriptors: []*ratelimitv3.RateLimitDescriptor{deep}}
	}
	_, err := Decode(response(t, "1", &ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*ratelimitv3.RateLimitDescriptor{deep}}).Resources)
	if err == nil || !strings.HasSuffix(err.Error(), errTooDeep.Error()) {
		t.Errorf("a deep tree: %v", err)
	}
}

// TestMemoryOfResponses: a short response of very many messages is refused before they are decoded.
func TestMemoryOfResponses(t *testing.T) {
	in := func(field, b string) string { return field + string(protowire.AppendVarint(nil, uint64(len(b)))) + b }
	const key = "\x0a\x01k"
	for name, b := range map[string]string{
		"empty descriptors":  strings.Repeat("\x1a\x00", 1_000_000),
		"few, empty":         strings.Repeat("\x1a\x00", 100_000),
		"short keys":         strings.Repeat(in("\x1a", key), 1_000_000),
		"limits":             strings.Repeat(in("\x1a", key+"\x1a\x00"), 600_000),
		"nested descriptors": strings.Repeat(in("\x1a", key+in("\x22", key)), 400_000),
		"names to replace":   in("\x1a", key+in("\x1a", strings.Repeat("\x2a\x00", 1_000_000))),
	} {
		resources := []*anypb.Any{{TypeUrl: typeURL, Value: []byte(b)}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(resources)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 10*uint64(len(b)) {
			t.Errorf("%s: %d bytes took %d: %v", name, len(b), took, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "resource 0: ") {
			t.Errorf("%s: the resource is not named: %v", name, err)
		}
	}
}

// TestManyResources: a short response of very many resources is refused before it is decoded.
func TestManyResources(t *testing.T) {
	b := []byte(strings.Repeat("\x12\x00", 1_000_000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, new(discoveryv3.DiscoveryResponse))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 10*uint64(len(b)) {
		t.Errorf("%d bytes took %d: %v", len(b), took, err)
	}
	if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b[:2*maxFields])}, new(discoveryv3.DiscoveryResponse)); err != nil {
		t.Errorf("%d resources: %v", maxFields, err)
	}
}

// TestManyRules: 100,000 rules in one message.
func TestManyRules(t *testing.T) {
	c := &ratelimitv3.RateLimitConfig{Name: "many", Domain: "many"}
	for route := range 1000 {
		r := &ratelimitv3.RateLimitDescriptor{Key: fmt.Sprint("route", route), Value: fmt.Sprint("route", route)}
		for rule := range 100 {
			r.Descriptors = append(r.Descriptors, &ratelimitv3.RateLimitDescriptor{
				Key: "match", Value: fmt.Sprint(rule), RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_HOUR, RequestsPerUnit: 10},
			})
		}
		c.Descriptors = append(c.Descriptors, r)
	}
	resources := response(t, "1", c).Resources
	g, err := loadSent(t, resources)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(g.Rules.All()); got != 100_000 {
		t.Errorf("%d rules", got)
	}
	t.Logf("%d bytes", len(resources[0].GetValue()))
}

// TestOrderOfResources: a server sends resources in any order. The digest and the rules are the
// same.
func TestOrderOfResources(t *testing.T) {
	all := response(t, "1", gatewayConfigs()...).Resources
	a, err := loadSent(t, all)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	b, err := loadSent(t, all)
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest != b.Digest {
		t.Errorf("digests %s and %s", a.Digest, b.Digest)
	}
	configtest.Diff(t, configtest.DescribeAll(a.Rules), configtest.DescribeAll(b.Rules), "rules")
	fewer, err := loadSent(t, all[1:])
	if err != nil {
		t.Fatal(err)
	}
	if fewer.Digest == a.Digest {
		t.Error("other rules have the same digest")
	}
}

// FuzzResources: no bytes of a server end the process. What the count accepts agrees with the
// library.
func FuzzResources(f *testing.F) {
	for _, c := range gatewayConfigs() {
		encoded, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded, "name")
	}
	metadata, _ := structpb.NewStruct(map[string]any{"a": []any{1.0, map[string]any{"b": nil}}})
	encoded, _ := proto.Marshal(&ratelimitv3.RateLimitConfig{Domain: "a", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Key: "k", Metadata: metadata}}})
	f.Add(encoded, "")
	f.Fuzz(func(t *testing.T, encoded []byte, name string) {
		resources := []*anypb.Any{{TypeUrl: typeURL, Value: encoded}, {TypeUrl: name, Value: encoded}, {TypeUrl: typeURL}}
		_, err := Decode(resources[:1])
		if err == nil && proto.Unmarshal(encoded, new(ratelimitv3.RateLimitConfig)) != nil {
			t.Error("decoded what the library does not decode")
		}
		_, _ = loadSent(t, resources[:1])
		_, _ = loadSent(t, resources)
		_ = contentOf(response(t, name))
	})
}
