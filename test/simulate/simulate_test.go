package simulate

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
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

// TestPromises runs plans of seeds. If one breaks a promise, it prints the shortest story that does.
func TestPromises(t *testing.T) {
	first, count := seeds(10)
	decisions := 0
	for seed := first; seed < first+count; seed++ {
		w := run(t, newPlan(seed), mutants{})
		decisions += w.decisions
		if len(w.broken) > 0 && t.Failed() {
			t.Errorf("seed %d breaks a promise: %s", seed, w.broken[0])
		} else if len(w.broken) > 0 {
			least := shrink(t, w, mutants{}, 40)
			t.Errorf("seed %d breaks a promise: %s\nRepeat it with %s=%d. The shortest story that breaks it:\n%s\n%s",
				seed, w.broken[0], random.SeedVariable, seed, least.story(), strings.Join(least.broken, "\n"))
		}
	}
	fmt.Printf("%d seeds, %d decisions\n", count, decisions)
}
