// Package ratelimit serves envoy.service.ratelimit.v3.RateLimitService: it turns
// Envoy's message into a policy.Request and a policy.Verdict into the answer.
//
// # What Envoy does with the answer
//
// Envoy decides by overall_code alone: OVER_LIMIT denies, everything else, even a
// number that it does not know, passes. So this package answers OK or OVER_LIMIT
// and nothing else; who cannot decide says so with a gRPC error, and Envoy's
// failure_mode_deny applies. Statuses match the descriptors one to one, because
// Envoy matches them by index. Durations are whole seconds, rounded up: Envoy
// cuts off fractions. Numbers saturate at what uint32 holds.
//
// The code of a status is that of its descriptor alone. A quota rule without room
// is OVER_LIMIT there although another one may have let the request pass; what is
// only observed is OK, with the limit and what remains of it. A descriptor that
// nothing limits is OK without a limit, and one that its rule calls unlimited has
// the largest number remaining, as envoyproxy/ratelimit says it.
//
// # Bytes that are not UTF-8
//
// Envoy passes the bytes of a header on as they are. The codec of protobuf
// refuses a string that is not UTF-8 before any handler runs; Envoy then sees a
// gRPC error and lets the request pass all limits, so that one byte would switch
// the limits off. Here messages read themselves, which [Codec] lets them. The bytes never come back in an
// answer: it is made of names from the configuration and of numbers, and where
// dynamic metadata repeats the request they are replaced by U+FFFD.
//
// # Ways in
//
// A server of gRPC calls the handler that [Service.Register] gives it. A transport
// that reads messages itself calls [Service.Prompt], which answers on its goroutine
// if nothing has to wait, and gives the rest of the call back otherwise. Either way
// the message is copied once, and all texts of the request are parts of that copy.
// The rest of a request lives in memory that the next one uses, which is empty
// before it is given back, and not given back at all after a panic.
//
// # Costs
//
// A descriptor's own hits_addend counts as it is, and zero only asks. Without one
// the request's counts, where zero or none means 1. The reference service reads
// them the same way. Envoy sends 2^63 for a number that is not one; like any cost
// above the limit it can never pass. With is_negative_hits the cost is given back,
// and the descriptor is OK whatever its limit.
//
// # Limits that come with a descriptor
//
// They take the place of the descriptor's rule, whatever it says. One with a unit
// that is not known, or a window longer than window.MaxWindow, counts as absent,
// and is counted. Nothing is kept of a limit, so that no number of different ones
// costs memory: only the log has its key, for as long as its window lasts.
//
// # Dynamic metadata
//
// What access logs and later filters read in the filter's namespace:
//
//   - rule, limit, remaining, and of a denial retry_after: the limit that speaks
//     for the request; subject and tier where they are known.
//   - shadowed: the rule that would have denied if it were not only observed.
//   - degraded: true where the store could not decide and the rules' choice for
//     that did; degraded_by says which.
//   - caller_unresolved: true where the source of tiers could not say whose a key
//     is.
//   - metadata: what the rules whose descriptors have room say, merged.
//   - domain, descriptors and hitsAddend, if Options.EchoRequest asks for them: the
//     request in the layout of envoyproxy/ratelimit, but "***" for an API key.
//
// It is absent where there is nothing to say.
package ratelimit
