package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A sample is one measurement.
type sample struct {
	value float64
	extra float64 // what else the topic shows
}

// A probe measures once. Redis is empty when it begins.
type probe func(ctx context.Context) (sample, error)

// A row is a line of a table: something of ours, and its baseline.
type row struct {
	topic  *topic
	state  string // its name within the topic
	ours   probe
	base   probe   // nil: none
	waits  probe   // a baseline that answers as much as we do; nil: none
	target float64 // at most this part of the baseline, as a median; 0: no bound

	our, their, theirWaits []sample // in the order of the rounds
}

func (r *row) name() string { return r.topic.name + "/" + r.state }

// A topic is a table.
type topic struct {
	name, title, unit string
	base              string // what the baseline is
	extra             string // what a sample's extra is; empty: it has none
	absolute          bool   // extra is a figure of ours, not a ratio
	waits             bool   // whether there is the baseline that reports waits
	about             string
}

var (
	cpuTopic = &topic{
		name: "cpu", title: "Redis per decision", unit: "µs", base: "sorted set", extra: "script", waits: true,
		about: "CPU of Redis for one decision, one EVALSHA each, 32 in a pipeline. *full*: every log holds as many hits as the limit says, one expires for each that comes, and that one is allowed (window: a millisecond for " +
			"each hit, 32 logs asked once a millisecond; the limit is set a tenth higher, so that nothing is denied by jitter). *filling*: nothing expires; logs fill from nothing to the limit, at 100,000 from the half. " +
			"*denied*: the log is full, nothing expires. Script is the ratio of the time within EVALSHA alone, and waits " +
			"the ratio to the sorted set when it reports all that ours reports: how long to wait, and when the log is empty.",
	}
	batchTopic = &topic{
		name: "batch", title: "16 independent decisions in one EVALSHA", unit: "µs", base: "sorted set, one call each", extra: "script", waits: true,
		about: "CPU of Redis for each of the 16, against one sorted-set call for one decision. States as above.",
	}
	groupTopic = &topic{
		name: "group", title: "3 keys × 2 windows in one EVALSHA", unit: "µs", base: "6 sorted-set calls", extra: "script", waits: true,
		about: "CPU of Redis for one request: limits of 10 and 100 on each of three keys, state *full*. Six calls are not one decision: they charge some logs of a request that others deny.",
	}
	memoryTopic = &topic{
		name: "memory", title: "Memory per recorded hit", unit: "bytes", base: "sorted set",
		about: "MEMORY USAGE of a key whose log holds the limit, by hits. All were recorded by the scripts, call by call; with a precision they are spread over the window and planted but for the last.",
	}
	longestTopic = &topic{
		name: "longest", title: "The longest single call", unit: "µs", base: "sorted set, all expire",
		about: "Time within EVALSHA of the one call that finds 100,000 hits in such a state, against the sorted set's call that finds all of them expired. One call of each in every round.",
	}
	callersTopic = &topic{
		name: "callers", title: "256 callers at once", unit: "µs", base: "one EVALSHA per call", extra: "our decisions/s", absolute: true,
		about: "Each asks for another key as fast as it is answered, and is always allowed. The baseline sends the same script by go-redis with its default pool, one call for each decision.",
	}
)

// A limit is what is asked, and how precisely.
type limit struct {
	hits uint64
	auto bool // precision as window.Precision says; otherwise zero
}

func (l limit) String() string {
	switch {
	case l.hits <= window.ExactHits:
		return fmt.Sprint(l.hits)
	case l.auto:
		return fmt.Sprintf("%d/auto", l.hits)
	}
	return fmt.Sprintf("%d/0", l.hits)
}

// check asks a limit of a key. slack is added to the hits.
func (l limit) check(key string, win time.Duration, slack uint64) window.Check {
	c := window.Check{Key: key, Limit: window.Limit{Hits: l.hits, Window: win}, Cost: 1}
	if l.auto {
		c.Precision = window.Precision(c.Limit)
	}
	c.Limit.Hits += slack
	return c
}

