package windowtest

import (
	"cmp"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// DefaultSteps is the number of calls that each random generator makes in a long run.
const DefaultSteps = 20_000

// quicker is the fraction of a long run's calls that make test makes.
const quicker = 8

// Options size a run. The zero value is usable.
type Options struct {
	// Steps is the number of calls that each of the random generators makes in a
	// long run, see [random.Steps]. Other runs make an eighth. Zero means DefaultSteps.
	Steps int
	// ShortWindows says that the store drops nothing by real time. Random histories then
	// have windows of less than ten seconds too.
	ShortWindows bool
	// RealClock is for stores whose clock cannot be set. [policytest.RunInFlight] then leaves out what
	// depends on times.
	RealClock bool
	// CheckByCheck is for stores that decide a group check by check, in several stores at once. It leaves
	// out periods that contradict the clock: what one store records at once, such as a refund, stays
	// if another one fails. What is taken back may have moved a log's clock or cut a bucket. So in
	// random histories the clock is never set back, and buckets, periods and counters keep their limits.
	CheckByCheck bool
}

// StepCount returns the number of calls that each random generator makes.
func (o Options) StepCount(t *testing.T) int {
	t.Helper()
	t.Helper()
	long := cmp.Or(o.Steps, DefaultSteps)
	return random.Steps(t, long/quicker, long)
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

// LastClock is the latest time that a store's clock can say, in the year 2112.
const LastClock = (1 << 52) * time.Microsecond

// Aligned returns the first time for SetNow, at least lead, at which the store's
// clock says a multiple of step.
func (h *Harness) Aligned(step, lead time.Duration) time.Duration {
	at := h.Epoch + lead
	if rest := at % step; rest != 0 {
		at += step - rest
	}
	return at - h.Epoch
}

// Run runs the suite of [window.Sliding] as subtests of t. open makes a harness for each of
// them, and for long random runs several.
func Run(t *testing.T, o Options, open func(t *testing.T) Harness) {
	t.Helper()
	o.Steps = o.StepCount(t)
	runTables(t, o, open)
	if !o.CheckByCheck || random.Long() { // one log at a time: the stores of such a one have their own run
		runLongTables(t, open)
	}
	t.Run("NoWait", func(t *testing.T) {
		runTables(t, o, UnwaitedFirst(1, open))
		if random.Long() {
			runLongTables(t, UnwaitedFirst(1, open))
		}
	})
	open = UnwaitedFirst(2, open)
	random := []Generator{dense(o.ShortWindows), long}
	if o.CheckByCheck {
		random = []Generator{forward(random[0]), forward(random[1])}
	}
	t.Run("RandomDense", func(t *testing.T) { RunRandom(t, open, random[0], o.Steps) })
	t.Run("RandomLong", func(t *testing.T) { RunRandom(t, open, random[1], o.Steps) })
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
}

// runLongTables runs tables that take many calls.
func runLongTables(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	t.Run("Walk", func(t *testing.T) { runWalks(t, open(t)) })
	t.Run("Large", func(t *testing.T) { runLarge(t, open(t)) })
	t.Run("Precision", func(t *testing.T) { runPrecision(t, open(t)) })
	t.Run("Entries", func(t *testing.T) { runEntries(t, open(t)) })
}
