// Package metrics reads what a process reports about itself on /metrics: rls, and the bare server.
package metrics

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/edge"
)

// A State is what a Go process reports about itself on /metrics.
type State struct {
	CPU               float64 // seconds of CPU time so far
	Goroutines, Files float64
	Heap, Stacks      float64 // bytes in use
	Resident          float64 // bytes of resident memory
	Allocs            float64 // objects allocated so far
	Collections       float64 // of garbage, so far
}

// A Page is what a process reports on /metrics.
type Page struct {
	State
	series map[string]float64 // by name with labels
}

// Read reads a page of metrics.
func Read(ctx context.Context, url string) (Page, error) {
	text, err := get(ctx, url)
	if err != nil {
		return Page{}, err
	}
	return parse(text)
}

// AtRest reads the state of an rls right after a garbage collection. admin is the URL
// of its admin port.
func AtRest(ctx context.Context, admin string) (State, error) {
	if _, err := get(ctx, admin+"/debug/pprof/heap?gc=1"); err != nil {
		return State{}, err
	}
	m, err := Read(ctx, admin+"/metrics")
	return m.State, err
}

// Settle reads the state of an rls as AtRest does, until calm accepts it or limit has
// passed. It returns the last state.
func Settle(ctx context.Context, admin string, limit time.Duration, calm func(State) bool) (State, error) {
	for deadline := time.Now().Add(limit); ; traffic.Pause(ctx, 100*time.Millisecond) {
		s, err := AtRest(ctx, admin)
		if err != nil || calm(s) || time.Now().After(deadline) || ctx.Err() != nil {
			return s, errors.Join(err, ctx.Err())
		}
	}
}

// Sum returns the sum of all series with a name. Each label, such as kind="unknown",
// must be part of a series.
func (m Page) Sum(name string, labels ...string) (sum float64) {
series:
	for series, value := range m.series {
		if n, _, _ := strings.Cut(series, "{"); n != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		sum += value
	}
	return sum
}

func parse(text string) (Page, error) {
	m := Page{series: make(map[string]float64)}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return m, fmt.Errorf("metrics: %w", err)
		}
		m.series[lines.Text()[:at]] = value
	}
	for name, to := range map[string]*float64{
		"process_cpu_seconds_total":     &m.CPU,
		"go_goroutines":                 &m.Goroutines,
		"process_open_fds":              &m.Files,
		"go_memstats_heap_alloc_bytes":  &m.Heap,
		"go_memstats_stack_inuse_bytes": &m.Stacks,
		"process_resident_memory_bytes": &m.Resident,
		"go_memstats_mallocs_total":     &m.Allocs,
		"go_gc_duration_seconds_count":  &m.Collections,
	} {
		var ok bool
		if *to, ok = m.series[name]; !ok {
			return m, fmt.Errorf("metrics: %s is missing", name)
		}
	}
	return m, lines.Err()
}

// get returns a page. It leaves no connection open, because open connections are
// counted.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+edge.ActToken)
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

// RedisCPU returns the seconds of CPU time that a Redis has used so far.
func RedisCPU(ctx context.Context, client *redis.Client) (total float64, err error) {
	info, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		total += seconds
	}
	return total, nil
}

// ProcessCPU returns the seconds of CPU time that a process on Linux has used so far. They are counted
// in hundredths.
func ProcessCPU(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may have spaces.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	var total float64
	for _, field := range []string{fields[user], fields[system]} {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		total += ticks / 100
	}
	return total, nil
}
