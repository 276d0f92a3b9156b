// Package limiter limits requests inside a Go program, without Envoy. Rules, decisions and logs are
// those of the service rls. A [Limiter] decides, [Rules] come from files or Go, a [Request] has a
// [Descriptor] of each [Entry], and a [Decision] has headers, body and [LimitStatus].
//
//	rules, err := limiter.ReadRules("rules.yaml")
//	store := memstore.New(memstore.Options{MaxBytes: 256 << 20})
//	l, err := limiter.New(store, rules)
//	d, err := l.Allow(ctx, limiter.One("shop", "api_key", key))
//	if !d.Allowed { … d.Limit().RetryAfter … }
//
// Package httplimit has the middleware for net/http, and grpclimit the interceptors for gRPC. Package
// redislimit has the store in Redis. docs/library.md of the project is the guide.
//
// # Rules
//
// [Rules] come from files, from YAML in memory, or from Go: see [Source]. One reader checks them
// all, the reader of the service. Its error is [Problems]: everything that is wrong, each with its
// position.
//
// A settings file of the service may be among the paths. Then entries with API keys, the secret of
// their digests, header styles and the defaults of rules are those of the service. [Limiter.Swap]
// replaces the rules of a running program. Logs stay: a limit that has changed counts the hits from
// before. If the new rules lack the domain of a middleware, all its requests pass. Without settings the
// library has no tiers, and the service has those of its example: set tiers.source to none there.
//
// # Decisions
//
// A denial is a value, and charges nothing. An error means that neither the store nor the rules
// could decide. If the store fails, each rule's on_store_error decides, and [Decision.Degraded] is
// true: see [Limiter.Allow]. [Decision.AppendHeaders] and [Decision.Body] make what a client reads.
//
// # Requests in flight
//
// A request that a limit with the policy in_flight applies to counts until [Decision.Release], and at most
// for its hold. The middleware calls Release.
//
// # API keys
//
// The caller gives the API key itself, in an entry whose key is among secrets.entries: api_key,
// authorization or x-api-key, unless the settings say otherwise. Only its digest goes on: to the
// matching, the store, the [Decision] and errors.
//
// # What it leaves out
//
// Tiers in Redis, in PostgreSQL or behind HTTP, and rules over xDS.
//
// # How it stands
//
// This package is a roof, as internal/daemon is that of the service: it joins internal/config, which
// reads rules, internal/core, which decides, internal/edge/answer, which writes headers and bodies, and a
// store of pkg/window. No package of the service imports it.
//
// # Stability
//
// The exported names of client, limiter, httplimit, grpclimit, redislimit, middleware and the
// modules below contrib follow semantic versioning: before version 1.0.0 a minor version may change
// them, and the changelog says so. Afterwards only a major version may. Any version may add names, and
// fields to structs: write their literals with names.
//
// memstore.New, its Options and Close, the interface window.Store and [Entry] are stable. Everything
// else in pkg/window and pkg/descriptors may change in any version, and so may middlewaretest. The
// text of errors, the bytes of bodies and the order of headers are not stable. A minor version may
// raise the oldest version of Go. Names and bytes of logs are those of the service of the same version.
package limiter
