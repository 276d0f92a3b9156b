// Package packed has the bytes of logs, and the arithmetic of one log: slots and running sums of a
// sliding log, counters, token buckets, periods, requests in flight and idempotency records. It
// charges, refunds, computes waits, encodes and decodes. It has no keys, locks or I/O: stores have
// those.
//
// [View] is the arithmetic of a log of [window.Sliding], [State] that of any policy, and [Decode]
// reads a log for operators. All are pure: the log, the clock and the check go in; the answer and
// the log come out. [View.Reserve] charges cost that will be spent later; the contract of package
// window does not ask for it. Stores use View and State, or translate them to another language.
//
// testdata/vectors.jsonl.gz has histories that every translation must match. layout.go explains
// the bytes of a sliding log, and testdata/one-key.txt shows them after each step of one key.
// state.go and inflight.go explain the bytes of the other policies.
package packed
