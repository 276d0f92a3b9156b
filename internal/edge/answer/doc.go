// Package answer renders a verdict as what a client reads: header fields, and the body of a denial.
// A [Renderer] writes RateLimit, RateLimit-Policy, RateLimit-*, X-RateLimit-* and Retry-After.
// [AppendDenial] writes the body of a denial in the form that a kind of client reads. Resets and waits
// in seconds are computed here, also as envoyproxy/ratelimit has them.
//
// It is pure. Header fields allocate one string, of which all values are parts. Package dynamic
// renders the dynamic metadata for Envoy.
//
// # Styles
//
//   - ratelimit: RateLimit and RateLimit-Policy, the structured fields of
//     draft-ietf-httpapi-ratelimit-headers-10. RateLimit-Policy lists every limit of
//     the request. RateLimit describes the decisive limit.
//   - draft03: RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of
//     draft-ietf-httpapi-ratelimit-headers-03.
//   - x-ratelimit: the same three as X-RateLimit-*, with the reset in seconds from now.
//   - x-ratelimit-epoch: the same, with the reset in seconds since 1970.
//   - reference: the limit, what remains and the reset in seconds, as bare numbers in three
//     fields with configured names, as envoyproxy/ratelimit sends them. See below.
//
// The reset is the wait of the decisive limit. If the request was denied, it is the wait
// until its cost has room. If nothing remains, it is the wait until one unit has room.
// Otherwise it is the wait until nothing is used. The reset is rounded up to whole
// seconds. While something remains it never exceeds the window, which is rounded up too. Otherwise
// it is Retry-After, which can be a little longer: a log may round times up, and a lease records
// hits ahead of time. Usage above the limit makes it longer too.
//
// # Windows
//
// What answers report as the window depends on the policy of the limit:
//
//   - sliding, sliding_counter, fixed: the window, if it is a whole number of seconds.
//   - token_bucket: the time in which an empty bucket fills, in seconds, rounded up. The quota
//     is the burst.
//   - calendar: the length of the present period.
//   - in_flight: none. The quota has the unit "concurrent-requests". While there is room, no
//     answer has a reset. If there is none, the reset and Retry-After are 1: a request may
//     end at any time. If other limits of the request have room too, they are decisive.
//
// The style reference describes the limit that envoyproxy/ratelimit would choose: that of the
// last descriptor that denies, or else that of the first descriptor with the fewest hits
// remaining, even if that limit is only observed. Its reset is that of
// [ReferenceReset].
//
// Retry-After (RFC 9110 §10.2.3) always has the true wait, in whole seconds, rounded up,
// at least 1. Every denial has it, in every style, but for a cost above the limit. The draft
// gives it precedence over the reset. retry-after-ms has the same in milliseconds, for SDKs.
// x-should-retry is false if the wait is above 120 s, if no wait helps, or if the rule's client_retry
// is never: some SDKs sleep for hours otherwise. [Renderer.Quiet] leaves out all three where
// envoyproxy/ratelimit would.
//
// With the rule's retry_jitter, a client that has to wait gets a longer wait, in every field
// that has one and in the body and the metadata: see decide.LimitStatus.RetryAfter.
//
// A cost above the limit is denied however long the caller waits. So its answer has neither
// Retry-After nor a reset. Only the style reference has one, the window, as
// envoyproxy/ratelimit has.
//
// Styles can be combined, and a service can have no style. A domain can have its own.
//
// No field mentions limits that cannot deny the request: observed limits, refunds, and
// quota rules of which another alternative passes.
//
// # The body of a denial
//
// The body of the rule goes before the form of the route, and without both it is a problem document
// (RFC 9457). A rule has a form (rules.Form) or a text, as text/plain unless the rule names another
// type. If the store could not decide and the rule denies then, it is not known whether the limit was
// exceeded. The text is then not used, and Retry-After is the only field. A cost above the limit has its
// own text too, and the problem document has the member cost instead of retry_after.
//
// Waits above 120 s are a budget that is used up: the forms other than the problem document say when it
// ends, by the clock of the calendar or in UTC.
//
// # Safe values
//
// Envoy does not check names or values: a CR or LF would split the response for HTTP/1
// clients. This package checks every value once more and leaves out a value that is not
// valid. Bodies have no value of the client but the id of an MCP request, which is encoded again.
package answer
