package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/configtest"
)

// This file makes rules in the shape of Envoy Gateway's, and requests of its filters. Below a
// route, a rule has one level for each of its matches, in a fixed order: headers, method, path,
// address, query parameters. The limit is on the last one.

// A match is one level of a rule: the descriptor in the rules, and an entry of a request that
// matches it.
type match struct{ key, value, sent string }

// A gatewayRule is a rule of a BackendTrafficPolicy.
type gatewayRule struct {
	headers  []string // names; a name that begins with * is distinct
	inverted bool     // the first header must not have its value, which Envoy decides
	method   bool
	path     bool
	cidr     string // "", a CIDR, or one with invert: before it
	distinct bool   // each address has its own log
	queries  int
	shadow   bool
	unit     ratelimitv3.RateLimitUnit
	requests uint32
}

// levels returns the levels of the rule with number i below its route. random chooses values of
// requests.
func (g *gatewayRule) levels(i int, random *rand.Rand) (all []match) {
	anyValue := func() string { return fmt.Sprintf("v%d", random.IntN(3)) }
	for j, name := range g.headers {
		key := fmt.Sprintf("rule-%d-match-%d", i, j)
		if strings.HasPrefix(name, "*") {
			all = append(all, match{key, "", anyValue()})
		} else {
			all = append(all, match{key, key, key}) // inverted ones look the same
		}
	}
	if g.method {
		key := fmt.Sprintf("rule-%d-method", i)
		all = append(all, match{key, key, key})
	}
	if g.path {
		key := fmt.Sprintf("rule-%d-path", i)
		all = append(all, match{key, key, key})
	}
	if g.cidr != "" {
		all = append(all, match{"masked_remote_address", g.cidr, g.cidr})
		if g.distinct {
			all = append(all, match{"remote_address", "", fmt.Sprintf("10.1.1.%d", random.IntN(3))})
		}
	}
	for k := range g.queries {
		key := fmt.Sprintf("rule-%d-match-%d", i, len(g.headers)+k)
		all = append(all, match{key, key, key})
	}
	if len(all) == 0 {
		key := fmt.Sprintf("rule-%d-match--1", i)
		all = append(all, match{key, key, key})
	}
	return all
}

// gatewayRules has every kind of match, alone and with others, and every unit.
func gatewayRules() []gatewayRule {
	const (
		second = ratelimitv3.RateLimitUnit_SECOND
		hour   = ratelimitv3.RateLimitUnit_HOUR
	)
	return []gatewayRule{
		{unit: second, requests: 5},
		{headers: []string{"x-user-id"}, unit: ratelimitv3.RateLimitUnit_MINUTE, requests: 2},
		{headers: []string{"x-user-id"}, inverted: true, unit: hour, requests: 3},
		{headers: []string{"*x-user-id"}, unit: hour, requests: 2},
		{headers: []string{"x-org", "*x-user-id"}, unit: ratelimitv3.RateLimitUnit_DAY, requests: 4},
		{method: true, unit: ratelimitv3.RateLimitUnit_WEEK, requests: 3},
		{path: true, unit: ratelimitv3.RateLimitUnit_MONTH, requests: 3},
		{method: true, path: true, headers: []string{"x-a"}, unit: ratelimitv3.RateLimitUnit_YEAR, requests: 2},
		{cidr: "192.168.0.0/16", unit: hour, requests: 2},
		{cidr: "invert:192.168.0.0/16", unit: hour, requests: 3},
		{cidr: "0.0.0.0/0", distinct: true, unit: hour, requests: 2},
		{cidr: "2001:db8::/32", distinct: true, unit: hour, requests: 1},
		{queries: 2, unit: hour, requests: 2},
		{headers: []string{"x-a", "*x-b"}, method: true, path: true, cidr: "10.0.0.0/8", distinct: true, queries: 1, unit: hour, requests: 3},
		{headers: []string{"x-shadow"}, shadow: true, unit: hour, requests: 1},
		{headers: []string{"x-none"}, unit: hour, requests: 0},
		{headers: []string{"x-most"}, unit: hour, requests: 4294967295},
	}
}

// gatewayRoutes are the domains: one of a listener with two routes, and one of a shared policy.
func gatewayRoutes() map[string][]string {
	return map[string][]string{
		"envoy-gateway-system/eg/http": {
			"httproute/default/http-ratelimit/rule/0/match/0/ratelimit_example_com",
			"httproute/default/http-ratelimit/rule/1/match/0/ratelimit_example_com",
			"httproute/default/any-host/rule/0/match/0/*",
		},
		"default/policy": {"default/policy/rule/0"},
	}
}

