// Package migrate and the packages in it let rls run instead of envoyproxy/ratelimit, or next to
// another service. Read them in this order:
//
//   - compat: the environment of envoyproxy/ratelimit, as settings.
//   - compat/stats: its metrics, for statsd and Prometheus.
//   - compat/pages: its debug pages /stats, /rlconfig and /debug/pprof/.
//   - compare: asks the other service about the same requests, and reports where answers differ.
//
// No decision waits for a package here.
package migrate
