package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A reading is what servers say of themselves at one moment.
type reading struct {
	cpu       float64            // CPU seconds of the server
	redisCPU  float64            // and of Redis
	allocs    float64            // objects that the server has allocated
	resident  float64            // bytes of memory of the server
	live      float64            // of those in use, on the heap and on stacks
	unknown   float64            // records that it holds of keys that nobody has
	decisions map[string]float64 // decided descriptors by outcome
}

// read asks a target, and its Redis if it has one.
func (b *bench) read(ctx context.Context, t target) (reading, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.metrics, http.NoBody)
	if err != nil {
		return reading{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reading{}, err
	}
	defer resp.Body.Close()
	r, err := parseMetrics(resp.Body)
	if err != nil {
		return reading{}, fmt.Errorf("%s: %w", t.metrics, err)
	}
	if t.redis != "" {
		if r.redisCPU, err = redisCPU(ctx, t.redis); err != nil {
			return reading{}, fmt.Errorf("redis: %w", err)
		}
	}
	return r, nil
}

// parseMetrics reads the few metrics that matter here from the text format.
func parseMetrics(in io.Reader) (reading, error) {
	r := reading{decisions: make(map[string]float64)}
	timed := false
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		series := lines.Text()[:at]
		name, labels, _ := strings.Cut(series, "{")
		into := map[string]*float64{
			"process_cpu_seconds_total":     &r.cpu,
			"process_resident_memory_bytes": &r.resident,
			"go_memstats_mallocs_total":     &r.allocs,
			"go_memstats_heap_alloc_bytes":  &r.live,
			"go_memstats_stack_inuse_bytes": &r.live,
		}[name]
		switch {
		case into != nil, name == "slidegate_decisions_total":
		case name == "slidegate_tiers_records" && strings.Contains(labels, `kind="unknown"`):
			into = &r.unknown
		default:
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return r, err
		}
		timed = timed || into == &r.cpu
		if into != nil {
			*into += value
			continue
		}
		_, rest, _ := strings.Cut(labels, `outcome="`)
		outcome, _, _ := strings.Cut(rest, `"`)
		r.decisions[outcome] += value
	}
	if err := lines.Err(); err != nil {
		return r, err
	}
	if !timed {
		return r, errors.New("there is no process_cpu_seconds_total")
	}
	return r, nil
}

// redisCPU asks Redis for the CPU seconds that it has used.
func redisCPU(ctx context.Context, address string) (float64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, "INFO cpu\r\nQUIT\r\n"); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	return parseRedisCPU(string(text))
}

func parseRedisCPU(text string) (float64, error) {
	total, found := 0.0, 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_sys" && name != "used_cpu_user" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		total += seconds
		found++
	}
	if found != 2 {
		return 0, fmt.Errorf("INFO cpu says %q", text)
	}
	return total, nil
}
