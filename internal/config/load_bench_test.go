package config

import (
	"fmt"
	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/settings"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envLoadOnce makes this test binary load the rules of a directory once and say
// what that took, in a process of its own: the peak of a process never goes down.
const envLoadOnce = "SLIDEGATE_TEST_LOAD_ONCE"

// loadOnce prints the seconds that the load took and those of processors, the
// growth of the peak of memory in bytes, and the number of rules.
func loadOnce(dir string) {
	s := settings.Default()
	s.Rules.Path = dir
	before, cpu, start := peakMemory(), processorTime(), time.Now()
	g, err := Load(s)
	took := time.Since(start)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(took.Seconds(), (processorTime() - cpu).Seconds(), peakMemory()-before, len(g.Rules.All()))
}

// processorTime is what the process has used, which other processes do not
// change much.
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

// BenchmarkLoad100k loads 100,000 rules in a process of its own and reports the
// time of the load and by how much the process grew.
func BenchmarkLoad100k(b *testing.B) {
	const rules = 100_000
	for _, files := range []int{1, 50} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			dir := b.TempDir()
			size := 0
			for i := range files {
				data := configtest.ManyRules(fmt.Sprintf("domain-%d", i), 0, rules/files)
				size += len(data)
				configtest.Put(b, dir, fmt.Sprintf("%02d.yaml", i), string(data))
			}
			var seconds, processor, peak float64
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), envLoadOnce+"="+dir)
				out, err := cmd.CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				var took, used, grown float64
				var loaded int
				if _, err := fmt.Sscan(string(out), &took, &used, &grown, &loaded); err != nil || loaded != rules {
					b.Fatalf("%v: got %q, want %d rules", err, out, rules)
				}
				seconds += took
				processor += used
				peak = max(peak, grown)
			}
			b.ReportMetric(seconds/float64(b.N), "s/load")
			b.ReportMetric(processor/float64(b.N), "cpu-s/load")
			b.ReportMetric(peak/(1<<20), "MiB-peak")
			b.ReportMetric(float64(size)/(1<<20), "MiB-files")
		})
	}
}

// BenchmarkLoadHere loads 10,000 rules in this process, for profiles.
func BenchmarkLoadHere(b *testing.B) {
	s := settings.Default()
	s.Rules.Path = configtest.Write(b, "rules.yaml", string(configtest.ManyRules("d", 0, 10_000)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(s); err != nil {
			b.Fatal(err)
		}
	}
}
