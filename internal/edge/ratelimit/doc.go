// Package ratelimit serves envoy.service.ratelimit.v3.RateLimitService, and the same as JSON over
// HTTP (/json). It turns Envoy's message (domain, descriptors, hits_addend, limit overrides) into a
// decide.Request, and the decide.Verdict into the answer: codes, statuses, headers, dynamic
// metadata. reference.go has the form of envoyproxy/ratelimit.
//
// # What Envoy does with the answer
//
// Envoy looks at overall_code alone: OVER_LIMIT denies the request, and every other
// number lets it pass, even an unknown one. So this package answers OK or OVER_LIMIT and
// nothing else. If it cannot decide, it returns a gRPC error, and Envoy's
// failure_mode_deny applies. The answer has one status for each descriptor, in the same
// order, because Envoy matches them by index. Durations are whole seconds, rounded up,
// because Envoy cuts off fractions. Numbers above the range of uint32 become its largest
// number.
//
// The code of a status describes its descriptor alone. A quota rule without room is
// OVER_LIMIT there, although another quota rule may have let the request pass. An observed
// limit is OK, with its limit and what remains. A descriptor without a limit is OK without
// a limit. If its rule calls it unlimited, the largest number remains, as with
// envoyproxy/ratelimit.
//
// # The form of envoyproxy/ratelimit
//
// With Options.Reference an answer is what envoyproxy/ratelimit would send, for clients and
// tests that compare it:
//
//   - current_limit has a name only if the rules file gives one, and never for a limit that
//     came with the descriptor.
//   - A limit without room for the cost has 0 remaining.
//   - duration_until_reset is answer.ReferenceReset.
//   - Under rules.shadow_mode the status of a limit without room is OVER_LIMIT, although the
//     overall code is OK. A limit that its own rule observes is OK.
//   - A denial has no body, unless the rule has one.
//   - The dynamic metadata has the request and the metadata of the rules with
//     Options.EchoRequest, and nothing without it.
//   - /json answers every method, with the body alone.
//
// Three differences remain: what a denial charges, numbers that depend on the window, and "***"
// for an API key.
//
// # Bytes that are not UTF-8
//
// Envoy passes on the bytes of a header as they are. The codec of protobuf refuses a string
// that is not UTF-8 before any handler runs. Envoy then sees a gRPC error and lets the
// request pass all limits, so a client could switch its limits off with one byte. So
// messages decode themselves here, through adapter.Codec. The bytes never return in an
// answer. An answer consists of numbers and of names from the configuration. If the
// dynamic metadata repeats the request, U+FFFD replaces such bytes.
//
// # Transports
//
// [Service.Register] and [Service.Handle] lead to the same adapter.Handler. A message is
// copied once, and all texts of the request are parts of that copy. The next request
// reuses all other memory.
//
// # Costs
//
// If a descriptor has a hits_addend, that is its cost. Zero checks the limit and charges
// nothing. Otherwise the request's hits_addend is the cost, and zero or an absent one means
// 1. envoyproxy/ratelimit reads both in the same way. Envoy sends 2^63 if its value is
// not a number. Like any cost above the limit, this can never pass. With is_negative_hits
// the cost is a refund, and the descriptor is OK whatever its limit.
//
// # Limits that come with a descriptor
//
// A limit in a descriptor replaces the limits of its rule. A limit with an unknown unit, or
// with a window longer than window.MaxWindow, is invalid: it is counted, and the rule
// applies. The package keeps nothing of such limits, so different ones take no memory. Only
// the store has a log for each, until its window ends.
//
// # Dynamic metadata
//
// The answer has these entries for access logs and later filters:
//
//   - rule, limit, remaining, and for a denial that ends retry_after: the decisive limit.
//     policy: how that limit counts, unless it is sliding.
//   - subject and tier: the caller, whatever limit is decisive, as far as a rule of the request
//     asks for it. key_digest: the first digits of the digest of an API key without a subject.
//     See decide.Verdict.
//   - shadowed: the observed rule that would have denied the request.
//   - degraded: true if the store could not decide, so that a choice of the rules did.
//     degraded_by names that choice.
//   - caller_unresolved: true if the customer source could not find the subject of a key.
//   - metadata: that of the rules whose descriptors have room, merged.
//   - domain, descriptors and hitsAddend, if Options.EchoRequest is set: the request in the
//     layout of envoyproxy/ratelimit, with "***" for an API key.
//
// Without entries the answer has no metadata.
package ratelimit