// gatewayConfigs returns all of them as messages.
func gatewayConfigs() (configs []*ratelimitv3.RateLimitConfig) {
	random := rand.New(rand.NewPCG(1, 1))
	for domain, routes := range gatewayRoutes() {
		c := &ratelimitv3.RateLimitConfig{Name: domain, Domain: domain}
		for _, route := range routes {
			root := &ratelimitv3.RateLimitDescriptor{Key: route, Value: route}
			for i, rule := range gatewayRules() {
				above := &root.Descriptors
				levels := rule.levels(i, random)
				for j, level := range levels {
					k := slices.IndexFunc(*above, func(d *ratelimitv3.RateLimitDescriptor) bool {
						return d.GetKey() == level.key && d.GetValue() == level.value
					})
					if k < 0 {
						*above = append(*above, &ratelimitv3.RateLimitDescriptor{Key: level.key, Value: level.value, ShadowMode: rule.shadow})
						k = len(*above) - 1
					}
					if j == len(levels)-1 {
						(*above)[k].RateLimit = &ratelimitv3.RateLimitPolicy{Unit: rule.unit, RequestsPerUnit: rule.requests}
					}
					above = &(*above)[k].Descriptors
				}
			}
			c.Descriptors = append(c.Descriptors, root)
		}
		configs = append(configs, c)
	}
	slices.SortFunc(configs, func(a, b *ratelimitv3.RateLimitConfig) int { return strings.Compare(a.GetName(), b.GetName()) })
	return configs
}

// asYAML writes messages as Envoy Gateway's golden files have them.
func asYAML(configs []*ratelimitv3.RateLimitConfig) string {
	var b strings.Builder
	var write func(all []*ratelimitv3.RateLimitDescriptor, indent string)
	write = func(all []*ratelimitv3.RateLimitDescriptor, indent string) {
		fmt.Fprintf(&b, "%sdescriptors:\n", indent)
		for _, d := range all {
			fmt.Fprintf(&b, "%s- key: %q\n%s  value: %q\n%s  shadow_mode: %v\n", indent, d.GetKey(), indent, d.GetValue(), indent, d.GetShadowMode())
			if l := d.GetRateLimit(); l == nil {
				fmt.Fprintf(&b, "%s  rate_limit: null\n", indent)
			} else {
				fmt.Fprintf(&b, "%s  rate_limit: {requests_per_unit: %d, unit: %s, unlimited: false, name: \"\", replaces: []}\n", indent, l.GetRequestsPerUnit(), l.GetUnit())
			}
			if len(d.GetDescriptors()) > 0 {
				write(d.GetDescriptors(), indent+"  ")
			}
		}
	}
	for _, c := range configs {
		fmt.Fprintf(&b, "---\nname: %q\ndomain: %q\n", c.GetName(), c.GetDomain())
		write(c.GetDescriptors(), "")
	}
	return b.String()
}

// TestShapeOfEnvoyGateway: rules over xDS decide as the same rules in a file, for requests with
// every kind of match, costs and reports. None of its rules is worth a warning: the operator of
// Envoy Gateway does not write them.
func TestShapeOfEnvoyGateway(t *testing.T) {
	configs := gatewayConfigs()
	sent, err := loadSent(t, response(t, "1", configs...).Resources)
	if err != nil {
		t.Fatal(err)
	}
	if len(sent.Warnings) > 0 {
		t.Errorf("got warnings: %v", sent.Warnings)
	}
	file, err := loadFile(t, asYAML(configs))
	if err != nil {
		t.Fatal(err)
	}
	configtest.Diff(t, configtest.DescribeAll(file.Rules), configtest.DescribeAll(sent.Rules), "rules")

	decideOne := func(rs *rules.Rules) func(decide.Request) string {
		store := memstore.New(memstore.Options{Clock: func() time.Duration { return time.Hour }}) // both have one
		t.Cleanup(func() { _ = store.Close() })
		d := decide.NewDecider(rs, decide.Options{Store: store})
		return func(r decide.Request) string {
			var c decide.Call
			d.Begin(&c, r)
			if _, err := c.Decide(t.Context(), true); err != nil {
				return err.Error()
			}
			text := fmt.Sprint(c.Verdict().Allowed)
			for _, l := range c.Verdict().Limits {
				text += fmt.Sprintf(" %s %d/%v left %d", l.Limit.Name, l.Limit.Hits, l.Limit.Window, l.Decision.Remaining)
			}
			return text
		}
	}
	overXDS, fromFile := decideOne(sent.Rules), decideOne(file.Rules)
	random := rand.New(rand.NewPCG(1, 2))
	denied := 0
	for range 3000 {
		var all []decide.Descriptor
		domain := "default/policy"
		if random.IntN(2) == 0 {
			domain = "envoy-gateway-system/eg/http"
		}
		routes := gatewayRoutes()[domain]
		route, rs := routes[random.IntN(len(routes))], gatewayRules()
		for range 1 + random.IntN(3) {
			i := random.IntN(len(rs))
			d := decide.Descriptor{Entries: descriptors.Descriptor{{Key: route, Value: route}}, Cost: uint64(random.IntN(3))}
			for _, level := range rs[i].levels(i, random) {
				d.Entries = append(d.Entries, descriptors.Entry{Key: level.key, Value: level.sent})
			}
			all = append(all, d)
		}
		request := func() decide.Request {
			r := decide.Request{Domain: domain}
			for _, d := range all {
				r.Descriptors = append(r.Descriptors, decide.Descriptor{Entries: slices.Clone(d.Entries), Cost: d.Cost})
			}
			return r
		}
		got, want := overXDS(request()), fromFile(request())
		if got != want {
			t.Fatalf("%v: over xDS %s, from a file %s", request(), got, want)
		}
		if strings.HasPrefix(got, "false") {
			denied++
		}
	}
	if denied < 100 {
		t.Errorf("only %d of the requests were denied", denied)
	}
}
