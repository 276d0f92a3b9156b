// Package envoyfile reads what decides the descriptors of requests: Envoy's configuration with
// [Read], or a mapping file with [ReadMap]. It has the YAML and JSON of listeners, connection
// managers, virtual hosts, routes, rate_limits, actions, matchers and access log formats. It does
// not evaluate them, and uses none of Envoy's protos.
//
// Envoy's configuration has much that does not concern rate limits. [Read] finds the HTTP
// connection managers and the route configurations wherever they are: in a bootstrap, a listener,
// a dump of Envoy's /config_dump, or in files of their own. It ignores unknown keys there. It is
// strict where a key decides a descriptor: in the matches of routes, in matchers, and in
// rate_limits. A key or a value that it does not know there is a problem, because a replay without
// it would be wrong.
//
// Values have the spellings that Envoy accepts: those of protobuf in JSON, and those that its reader of
// YAML adds.
//
// # What is not supported
//
// Scoped routes, virtual hosts from an xDS server, matcher trees in place of routes, limits
// of one weighted cluster, and custom matchers are problems. An extension action other than an
// expression makes an action of the kind [Unsupported], and a route match that no log can show has
// [Match].Unsupported. Package describe counts the requests that both concern.
package envoyfile
