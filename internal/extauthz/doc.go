// Package extauthz serves envoy.service.auth.v3.Authorization, and the same over
// HTTP: it turns an API key into a subject and a tier, so that what comes behind
// it never sees a key, and takes the limits in the same call where it is asked to.
//
// # The way of a request
//
//  1. The first credential of Options.Credentials that is there counts. It is
//     digested at once.
//  2. Options.Subjects says whose it is, within Options.Wait. If there are keys in
//     other places, it says within the same time whose they are: keys of two known
//     subjects are refused, because the upstream might serve the second one.
//  3. Where the context of the route names a domain, the descriptors of its
//     template are decided by the same policy.Decider as those of
//     internal/ratelimit ([Service] says how).
//  4. The result becomes a CheckResponse, or a response of HTTP.
//
// [Service.Prompt] goes this way as far as nothing has to wait. What is left of it
// goes on from there: nothing is looked up, charged or counted twice.
//
// # Results
//
// Every request has one [Result]. A denial is an answer: a code that is not OK,
// and the response for the client. Who cannot decide answers error_response, so
// that Envoy's failure_mode_allow applies; Envoys before 1.37 do not know it and
// deny. Status is always there: Envoy takes an answer without it for OK.
//
// # What a client cannot do
//
// A credential that is there twice is refused, whichever of the two a later
// service would take, also in a place behind the first one. So is a parameter of which only some services make the
// credential's name. Headers that tell the upstream who calls are overwritten or
// removed in every answer that lets a request pass. Nothing of a request is
// repeated in an answer's body. What an answer says of a subject goes out only if
// it is plain ASCII.
//
// # An API key is a secret
//
// The key lives as long as the request. Nothing but its fingerprint leaves this
// package, except to a source that is asked by the key itself
// (Options.PlainKeys). Templates can name any header of the request; one that may
// hold a key is fingerprinted there too.
//
// # Dynamic metadata
//
// Under envoy.filters.http.ext_authz, for other filters and access logs:
//
//   - subject, tier: texts that are never empty. Of an anonymous request the
//     subject is "ip:" and its address, of IPv6 its network.
//   - labels: those of the subject.
//   - rate_limit: requests_per_unit and unit, where the subject has a limit of its
//     own that Envoy can pass on in a descriptor.
//   - reason: the Result of a request that does not pass.
//   - with limits taken, what internal/ratelimit says of them, by the same names.
package extauthz
