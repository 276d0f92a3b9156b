package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// envLoadOnce holds a directory. It makes this test binary load the rules of the
// directory in a process of its own, since the peak of a process never falls.
const envLoadOnce = "SLIDEGATE_TEST_LOAD_ONCE"

// loaded is what one process measures: the first load, and a reload while the process
// still uses the generation of the first load.
type loaded struct {
	Entries          int // rules
	Seconds, CPU     float64
	Peak, ReloadPeak int64 // bytes above the memory before the first load
}

// loadOnce loads a directory twice and prints what it measures as JSON.
func loadOnce(dir string) {
	s := settings.Default()
	s.Rules.Path = dir
	before, cpu, start := peakMemory(), processorTime(), time.Now()
	g, err := Load(s)
	m := loaded{Seconds: time.Since(start).Seconds(), CPU: (processorTime() - cpu).Seconds(), Peak: peakMemory() - before}
	if err == nil {
		_, err = Load(s)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	m.ReloadPeak = peakMemory() - before
	m.Entries = len(g.Rules.All())
	_ = json.NewEncoder(os.Stdout).Encode(m)
}

// processorTime returns the CPU time of this process, which depends less on other
// processes than the elapsed time does.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory returns the largest resident set that the process ever had.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var kib int64
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	_, _ = fmt.Sscan(after, &kib)
	return kib << 10
}

// measureLoad loads a directory in processes of their own and reports time, CPU time and
// by how much the process grows.
func measureLoad(b *testing.B, dir string, entries int) {
	b.Helper()
	var seconds, cpu float64
	var peak, reloadPeak int64
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envLoadOnce+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		var m loaded
		if err := json.Unmarshal(out, &m); err != nil || m.Entries != entries {
			b.Fatalf("%v: got %q, want %d entries", err, out, entries)
		}
		seconds += m.Seconds
		cpu += m.CPU
		peak, reloadPeak = max(peak, m.Peak), max(reloadPeak, m.ReloadPeak)
	}
	b.ReportMetric(seconds/float64(b.N), "s/load")
	b.ReportMetric(cpu/float64(b.N), "cpu-s/load")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-peak")
	b.ReportMetric(float64(reloadPeak)/(1<<20), "MiB-peak-reload")
}

// BenchmarkLoad100k loads 100,000 rules from one file and from 50.
func BenchmarkLoad100k(b *testing.B) {
	const rules = 100_000
	for _, files := range []int{1, 50} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			dir := b.TempDir()
			for i := range files {
				configtest.Put(b, dir, fmt.Sprintf("%02d.yaml", i), string(manyRules(fmt.Sprintf("domain-%d", i), 0, rules/files)))
			}
			measureLoad(b, dir, rules)
		})
	}
}

// manyRules returns a rules file with n rules of the usual shape: a route with
// a limit by API key below it.
func manyRules(domain string, first, n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# made by a program\ndomain: %s\ndescriptors:\n", domain)
	for i := first; i < first+n; i += 2 {
		fmt.Fprintf(&b, "  - key: route\n    value: /api/v1/service-%d/x\n    rate_limit:\n      name: service-%d\n      unit: minute\n      requests_per_unit: %d\n", i, i, 100+i)
		fmt.Fprintf(&b, "    descriptors:\n      - key: api_key\n        rate_limit: {name: service-%d-key, unit: hour, requests_per_unit: 50}\n", i)
	}
	return b.Bytes()
}
