// Package simulate proves the promises of docs/guarantees.md by simulation. A run has instances of the
// service's core, one to three Redis servers, and callers behind an Envoy that gives up, all in one process
// on a virtual clock (testing/synctest). It is a module of its own, so that no other module requires a
// Lua interpreter.
//
// What runs is real: rules and decisions, the cache of tiers, leases, remembered denials, the fallback quotas, redisstore
// with its queues, deadlines and breakers, go-redis, and the Lua scripts. What is made here is small: a
// server of Redis's protocol on a net.Pipe, with the few commands that the scripts call, and an
// interpreter of Lua. TestJudge runs the same calls on a real Redis and compares every byte.
//
// A plan follows from a seed: the limits, the callers, and the faults. There is a limit of each policy, with
// leases, idempotency keys, resets, refunds, usage updates, budgets, tiers that change, and a day of a calendar that
// ends. The faults are lost messages, cuts, frozen servers and instances, failovers that lose writes, restarts,
// clocks that are set, slots of a cluster that move, and a customer database that does not answer.
//
// Each message takes a time that follows from the seed and from its moment, so that messages overtake each other.
// The promises are functions, named by their sentences. A run that breaks one prints its seed, and the shortest
// story that it finds: one line for each event.
//
// In half of the runs, calls that come together pause and share a send.
//
// A call is charged at a moment between its begin and its end, by a clock that faults may set. So a
// promise is broken only if no choice of these moments keeps it.
//
// # Promises
//
// These functions check the promises of docs/guarantees.md in each run, or these tests do elsewhere.
// TestMap compares the list with the page.
//
//   - Never more than the limit. judgeWindows, judgeHistory, usedAtRest, spend, budgetAtRest
//   - Each policy keeps its bound. judgeWindows, judgePeriods, judgeActive, heldAtRest
//   - Retry-After is long enough. judgeRetries
//   - A denied request uses no quota. usedAtRest, judgeHistory
//   - All limits or none. usedAtRest
//   - Charged once, and in time. changed, usedAtRest, judgeHistory
//   - A retry with an idempotency key is charged once: usedAtRest
//   - Two customers never share a limit per key. judgeNames
//   - Envoy gets an answer in time. judgeTimes, judgeWindows, judgeRecovery
//   - Known customers keep their tier: judgeTiers
//   - The last good rules stay active: TestXDSServerRestarts, TestXDSServerUnavailableAtStart
//   - A restart loses no call. judgeRestarts
//   - A tier change takes effect at the next request: judgeTiers, judgeHistory
//   - A wrong file changes nothing. TestReloadUnderLoad, TestABadStart
//   - One image line replaces envoyproxy/ratelimit: TestCorpus, TestReferenceSideBySide
//   - A comparison changes nothing. TestCompare, TestCompareWithAReferenceThatHangs
//   - An API key is hashed: TestAnAPIKeyIsNowhere, TestAPIKeysReachNothing
//   - One credential has one quota: TestOneCredentialHasOneQuota, FuzzCredential
//   - Only Slidegate says who calls. TestOnlyRlsSaysWhoCalls, TestWhoMayPass
//   - A client cannot exhaust Slidegate. TestFloods, TestMemoryIsBounded
//
// # Mutants
//
// TestMutants breaks the protocol in 31 ways, and prints after how many seeds a promise shows each: most after
// one to four, all within 100.
//
//	make simulate SEEDS=20
//	make simulate-mutants
package simulate
