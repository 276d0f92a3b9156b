// Package admin serves the HTTP API /v1/… as JSON, and the other paths of both HTTP ports, and
// guards them. It has the routes and their query parameters (subject, digest, rule, since, limit,
// cursor), and the problem documents (RFC 9457). It also has pages of text, profiles and
// openapi.yaml. [Access] checks tokens and the cookie of a browser, and [Guard] checks Host and
// Origin.
//
// # The admin port
//
// [Handler] serves it: metrics, the active rules, lookups of tiers and keys, profiles, and
// a gRPC handler. The daemon passes in the contents of the pages ([Pages]), so this package
// knows neither the rules nor the store. The port has no password, so it is on loopback by
// default.
//
// # Pages of text
//
// "/" ([Index]), /rlconfig and /healthcheck are text, because probes and scripts compare it. A browser
// gets the console at "/".
//
// # The guard
//
// A web page can make a person's browser send requests to ports that the browser can reach.
// [Guard] refuses such requests:
//
//   - A page of another origin sends a method that may change something (403).
//   - A page of another site requests a part of a page (403).
//   - The Host is neither an IP address nor localhost nor configured (421). This stops DNS
//     rebinding.
//
// Programs do not send the headers of the first two, and call an address or a configured
// name.
//
// Everything here is safe for concurrent use.
package admin
