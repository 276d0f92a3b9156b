// Package insight answers what operators ask about customers: what a customer has used, which of
// its requests were denied, who is denied most, and what an operator has reset. It has the
// questions and the JSON answers of the admin API: [Query] and [Usage], [Filter] and [Denial],
// [TopQuery] and [Top], [LogsQuery] and [Logs], [Reset], [State]. It keeps recent denials in a ring
// and tops in sketches, and writes sampled log lines.
//
// [Insight] answers all of it. The Decider feeds it once for each request that is
// denied or near a limit ([decide.Recorder]). What it keeps has a bound, and rates above a
// bound are sampled and say so. Denials and tops are of this process alone; usage and
// resets go to the store, which all processes share.
//
// No value that is an API key reaches this package: adapters replace them with digests.
package insight
