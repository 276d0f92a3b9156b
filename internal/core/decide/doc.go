// Package decide decides requests, and no other package does: [Decider], [Call] and the steps of a
// call. It makes store checks of rules, overrides, quotas, costs, refunds, idempotency keys and
// calendars, answers while the store fails, and calls [Meter], [Recorder] and [Tracer]. The files are
// in the order of the way:
//
//  1. decider.go, generation.go: an adapter turns Envoy's message into a [Request]: a domain,
//     descriptors, costs. API keys are digests by then. [Decider.Begin] puts it into a [Call].
//  2. call.go, match.go: each descriptor is matched against the rules of its domain. A rule and the
//     tier of its subject give the limits.
//  3. checks.go, periods.go: the limits of all descriptors become one list of checks.
//  4. take.go, updates.go: one store call charges the request on all of its limits or on none. If the
//     store fails, degrade.go decides; bound.go decides a request that exceeds a bound.
//  5. package verdict, jitter.go: the decisions become a [Verdict]: allowed or not, the status
//     of each descriptor, and the limit that headers, body and metadata describe.
//  6. record.go, meter.go, hits.go: what is counted, logged and kept for people.
//
// # With waiting and without
//
// [Call.Decide] has an argument wait. Without it Decide does not block: it stops if it has to ask a
// store or a customer source first. The [Call] keeps what is known by then, and the next Decide
// continues from there on any goroutine, by the same rules. So nothing is counted before the
// request is decided. The embedded store decides every request without waiting. In front of Redis,
// the remembered denials and the leases decide some requests without waiting.
//
// # Usage updates
//
// Envoy may ask a rule before a request, with a cost of 0, and report the cost after the response.
// Such a cost is recorded even if it is denied if the rule says charge: always, or if the call says
// that its stream has ended. Earlier calls do not matter. With [rules.Rules.ReportUsage], a denied
// cost above 1 is recorded by a second call of the store if something remained.
//
// # Deny and error
//
// A denial is a [Verdict]. An error of [Call.Decide] means that neither the store nor the
// rules could decide; the adapter reports it to Envoy.
package decide
