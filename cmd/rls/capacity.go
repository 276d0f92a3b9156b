package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/terminal"
	"github.com/slidegate/slidegate/internal/words"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// nameBytes is the length of a log's key that estimates assume: a rule with a short path,
	// and ids of 16 characters.
	nameBytes = 64
	// memoryLogBytes is what the embedded store takes for a log beside its key and its hits.
	memoryLogBytes = 80
	// redisLogBytes is what Redis takes for a key with an expiry beside its name and its
	// value, measured with MEMORY USAGE.
	redisLogBytes = 80
	// spareParts: a log takes an eighth more than its hits on average, and a quarter at most,
	// because it grows in steps.
	spareParts = 8
	// tenth is the use of a usual key: a tenth of its limit.
	tenth = 10
	// maxKeys bounds --keys.
	maxKeys = 1_000_000_000
)

// A capacity is what logs take, in bytes.
type capacity struct {
	Memory      int64 `json:"memory_bytes"`
	Redis       int64 `json:"redis_bytes"`
	MemoryTenth int64 `json:"memory_bytes_at_a_tenth"`
	RedisTenth  int64 `json:"redis_bytes_at_a_tenth"`
}

// add adds o so many times. A sum that does not fit into 63 bits stays at their end.
func (c *capacity) add(o capacity, times int64) {
	for _, f := range []struct {
		sum *int64
		of  int64
	}{{&c.Memory, o.Memory}, {&c.Redis, o.Redis}, {&c.MemoryTenth, o.MemoryTenth}, {&c.RedisTenth, o.RedisTenth}} {
		if f.of > (math.MaxInt64-*f.sum)/times {
			*f.sum = math.MaxInt64
		} else {
			*f.sum += f.of * times
		}
	}
}

// A tierCapacity is what all logs of a rule take if all keys have one tier.
type tierCapacity struct {
	Tier string `json:"tier,omitempty"` // empty: all other tiers
	capacity
}

// A ruleCapacity is what the logs of one rule take. Logs is 1 for a rule that has one log for
// all callers. The rule's own figures are those of its largest tier.
type ruleCapacity struct {
	Domain string         `json:"domain"`
	Name   string         `json:"name"`
	Logs   int            `json:"keys"`
	Tiers  []tierCapacity `json:"tiers"`
	capacity
}

// A capacityReview is what all rules take for a number of active keys.
type capacityReview struct {
	Keys  int            `json:"keys"`
	Rules []ruleCapacity `json:"rules"`
	Total capacity       `json:"total"`
}

// capacityOf estimates what rules take if so many keys are active within every window.
func capacityOf(rules []*policy.Rule, keys int) *capacityReview {
	out := &capacityReview{Keys: keys, Rules: []ruleCapacity{}}
	for _, r := range rules {
		one := ruleCapacity{Domain: r.Domain, Name: r.Name, Logs: 1}
		for i, n := range r.Path {
			if n.Open() && (i >= len(r.Share) || !r.Share[i]) {
				one.Logs = keys
			}
		}
		add := func(tier string, t *policy.Terms) {
			if c := termsCapacity(t, int64(one.Logs)); c != (capacity{}) {
				one.Tiers = append(one.Tiers, tierCapacity{tier, c})
			}
		}
		add("", &r.Terms)
		for _, tier := range slices.Sorted(maps.Keys(r.ByTier)) {
			terms := r.ByTier[tier]
			add(tier, &terms)
		}
		if len(one.Tiers) == 0 {
			continue // it keeps no log
		}
		one.capacity = slices.MaxFunc(one.Tiers, func(a, b tierCapacity) int { return int(min(max(a.Redis-b.Redis, -1), 1)) }).capacity
		out.Total.add(one.capacity, 1)
		out.Rules = append(out.Rules, one)
	}
	return out
}

// termsCapacity returns what a number of keys take under the limits of one tier.
func termsCapacity(t *policy.Terms, logs int64) (sum capacity) {
	if t.Unlimited {
		return sum
	}
	for i := range t.Limits {
		sum.add(limitCapacity(&t.Limits[i]), logs)
	}
	return sum
}

// limitCapacity returns what one log takes, full and at a tenth of its limit.
func limitCapacity(l *policy.Limit) capacity {
	full := window.Check{Limit: l.Limit, Precision: l.Precision}
	part := full
	part.Limit.Hits = max(1, l.Hits/tenth)
	of := func(c *window.Check) (memory, redis int64) {
		n := int64(window.LogBytes(c))
		if n == 0 {
			return 0, 0
		}
		return memoryLogBytes + nameBytes + n + n/spareParts, redisLogBytes + nameBytes + n + n/spareParts
	}
	var c capacity
	c.Memory, c.Redis = of(&full)
	if c.Redis > 0 {
		c.MemoryTenth, c.RedisTenth = of(&part)
	}
	return c
}

// write writes the estimate as a table. A store and Redis take the same, within the error of
// the estimate.
func (c *capacityReview) write(w io.Writer, p page) {
	fmt.Fprintf(w, "\nmemory for %d active keys, in the process or in Redis, within a fifth:\n\n", c.Keys)
	t := &terminal.Table{Width: p.width, Paint: p.paint, Columns: []terminal.Column{
		{Title: "RULE", Least: 20},
		{Title: "KEYS", Right: true},
		{Title: "ALL AT THEIR LIMIT", Right: true},
		{Title: "ALL AT A TENTH", Right: true},
	}}
	add := func(name, keys string, of capacity) {
		t.Add(terminal.Text(name), terminal.Text(keys), terminal.Text(words.Bytes(max(of.Memory, of.Redis))), terminal.Text(words.Bytes(max(of.MemoryTenth, of.RedisTenth))))
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		add(r.Name, fmt.Sprint(r.Logs), r.capacity)
		if len(r.Tiers) > 1 {
			for _, one := range r.Tiers {
				add(terminal.Gap+"if all are "+cmp.Or(one.Tier, "others"), "", one.capacity)
			}
		}
	}
	add("all rules together", "", c.Total)
	t.Write(w)
	fmt.Fprint(w, `
A key is a value of the open entries of a rule, active within its window.
Each tier counts as the largest of its rule. In the process, leave twice as
much and 50 MB: the garbage collector needs up to as much again.
`)
}
