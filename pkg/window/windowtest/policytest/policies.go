// Package policytest is the suite of the policies that count without a log of hits, of requests in
// flight, and of charges with idempotency records.
package policytest

import (
	"testing"

	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// Run runs the suite of the policies that count hits without a log of them, as
// subtests of t: [window.TokenBucket], [window.Fixed], [window.Calendar] and
// [window.SlidingCounter]. The random
// histories mix them with [window.Sliding].
func Run(t *testing.T, o windowtest.Options, open func(t *testing.T) windowtest.Harness) {
	t.Helper()
	o.Steps = o.StepCount(t)
	open = windowtest.UnwaitedFirst(2, open)
	rounds := min(max(o.Steps/50, 40), 5000)
	t.Run("PolicySteps", func(t *testing.T) { runPolicySteps(t, open) })
	t.Run("BadPolicies", func(t *testing.T) { runBadPolicies(t, open(t)) })
	if !o.CheckByCheck {
		t.Run("PeriodBounds", func(t *testing.T) { runPeriodBounds(t, open(t)) })
	}
	t.Run("RandomPolicies", func(t *testing.T) { windowtest.RunRandom(t, open, policies(o.ShortWindows, o.CheckByCheck), o.Steps) })
	t.Run("BucketPromise", func(t *testing.T) { runBucketPromise(t, open(t), o.ShortWindows, rounds) })
	t.Run("PeriodPromise", func(t *testing.T) { runPeriodPromise(t, open(t), rounds) })
	t.Run("CounterPromise", func(t *testing.T) { runCounterPromise(t, open(t), rounds) })
	t.Run("Waits", func(t *testing.T) { runWaits(t, open(t), o.ShortWindows, rounds) })
	t.Run("ConcurrentPolicies", func(t *testing.T) { runPolicyPhases(t, open(t)) })
	t.Run("ConcurrentPolicyGroups", func(t *testing.T) { runPolicyGroups(t, open(t)) })
}
