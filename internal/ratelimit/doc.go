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
// # Bytes that are not UTF-8
//
// Envoy passes the bytes of a header on as they are. The codec of protobuf
// refuses a string that is not UTF-8 before any handler runs; Envoy then sees a
// gRPC error and lets the request pass all limits, so that one byte would switch
// the limits off. [Codec] reads such messages. The bytes never come back in an
// answer: it is made of names from the configuration and of numbers.
//
// # Costs
//
// A descriptor's own hits_addend counts as it is, and zero only asks. Without one
// the request's counts, where zero or none means 1. The reference service reads
// them the same way. Envoy sends 2^63 for a number that is not one; like any cost
// above the limit it can never pass.
package ratelimit
