package windowtest

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// DefaultSteps is the number of calls that each random generator makes.
const DefaultSteps = 20_000

// stepsVariable names the environment variable that makes random runs longer.
const stepsVariable = "WINDOWTEST_STEPS"

// Options size a run. The zero value is usable.
type Options struct {
	// Steps is the number of calls that each of the two random generators makes.
	// Zero means DefaultSteps. The environment variable WINDOWTEST_STEPS, if it is
	// set, is used instead.
	Steps int
	// ShortWindows says that the store drops nothing by real time. Random histories then
	// have windows of less than ten seconds too.
	ShortWindows bool
}

// A Harness is a fresh, empty store with a clock that the test sets.
type Harness struct {
	// Store is the store under test. The code that makes the harness closes it. It must not
	// drop idle logs by the clock that the test sets. If that clock is set back, a dropped
	// log would matter.
	Store window.Store
	// SetNow sets the store's clock to a time since some fixed instant, in whole
	// microseconds. It may be set back, and years ahead. The suite never sets it
	// below zero, and sets it before the first call.
	SetNow func(now time.Duration)
	// Epoch is what the store's clock says when SetNow has set it to zero, in whole
	// seconds. A precision rounds to multiples of the store's clock. Zero is right if
	// SetNow gets the store's own time.
	Epoch time.Duration
}

// lastClock is the latest time that a store's clock can say, in the year 2112.
const lastClock = (1 << 52) * time.Microsecond

// aligned returns the first time for SetNow, at least lead, at which the store's
// clock says a multiple of step.
func (h *Harness) aligned(step, lead time.Duration) time.Duration {
	at := h.Epoch + lead
	if rest := at % step; rest != 0 {
		at += step - rest
	}
	return at - h.Epoch
}

// Run runs the whole suite as subtests of t. open makes a harness for each of
// them, and for long random runs several.
func Run(t *testing.T, o Options, open func(t *testing.T) Harness) {
	t.Helper()
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}
	if s := os.Getenv(stepsVariable); s != "" {
		var err error
		if o.Steps, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", stepsVariable, err)
		}
	}
	runTables(t, o, open)
	t.Run("NoWait", func(t *testing.T) { runTables(t, o, unwaitedFirst(1, open)) })
	open = unwaitedFirst(2, open)
	t.Run("RandomDense", func(t *testing.T) { runRandom(t, open, dense(o.ShortWindows), o.Steps) })
	t.Run("RandomLong", func(t *testing.T) { runRandom(t, open, long, o.Steps) })
	t.Run("ConcurrentPhases", func(t *testing.T) { runPhases(t, open(t)) })
	t.Run("ConcurrentClock", func(t *testing.T) { runRunningClock(t, open(t)) })
	t.Run("ConcurrentGroups", func(t *testing.T) { runConcurrentGroups(t, open(t)) })
	t.Run("ConcurrentModes", func(t *testing.T) { runConcurrentModes(t, open(t)) })
	t.Run("ConcurrentSwaps", func(t *testing.T) { runConcurrentSwaps(t, open(t)) })
}

// runTables runs what is not random, and has one caller.
func runTables(t *testing.T, o Options, open func(t *testing.T) Harness) {
	t.Helper()
	t.Run("Steps", func(t *testing.T) { runSteps(t, open) })
	t.Run("Keys", func(t *testing.T) { runKeys(t, open(t)) })
	t.Run("BadCheck", func(t *testing.T) { runBadChecks(t, open(t)) })
	t.Run("Context", func(t *testing.T) { runContext(t, open(t)) })
	t.Run("Arguments", func(t *testing.T) { runArguments(t, open(t)) })
	t.Run("Windows", func(t *testing.T) { runWindows(t, open(t), o.ShortWindows) })
	t.Run("Walk", func(t *testing.T) { runWalks(t, open(t)) })
	t.Run("Large", func(t *testing.T) { runLarge(t, open(t)) })
	t.Run("Precision", func(t *testing.T) { runPrecision(t, open(t)) })
	t.Run("Entries", func(t *testing.T) { runEntries(t, open(t)) })
}
