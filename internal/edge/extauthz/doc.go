// Package extauthz serves envoy.service.auth.v3.Authorization, and the same over HTTP. It turns an
// API key into a subject and a tier, so the upstream never sees a key. It has credentials (headers,
// cookies, query parameters), templates of descriptors, headers to the upstream, and failures of
// each address. Each [Result] has its answer to the client. If the route asks for it, the same call
// also takes limits.
//
// # The way of a request
//
//  1. The first entry of Options.Credentials that finds a credential counts.
//  2. Options.Subjects finds its subject, within Options.Wait. Within the same time it
//     finds the subjects of keys at later entries. If two keys belong to two subjects, the
//     request is refused, because the upstream might serve the second one.
//  3. If the context of the route names a domain, decide.Decider decides the descriptors
//     of its template, as for package ratelimit. [Service] describes contexts.
//  4. The result becomes a CheckResponse or an HTTP response.
//
// A request that has to wait continues with the same step: nothing is looked up, charged
// or counted twice.
//
// # Results
//
// Every request has one [Result]. A denial has a code other than OK and the response for
// the client. If no decision is possible, the answer has an error_response, so Envoy's
// failure_mode_allow applies. An Envoy older than 1.37 does not know error_response and
// denies. The answer always has a status: Envoy takes an answer without one for OK.
//
// # Promises against clients
//
//   - If an entry finds two credentials, the request is refused: a later service might take
//     the other one. The same holds for later entries, and for a query parameter whose name
//     only some services read as the name of the credential.
//   - Every answer that lets a request pass overwrites or removes the headers that name the
//     caller to the upstream.
//   - The body of an answer repeats nothing of the request. An answer contains a text of
//     the subject only if it is plain ASCII.
//
// # An API key is a secret
//
// A key is kept only while its request runs. Only its fingerprint leaves this package,
// unless Options.PlainKeys gives the key to the customer source. A template can name any
// header of the request. If the header may contain a key, the descriptor gets its
// fingerprint.
//
// # Dynamic metadata
//
// The metadata is under envoy.filters.http.ext_authz, for other filters and access logs:
//
//   - subject, tier: texts, never empty. The subject of an anonymous request is "ip:" and
//     its address, for IPv6 its network.
//   - labels: the labels of the subject.
//   - limit, limit_NAME: requests_per_unit and unit of the limits that the tier carries, if
//     the request passes and the call takes no limits.
//   - reason: the Result, if the request does not pass.
//   - If limits were taken, the entries that package ratelimit lists.
package extauthz
