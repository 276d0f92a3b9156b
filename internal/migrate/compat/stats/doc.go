// Package stats keeps the metrics of envoyproxy/ratelimit, under its names and by its rules
// (total_hits, over_limit, near_limit and others). A [Sender] sends them to a statsd server, and
// [Stats.Handler] shows them to Prometheus with the mapping file of statsd_exporter ([Mapping]).
//
// # What is counted
//
// The counters of a rule count hits, not requests: a request with cost 3 adds 3.
//
//   - total_hits: the cost of each request.
//   - within_limit: the cost that had room, and over_limit: the cost that had none.
//   - near_limit: the part of within_limit above dropin.near_limit_ratio of the limit. The
//     threshold is the whole number below limit × ratio.
//   - shadow_mode: the part of over_limit that passed because the rule is in shadow mode.
//   - over_limit_with_local_cache: the part of over_limit that this process denied from memory.
//
// For example, a limit of 10 has its threshold at 8. Three requests of cost 4 make total_hits 12,
// within_limit 8 and over_limit 4. The third has no room. near_limit stays 0. A request of cost 2
// then makes near_limit 2, because it uses the hits 9 and 10.
//
// A denied request records nothing here, so all of its cost is over the limit. envoyproxy/ratelimit
// records it, and counts the part that still fitted as near_limit. So does Slidegate with
// dropin.usage_reports. A request that the store could not decide adds to total_hits. It adds to
// within_limit or over_limit only if this process has decided it.
//
// # Names
//
// The name of a counter has the domain and the levels of its rule:
// ratelimit.service.rate_limit.DOMAIN.KEY_VALUE.KEY.total_hits. A level without a value has its
// key alone. With detailed_metric the name has the values of the request at all levels, and with
// value_to_metric at the marked levels. A name never shows the value of an API key.
//
// At most [Options.MaxNames] names have values of requests. Further values count under the
// value "other".
//
// # Prometheus and statsd
//
// A counter is one number. [Stats.Handler] shows it to Prometheus under the name and the labels
// that a mapping of statsd_exporter gives it. A [Sender] sends statsd what was added since it last
// sent something. So a call never waits for either, and an outage of a statsd server over TCP loses no
// counts. Times of calls are bounded: a Sender sends at most 1,000 for each method and interval,
// and says how many each stands for.
package stats
