package limiter_test

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// Two requests a minute for each API key.
func Example() {
	rules, err := limiter.ReadRules("testdata/rules.yaml")
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := l.Allow(context.Background(), limiter.One("shop", "api_key", "k1"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Limit().Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

//go:embed testdata/rules.yaml
var embedded embed.FS

// Rules that are compiled into the program.
func ExampleReadFS() {
	rules, err := limiter.ReadFS(embedded, "testdata/*.yaml")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rules.HasDomain("shop"))
	// Output: true
}

// Every mistake is told at once, with its place.
func ExampleParseRules() {
	_, err := limiter.ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: api_key
    rate_limit: {unit: minutes, requests_per_unit: many}
`))
	var problems limiter.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Println(p.File, p.Line, p.Path)
		}
	}
	// Output:
	// rules.yaml 5 descriptors[api_key].rate_limit.requests_per_unit
	// rules.yaml 5 descriptors[api_key].rate_limit.unit
}

// The same rules, made in Go.
func ExampleMakeRules() {
	rules, err := limiter.MakeRules(limiter.Domain{Name: "shop", Rules: []limiter.Rule{{
		Key: "api_key",
		RateLimit: &limiter.RateLimit{
			Name:  "per-key",
			Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 2, Window: time.Minute}}},
		},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rules.HasDomain("shop"))
	// Output: true
}

// One set of rules from several places: Go, a tiers file, and variables of the service.
func ExampleSource_Read() {
	rules, err := limiter.Source{
		Paths:   []string{"testdata/tiers/tiers.yaml"},
		Environ: []string{"SLIDEGATE_HEADERS_STYLES=x-ratelimit"},
		Domains: []limiter.Domain{{Name: "shop", Rules: []limiter.Rule{{
			Key: "api_key",
			RateLimit: &limiter.RateLimit{Name: "per-key", ByTier: map[string]limiter.Terms{
				"free": {Limits: []limiter.Limit{{Requests: 2, Window: time.Minute}}},
				"pro":  {Unlimited: true},
			}},
		}}}},
	}.Read()
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	d, err := l.Allow(context.Background(), limiter.One("shop", "api_key", "demo-free"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Subject, d.Tier, d.AppendHeaders(nil))
	// Output: hobby free [{x-ratelimit-limit 2} {x-ratelimit-remaining 1} {x-ratelimit-reset 60}]
}

// A cost that is known only afterwards: ask first, and report then. The report is recorded although
// it does not fit.
func ExampleLimiter_Allow() {
	rules, err := limiter.ReadRules("testdata/rules.yaml")
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	tokens := []limiter.Entry{{Key: "tokens_of", Value: "acme"}}
	ask := limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: tokens, Ask: true}}}
	report := limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: tokens, Cost: 120}}}
	for _, req := range []limiter.Request{ask, report, ask} {
		d, err := l.Allow(context.Background(), req)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Limit().Remaining)
	}
	// Output:
	// true 100
	// false 0
	// false 0
}

// A denial as a client reads it.
func ExampleDecision_Body() {
	rules, err := limiter.ReadRules("testdata/rules.yaml")
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	d, err := l.Allow(context.Background(), limiter.One("shop", "closed", "x"))
	if err != nil {
		log.Fatal(err)
	}
	kind, body := d.Body()
	fmt.Println(kind)
	fmt.Println(string(body))
	// Output:
	// text/plain
	// closed until Monday
}

// New limits for a running program. What was spent before still counts.
func ExampleLimiter_Swap() {
	const text = "domain: shop\ndescriptors:\n  - key: api_key\n    rate_limit: {unit: minute, requests_per_unit: %d}\n"
	read := func(limit int) *limiter.Rules {
		rules, err := limiter.ParseRules("rules.yaml", fmt.Appendf(nil, text, limit))
		if err != nil {
			log.Fatal(err)
		}
		return rules
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := limiter.New(store, read(2))
	if err != nil {
		log.Fatal(err)
	}
	ask := func() {
		d, err := l.Allow(context.Background(), limiter.One("shop", "api_key", "k1"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Limit().Remaining)
	}
	ask()
	if err := l.Swap(read(10)); err != nil {
		log.Fatal(err)
	}
	ask()
	// Output:
	// true 1
	// true 8
}
