package simulate

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/random"
)

// quietly drops what go-redis logs: each connection that fails.
type quietly struct{}

func (quietly) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quietly{})
	debug.SetGCPercent(400)
	runtime.GOMAXPROCS(1) // goroutines that become ready together run in one order
	os.Exit(m.Run())
}

// seeds returns the seeds of a test: those of SLIDEGATE_TEST_SEED and the variable SEEDS, or a few.
func seeds(usual int) (first, count uint64) {
	count = uint64(usual)
	if s, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil {
		count = s
	}
	if s, err := strconv.ParseUint(os.Getenv(random.SeedVariable), 10, 64); err == nil {
		return s, 1
	}
	return 1, count
}

// partVariable says which of the seeds a process runs: "1/4" is the second of each four.
const partVariable = "SIMULATE_PART"

// TestPromises runs plans of seeds. If one breaks a promise, it prints the shortest story that does. A run
// uses one core, so SEEDS starts a process for each core.
func TestPromises(t *testing.T) {
	first, count := seeds(10)
	cores := uint64(runtime.NumCPU())
	if os.Getenv("SEEDS") != "" && os.Getenv(partVariable) == "" && count >= cores && cores > 1 {
		runParts(t, count, cores)
		return
	}
	part, parts := uint64(0), uint64(1)
	if text := os.Getenv(partVariable); text != "" {
		if _, err := fmt.Sscanf(text, "%d/%d", &part, &parts); err != nil {
			t.Fatalf("%s: %v", partVariable, err)
		}
	}
	decisions, ran := 0, 0
	for seed := first + part; seed < first+count; seed += parts {
		w := run(t, newPlan(seed), mutants{})
		decisions += w.decisions
		ran++
		if len(w.broken) > 0 && t.Failed() {
			t.Errorf("seed %d breaks a promise: %s", seed, w.broken[0])
		} else if len(w.broken) > 0 {
			least := shrink(t, w, mutants{}, 40)
			t.Errorf("seed %d breaks a promise: %s\nRepeat it with %s=%d. The shortest story that breaks it:\n%s\n%s",
				seed, w.broken[0], random.SeedVariable, seed, least.story(), strings.Join(least.broken, "\n"))
		}
	}
	fmt.Printf(summary, ran, decisions)
}

// summary is the last line of a run.
const summary = "%d seeds, %d decisions\n"

// runParts runs this test in a process for each core, and adds up what they print.
func runParts(t *testing.T, count, cores uint64) {
	var (
		all       sync.WaitGroup
		mu        sync.Mutex
		decisions int
	)
	for part := range cores {
		all.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPromises$", "-test.timeout=0")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d", partVariable, part, cores))
			out, err := c.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				var ran, decided int
				if n, _ := fmt.Sscanf(line, summary, &ran, &decided); n == 2 {
					decisions += decided
				}
			}
		})
	}
	all.Wait()
	fmt.Printf(summary, count, decisions)
}
