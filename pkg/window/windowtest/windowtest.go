package windowtest

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// DefaultSteps is the number of calls that each random generator makes.
const DefaultSteps = 20_000

// Options size a run. The zero value is usable.
type Options struct {
	// Steps is the number of calls that each of the two random generators makes.
	// Zero means DefaultSteps.
	Steps int
}

// A Harness is a fresh, empty store with a clock that the test sets.
type Harness struct {
	// Store is what is tested. Whoever makes the harness closes it.
	Store window.Store
	// SetNow sets the store's clock to a time since some fixed instant, in whole
	// microseconds. It may be set back. The suite never sets it below zero, and
	// sets it before the first call.
	SetNow func(now time.Duration)
}

// Run runs the whole suite as subtests of t. open makes a harness for each of
// them.
func Run(t *testing.T, o Options, open func(t *testing.T) Harness) {
	t.Helper()
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}
	t.Run("Steps", func(t *testing.T) { runSteps(t, open) })
	t.Run("Keys", func(t *testing.T) { runKeys(t, open(t)) })
	t.Run("BadCheck", func(t *testing.T) { runBadChecks(t, open(t)) })
	t.Run("Context", func(t *testing.T) { runContext(t, open(t)) })
	t.Run("Arguments", func(t *testing.T) { runArguments(t, open(t)) })
	t.Run("RandomDense", func(t *testing.T) { runRandom(t, open(t), dense, o.Steps) })
	t.Run("RandomLong", func(t *testing.T) { runRandom(t, open(t), long, o.Steps) })
	t.Run("ConcurrentPhases", func(t *testing.T) { runPhases(t, open(t)) })
	t.Run("ConcurrentClock", func(t *testing.T) { runRunningClock(t, open(t)) })
	t.Run("ConcurrentGroups", func(t *testing.T) { runConcurrentGroups(t, open(t)) })
}
