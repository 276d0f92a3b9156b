// Package headers renders a verdict as the header fields and the body that the
// client sees. It is pure, and allocates no more than the one text whose parts the
// values are.
//
// # Styles
//
//   - ratelimit: RateLimit and RateLimit-Policy, the structured fields of
//     draft-ietf-httpapi-ratelimit-headers-10. The policy lists every limit of
//     the request, RateLimit the one that speaks for it.
//   - draft03: RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of
//     draft-ietf-httpapi-ratelimit-headers-03.
//   - x-ratelimit: the same three as X-RateLimit-*, reset in seconds from now.
//   - x-ratelimit-epoch: with the reset as seconds since 1970.
//
// A reset is the wait of the limit that speaks for the request: until its cost has
// room if it was denied, until a unit has room if nothing remains, else until its
// window is empty. It is rounded up to whole seconds and never exceeds the window, which
// is rounded up too. The true wait can be a little longer: a log may round times up, and
// a lease records hits ahead of time. Retry-After always tells the true wait, and the
// draft gives it precedence over the reset.
//
// Styles combine, and none is fine. A domain may have its own. Retry-After (RFC 9110 §10.2.3) is always
// there on a denial: whole seconds, rounded up, at least 1.
//
// Limits that could not have denied the request are in none of them: what is only
// observed, refunds, and quota rules where another alternative passes anyway.
//
// # The body of a denial
//
// A problem document (RFC 9457), or what the rule that denied says instead, as
// text/plain unless it names another type. Where the store could not decide and
// the rule denies then, nobody knows whether a limit was exceeded: that is a
// problem document of another type, whatever the rule says of its limit, without
// any header about the limit but Retry-After.
//
// # Safe values
//
// Envoy checks neither names nor values: a CR or LF would split the response for
// HTTP/1 clients. Every value is checked here once more before it leaves, although
// it is made of numbers and checked names, and what fails is left out. A body
// that is too long or not UTF-8 gives way to the problem document.
package headers