// states are the states in which a decision is measured, and its targets: one
// EVALSHA for one decision, and for 16.
var states = []struct {
	name    string
	one, of float64
}{
	{full, 0.80, 0.50},
	{filling, 0.80, 0},
	{denied, 0.65, 0.40},
}

const (
	full    = "full"
	filling = "filling"
	denied  = "denied"
)

// The limits of more than one topic, and the baselines of those about Redis.
var (
	small, ring    = limit{hits: 10}, limit{hits: 3_000}
	set, withWaits = sortedSet{}, sortedSet{waits: true}
)

// limits are small and ring with others, from the smallest to the largest.
func (b *bench) limits() []limit {
	return []limit{small, {hits: 100}, ring, {hits: b.large}, {hits: b.large, auto: true}}
}

// A rowList collects rows.
type rowList []*row

func (l *rowList) add(t *topic, state string, ours, base probe, target float64) *row {
	r := &row{topic: t, state: state, ours: ours, base: base, target: target}
	*l = append(*l, r)
	return r
}

// rows returns the rows of all topics.
func (b *bench) rows() []*row {
	return slices.Concat(b.decisionRows(), b.logRows(), b.callerRows())
}

// decisionRows returns the rows about the CPU of Redis for usual limits.
func (b *bench) decisionRows() (all rowList) {
	limits := b.limits()
	for _, s := range states {
		for _, l := range limits {
			all.add(cpuTopic, s.name+"/"+l.String(), b.decisions(packed{}, s.name, l, 1), b.decisions(set, s.name, l, 1), s.one).
				waits = b.decisions(withWaits, s.name, l, 1)
		}
	}
	for _, o := range []struct {
		name, state string
		kind        kind
	}{
		{"two-counters/full/100", full, other{twoCountersScript}},
		{"two-counters/denied/100", denied, other{twoCountersScript}},
		{"empty-evalsha", full, other{emptyScript}},
		{"time-getrange-set", full, other{getAndSetScript}},
	} {
		all.add(cpuTopic, o.name, b.decisions(o.kind, o.state, limits[1], 1), b.decisions(set, o.state, limits[1], 1), 0)
	}
	for _, s := range states {
		for _, l := range []limit{small, ring} {
			if s.of > 0 {
				all.add(batchTopic, s.name+"/"+l.String(), b.decisions(packed{}, s.name, l, 16), b.decisions(set, s.name, l, 1), s.of).
					waits = b.decisions(withWaits, s.name, l, 1)
			}
		}
	}
	all.add(groupTopic, full, b.group(packed{}), b.group(set), 0.60).
		waits = b.group(withWaits)
	return all
}

// logRows returns the rows about the memory of logs in Redis, and about large logs.
func (b *bench) logRows() (all rowList) {
	limits := b.limits()
	for _, m := range []struct {
		limit
		most float64
	}{{small, 0.65}, {limits[1], 0.50}, {limit{hits: 129}, 0.15}, {ring, 0.15}, {limits[3], 0.15}, {limits[4], 0.15}} {
		all.add(memoryTopic, m.String(), b.memory(packed{}, m.limit), b.memory(set, m.limit), m.most)
	}
	for _, l := range limits[3:] {
		for _, state := range []string{allExpire, halfExpires, grows, shrinks} {
			bound := 0.30
			if !l.auto && (state == grows || state == shrinks) {
				bound = 0 // it copies the log: what a precision is for
			}
			all.add(longestTopic, state+"/"+l.String(), b.longest(packed{}, state, l), b.longest(set, allExpire, l), bound)
		}
	}
	return all
}

// callerRows returns the rows about this process as a client of Redis.
func (b *bench) callerRows() (all rowList) {
	for _, o := range []struct {
		what string
		most float64
	}{{wallTime, 0.40}, {redisCPU, 0.45}, {clientCPU, 0.35}} {
		all.add(callersTopic, o.what, b.together(shared, o.what), b.together(oneEach, o.what), o.most)
	}
	return all
}
