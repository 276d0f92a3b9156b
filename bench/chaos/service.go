package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
)

const (
	keyPrefix = "chaos:"
	// storeTimeout is the default of the service.
	storeTimeout = 15 * time.Millisecond

	// No caller reaches the limits of callerRules, so every allowed call stays in its log as an
	// entry.
	largeLimit  = 10_000
	largeWindow = time.Hour
)

// choices are the values of on_store_error for which callerRules have a rule.
var choices = []string{"allow", "deny", "local"}

// callerRules returns the rules of the callers.
func callerRules() string {
	rules := "domain: " + domain + "\ndescriptors:\n"
	for _, choice := range choices {
		rules += fmt.Sprintf("  - key: %s\n    rate_limit: {name: %[1]s, window: %s, requests: %d, precision: 0s, on_store_error: %[1]s}\n",
			choice, largeWindow, largeLimit)
	}
	return rules
}

// callerName is the value of the descriptor of a caller, and so a part of the name
// of its log.
func callerName(id int) string { return fmt.Sprintf("caller-%04d", id) }

// startService starts rls on the Redis at a URL.
func startService(t process.TB, binary, rules, url string) *edge.RLSServer {
	t.Helper()
	return edge.StartRLS(t, edge.RLSOptions{Binary: binary, Rules: rules, Env: map[string]string{
		"SLIDEGATE_STORE_TYPE":             "redis",
		"SLIDEGATE_STORE_REDIS_URL":        url,
		"SLIDEGATE_STORE_REDIS_KEY_PREFIX": keyPrefix,
		"SLIDEGATE_TIERS_SOURCE":           "none",
	}})
}

// Log messages of the service: it stops calling a server, and calls it again; it counts another
// number of instances.
const (
	stopsAsking  = "a server of the store cannot decide and is not asked"
	asksAgain    = "a server of the store decides again"
	countsOthers = "the number of instances that share the limits has changed"
)

// loggedAt returns the time of a line of the service's log.
func loggedAt(line map[string]any) (time.Time, error) {
	text, _ := line["ts"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, fmt.Errorf("the log line %q: %w", line["msg"], err)
	}
	return at, nil
}

// instances returns how many instances a service counts, by its log, and the smallest number
// since a time.
func instances(lines []map[string]any, since time.Time) (now, least int, err error) {
	now, least = 1, 1
	for _, line := range lines {
		if line["msg"] != countsOthers {
			continue
		}
		at, err := loggedAt(line)
		if err != nil {
			return 0, 0, err
		}
		n, _ := line["now"].(float64)
		now = int(n)
		if at.Before(since) {
			least = now
		}
		least = min(least, now)
	}
	return now, least, nil
}

// unasked returns the times in which the service did not call a server, by node, from
// its log.
func unasked(lines []map[string]any, end time.Time) (map[string][]span, error) {
	all := make(map[string][]span)
	for _, line := range lines {
		message, _ := line["msg"].(string)
		stops := strings.HasPrefix(message, stopsAsking)
		if !stops && message != asksAgain {
			continue
		}
		at, err := loggedAt(line)
		if err != nil {
			return nil, err
		}
		node, _ := line["node"].(string)
		spans := all[node]
		if stops {
			all[node] = append(spans, span{at, end})
		} else if len(spans) > 0 {
			spans[len(spans)-1].to = at
		}
	}
	return all, nil
}

const (
	// moreGoroutines is by how many goroutines two states at rest may differ: those of
	// connections and timers.
	moreGoroutines = 10
	// moreHeap is for pools, the local logs of rules and remembered answers.
	moreHeap = 16 << 20
	// settling is how long a service may take to come to rest.
	settling = 10 * time.Second
)

// grown returns an error if a service has more goroutines or memory than it should.
func grown(now, before metrics.State) error {
	if now.Goroutines > before.Goroutines+moreGoroutines {
		return fmt.Errorf("%.0f goroutines, %.0f before", now.Goroutines, before.Goroutines)
	}
	if now.Heap > before.Heap+moreHeap {
		return fmt.Errorf("%.1f MB of heap, %.1f before", now.Heap/1e6, before.Heap/1e6)
	}
	return nil
}
