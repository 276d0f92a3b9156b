package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/test/servers"
)

const (
	keyPrefix = "chaos:"
	// storeTimeout is the default of the service, and what the target is about.
	storeTimeout = 15 * time.Millisecond
)

// startService starts rls on the Redis at a URL.
func startService(t servers.TB, binary, rules, url string) *servers.RLSServer {
	t.Helper()
	env := map[string]string{
		"SLIDEGATE_STORE_TYPE":             "redis",
		"SLIDEGATE_STORE_REDIS_URL":        url,
		"SLIDEGATE_STORE_TIMEOUT":          storeTimeout.String(),
		"SLIDEGATE_STORE_REDIS_KEY_PREFIX": keyPrefix,
		"SLIDEGATE_TIERS_SOURCE":           "none",
	}
	s, err := servers.StartRLS(servers.RLSOptions{Binary: binary, Rules: rules, Env: maps.Clone(env)})
	if err != nil {
		t.Fatalf("starting the service: %w", err)
		return nil
	}
	t.Cleanup(s.Close)
	return s
}

// process is what a service says of itself.
type process struct {
	goroutines int
	heap       float64 // bytes in use after a collection
	resident   float64 // bytes
}

// inspect asks a service about itself, after it has collected its garbage.
func inspect(ctx context.Context, s *servers.RLSServer) (process, error) {
	if _, err := get(ctx, s.Admin()+"/debug/pprof/heap?gc=1"); err != nil {
		return process{}, err
	}
	text, err := get(ctx, s.Admin()+"/metrics")
	if err != nil {
		return process{}, err
	}
	return parseProcess(text)
}

// parseProcess reads the metrics that matter here.
func parseProcess(text string) (p process, err error) {
	var goroutines float64
	found := 0
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to := map[string]*float64{
			"go_goroutines":                 &goroutines,
			"go_memstats_heap_alloc_bytes":  &p.heap,
			"process_resident_memory_bytes": &p.resident,
		}[name]
		if to == nil {
			continue
		}
		if *to, err = strconv.ParseFloat(value, 64); err != nil {
			return p, fmt.Errorf("metric %s: %w", name, err)
		}
		found++
	}
	if p.goroutines = int(goroutines); found != 3 {
		return p, errors.New("the service's metrics lack goroutines or memory")
	}
	return p, lines.Err()
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(body), err
}

// What the service logs when it stops asking a server, and when it asks it again.
const (
	stopsAsking = "a server of the store cannot decide and is not asked"
	asksAgain   = "a server of the store decides again"
)

// unasked returns when the service asked a server no more, by what it has logged.
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
	// A handful of goroutines is what connections and timers differ by.
	handful = 10
	// heapSlack is what pools, the local logs of rules and remembered answers may
	// take.
	heapSlack = 16 << 20
	// settling is how long a service has to come to rest.
	settling = 10 * time.Second
)

// grown says what a service has more of than before, if it is more than it should.
func (p process) grown(before process) error {
	if p.goroutines > before.goroutines+handful {
		return fmt.Errorf("%d goroutines, %d before", p.goroutines, before.goroutines)
	}
	if p.heap > before.heap+heapSlack {
		return fmt.Errorf("%.1f MB of heap, %.1f before", p.heap/1e6, before.heap/1e6)
	}
	return nil
}

// settle waits until a service is at rest again and returns how it is then, or
// when it has had its time.
func settle(ctx context.Context, s *servers.RLSServer, before process) (process, error) {
	for deadline := time.Now().Add(settling); ; pause(ctx, 100*time.Millisecond) {
		p, err := inspect(ctx, s)
		if err != nil || p.grown(before) == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return p, errors.Join(err, ctx.Err())
		}
	}
}
