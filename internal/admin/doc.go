// Package admin serves the pages of both HTTP ports, and guards them.
//
// # The admin port
//
// [Handler] serves it: metrics, the active rules, what is known of tiers and keys,
// profiles, and a gRPC handler beside them. The daemon passes in what the pages show
// ([Pages]), so this package knows neither the rules nor the store. The port asks for no
// password, so it is on loopback by default.
//
// # The forms of a page
//
// "/", /rlconfig and /healthcheck ([Index], [WriteHealth]) have three forms. The
// parameter format or the header Accept chooses one; without either it is text, because
// probes and scripts compare it.
//
//	text   the form of envoyproxy/ratelimit, or near to it; it does not change
//	JSON   for programs
//	HTML   for a browser: no script, its own style alone, in no frame of another site
//
// # The guard
//
// A person's browser can reach ports that its pages must not use. [Guard] refuses what
// only such a page sends: a method that may change something from another origin (403),
// a request of another site for a part of a page (403), and a Host that is neither an IP
// address nor localhost nor configured (421), which stops DNS rebinding. Programs send
// none of these headers, and call by an address or a configured name.
//
// Everything here is safe for concurrent use.
package admin
