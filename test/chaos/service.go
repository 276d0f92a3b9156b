package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
)

const (
	keyPrefix = "chaos:"
	// storeTimeout is the default of the service.
	storeTimeout = 15 * time.Millisecond
	// farTimeout is that of a store in another region, and farAway the round trip to it.
	farTimeout = 150 * time.Millisecond
	farAway    = 40 * time.Millisecond
)

// startService starts rls on the Redis at a URL. With near, that is the scope global, and near is
// the store of the region.
func startService(t process.TB, binary, rules, url, near string) *edge.RLSServer {
	t.Helper()
	env := map[string]string{
		"SLIDEGATE_STORE_TYPE":             "redis",
		"SLIDEGATE_STORE_REDIS_URL":        url,
		"SLIDEGATE_STORE_TIMEOUT":          storeTimeout.String(),
		"SLIDEGATE_STORE_REDIS_KEY_PREFIX": keyPrefix,
		"SLIDEGATE_TIERS_SOURCE":           "none",
	}
	if near != "" {
		const scope = "SLIDEGATE_STORE_SCOPES_GLOBAL_"
		env["SLIDEGATE_STORE_REDIS_URL"] = near
		env[scope+"REDIS_URL"], env[scope+"REDIS_KEY_PREFIX"], env[scope+"TIMEOUT"] = url, keyPrefix, farTimeout.String()
	}
	return edge.StartRLS(t, edge.RLSOptions{Binary: binary, Rules: rules, Env: env})
}

// Log messages of the service: it stops calling a server, and calls it again.
const (
	stopsAsking = "a server of the store cannot decide and is not asked"
	asksAgain   = "a server of the store decides again"
)

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
		text, _ := line["ts"].(string)
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, fmt.Errorf("the log line %q: %w", message, err)
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
func grown(now, before program.State) error {
	if now.Goroutines > before.Goroutines+moreGoroutines {
		return fmt.Errorf("%.0f goroutines, %.0f before", now.Goroutines, before.Goroutines)
	}
	if now.Heap > before.Heap+moreHeap {
		return fmt.Errorf("%.1f MB of heap, %.1f before", now.Heap/1e6, before.Heap/1e6)
	}
	return nil
}
