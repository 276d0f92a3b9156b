// Package windowtest is the conformance suite of [window.Store]: what the
// contract in package window says, as tests that every store runs.
//
//	func TestContract(t *testing.T) {
//		windowtest.Run(t, windowtest.Options{}, func(t *testing.T) windowtest.Harness {
//			...
//		})
//	}
//
// It has five parts:
//
//   - step tables: explicit times and the whole decision expected at each, the
//     example of package window among them. There are tables of exact limits, of
//     modes and of precisions, and the edges of windows of all lengths;
//   - bad arguments, and contexts that are done already;
//   - long lives: logs that grow, shrink and expire in parts, and logs in use
//     until times of five bytes and sums of four have gone round;
//   - two generators of random histories, whose every decision is compared with
//     a naive oracle: a slice of entries and loops over it. One makes dense
//     histories of few entries in which almost every call is an edge; the other
//     makes long logs with weights, changing limits, mass expiry and a clock
//     that steps back. Both use all modes, precisions and windows in
//     milliseconds;
//   - concurrent callers, whose recorded history must keep the promise that no
//     interval of a window's length holds more than the limit, and whose charges
//     and refunds must add up.
//
// The first three run a second time, with every call made without waiting first. Of
// the others every second call is made that way. So what a store decides without
// waiting is what it decides with it, and a call that is not decided leaves no trace.
//
// What precision promises is proven without the oracle too, from true times.
//
// A random history that fails prints its seed; set the environment variable
// WINDOWTEST_SEED to it to run the same one again, first. WINDOWTEST_STEPS makes
// random runs longer.
//
// The clock of a harness is not the real one, but a store may also have expiries
// in real time. The suite therefore relies on the history of windows of at least
// ten seconds only, and is done with a key long before they have passed.
// [Options.ShortWindows] is for stores without such expiries.
package windowtest
