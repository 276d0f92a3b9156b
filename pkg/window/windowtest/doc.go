// Package windowtest is the conformance suite of [window.Store]. It has the contract in
// package window as tests that every store runs. Package reference has the references
// for translations of the log, package oracle the naive stores.
//
//	func TestContract(t *testing.T) {
//		windowtest.Run(t, windowtest.Options{}, func(t *testing.T) windowtest.Harness {
//			...
//		})
//	}
//
// It has five parts:
//
//   - Step tables have explicit times and the whole decision expected at each. There
//     are tables of exact limits, of modes and of precisions, the edges of windows of
//     all lengths, and the example of package window.
//   - Bad arguments, and contexts that are already done.
//   - Long lives have logs that grow, shrink and expire in parts. Some are in use until
//     times of five bytes and sums of four bytes have wrapped.
//   - Two generators make random histories. A naive oracle, which loops over a slice of
//     entries, checks every decision. One generator makes short histories in which
//     almost every call is at an edge. The other makes long logs with weights, changing
//     limits, mass expiry and a clock that steps back. Both use all modes, precisions,
//     and windows in milliseconds.
//   - Concurrent callers record a history. No interval of a window's length may hold
//     more than the limit, and the charges and refunds must add up.
//
// Package policytest is the suite of the policies that count without a log of hits. It has step
// tables, random histories that mix all policies in one call, and an oracle for each policy in
// exact fractions. Without the oracle, it proves each promise with true times: what any
// interval or period admits, every wait for every cost, and groups that are charged as a whole.
// TestWorstOfCounter tries every history of a sliding counter with few steps. The worst that
// it admits in an interval of one window is twice the limit, less one.
//
// Package inspecttest is the suite of [inspect.Inspector]: random reads and removals of logs of every
// policy against the same oracles, lists while logs come and go, and removals among concurrent
// callers.
//
// The first three parts run a second time, with every call made without wait first. In the
// others every second call is made that way. So a store decides the same with and without
// wait, and a call that is not decided leaves no trace.
//
// The promise of precision is also tested without the oracle, with true times.
//
// A random history that fails prints its seed. To repeat it first, set the environment
// variable SLIDEGATE_TEST_SEED to the seed. SLIDEGATE_TEST_LONG makes random runs longer.
//
// The clock of a harness is not the real clock, but a store may also have expiries in real
// time. So the suite uses only windows of at least ten seconds, and is done with a key long
// before they have passed. [Options.ShortWindows] is for stores without such expiries.
package windowtest
