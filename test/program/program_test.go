package program

import (
	"context"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/servers"
)

const page = `# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
process_cpu_seconds_total 12.34
go_goroutines 82
process_open_fds 15
go_memstats_heap_alloc_bytes 3e+06
go_memstats_stack_inuse_bytes 1e+06
process_resident_memory_bytes 2.5e+07
go_memstats_mallocs_total 1234
go_gc_duration_seconds{quantile="1"} 0.5
go_gc_duration_seconds_count 7
slidegate_store_errors_total{class="oom"} 7
slidegate_store_errors_total{class="timeout"} 3
slidegate_decisions_total{domain="bench",outcome="allowed",rule="per-key"} 5
slidegate_decisions_total{domain="bench",outcome="allowed",rule="per-address"} 1.5e+06
slidegate_decisions_total{domain="bench",outcome="denied",rule="per-key"} 7
slidegate_decisions_total_other 9
`

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(page)
	want := State{CPU: 12.34, Goroutines: 82, Files: 15, Heap: 3e6, Stacks: 1e6, Resident: 2.5e7, Allocs: 1234, Collections: 7}
	if err != nil || got.State != want {
		t.Errorf("got %+v, %v, want %+v", got.State, err, want)
	}
	for _, tt := range []struct {
		name, label string
		want        float64
	}{
		{"slidegate_decisions_total", `outcome="allowed"`, 1500005},
		{"slidegate_decisions_total", `outcome="denied"`, 7},
		{"slidegate_store_errors_total", `class="timeout"`, 3},
		{"slidegate_store_errors_total", "", 10},
		{"slidegate_none", "", 0},
	} {
		if sum := got.Sum(tt.name, tt.label); sum != tt.want {
			t.Errorf("%s with %s: got %v, want %v", tt.name, tt.label, sum, tt.want)
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "go_") && !strings.Contains(line, "{") || strings.HasPrefix(line, "process_") {
			if _, err := parseMetrics(strings.Replace(page, line, "", 1)); err == nil {
				t.Errorf("without %q: got no error", line)
			}
		}
	}
	if _, err := parseMetrics(strings.Replace(page, " 82", " x", 1)); err == nil {
		t.Error("a value that is not a number: got no error")
	}
}

func TestRedisCPU(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.Redis(t)})
	defer client.Close()
	if got, err := RedisCPU(t.Context(), client); err != nil || got <= 0 {
		t.Errorf("got %v, %v, want some time", got, err)
	}
	if err := client.Do(t.Context(), "CONFIG", "SET", "requirepass", "x").Err(); err != nil {
		t.Fatal(err)
	}
	refused := redis.NewClient(&redis.Options{Addr: client.Options().Addr})
	defer refused.Close()
	if _, err := RedisCPU(t.Context(), refused); err == nil {
		t.Error("a Redis that wants a password: got no error")
	}
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 105*time.Millisecond)
		defer cancel()
		var calls, running, most atomic.Int64
		Every(ctx, 10*time.Millisecond, 3, func(int) {
			most.Store(max(most.Load(), running.Add(1)))
			calls.Add(1)
			Pause(t.Context(), 20*time.Millisecond)
			running.Add(-1)
		})
		if calls.Load() != 10 || most.Load() > 3 || running.Load() != 0 {
			t.Errorf("got %d calls, %d at once, %d still running, want 10, at most 3, none", calls.Load(), most.Load(), running.Load())
		}
	})
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		ok   bool
	}{
		{nil, true},
		{[]string{"-only", "^a"}, true},
		{[]string{"-only", "("}, false},
		{[]string{"more"}, false},
	} {
		flags, only := NewFlags("x"), (*regexp.Regexp)(nil)
		flags.SetOutput(io.Discard)
		flags.Only(&only, "a `regexp`")
		if err := flags.Parse(tt.args); (err == nil) != tt.ok {
			t.Errorf("%q: got %v, want ok %t", tt.args, err, tt.ok)
		}
		if tt.ok && (!only.MatchString("a") || only.MatchString("b") != (tt.args == nil)) {
			t.Errorf("%q: got %v", tt.args, only)
		}
	}
}
