// Package describe makes the questions that Envoy asks about the requests of an access log. It
// finds the virtual host and the route of a request, and evaluates rate-limit actions and matchers
// into descriptors. It reads costs and limits of descriptors from the log.
//
// [New] compiles Envoy's configuration, and [NewMap] a mapping file. Both give a Describer. It
// finds the virtual host and the route of a request, and evaluates their actions on the attributes
// that the log has. If an action has no value, it drops the descriptor, as Envoy does.
//
// # What a log does not say
//
// Describer.Unreported lists it, with the number of requests concerned. A header that the log does not
// have counts as absent, so the request does not have a descriptor with it. API keys are the
// exception, because no log should have them. If the log has the subject, a value made of the
// subject's id stands for its keys, and Question.Subject names the subject. All keys of a subject
// then count as one. The log has the first digits of the digest of a key without a subject, and a
// value that begins with them stands for it.
//
// Envoy logs what a request is after its filters. A header that request_headers_to_add or
// request_headers_to_remove names is unknown, because they act after the rate limit. After a rewrite of
// the host, the virtual host may be wrong, unless the log has %ROUTE_NAME% and the name is unique. A
// runtime_fraction and a disable_key count as chosen and as enabled. Describer.Unreported reports all of
// them.
//
// # Secrets
//
// The values of secret entries are digests.
package describe
