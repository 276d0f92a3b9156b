// Package daemon makes the service from the settings and runs it: [Run] opens the listeners,
// serves, reloads and drains. Its code joins the other wings: stores, customer source, decider,
// gRPC, HTTP and admin ports, health, probes, TLS, memory bounds, comparison, traces and logs.
//
//   - stores: opens Redis in each scope, with leases and quotas in front of it.
//   - snapshot: keeps the memory store in a file between two processes.
//
// # Life of a process
//
//  1. Run loads the configuration. An error in it is an error of Run, and nothing was served.
//     With rules.source xds it waits for the first rules, unless it is a drop-in that does not wait.
//  2. Run opens every listener. A port in use is an error of Run too. The memory store reads
//     its snapshot. Meanwhile the process is alive and not ready. If the context ends, Run
//     returns at once and the file stays.
//  3. All servers run. If one of them fails, Run stops the others and returns the error.
//  4. When the context ends, the drain begins. For drain.delay the service answers everything,
//     until all proxies know that it stops. Then it sends GOAWAY and lets calls in flight
//     finish, at most for drain.timeout.
//  5. Run closes the store. The memory store writes its snapshot after the last charge.
//
// Health stays SERVING during the drain unless drain.not_serving is set. If the only instance
// says NOT_SERVING, Envoy calls it no more and lets every request pass. /readyz answers 503
// from the start of the drain.
//
// # gRPC
//
// Package grpcserver makes the server. The admin listener also has the streams: reflection, and the
// Watch of health. There grpc-go answers too, and the content type separates calls from pages. Calls there may last
// for ever and end with the drain. They show the health of the gRPC listener, and none of
// them can charge a limit.
//
// # Redis
//
// A service starts without its Redis and connects when Redis answers. It reads files with
// credentials and certificates again for each new connection. If a file cannot be read, its
// last good content stays in use. /healthcheck and /readyz show what the last calls found,
// and never wait for a server.
//
// # TLS
//
// With grpc.tls every TCP listener of gRPC uses TLS. Unix sockets do not, unless
// dropin.unix_sockets_tls is set. Each handshake uses the files as they are then, as connections to
// Redis do.
//
// # Reload
//
// With rules.source xds, the goroutine of the client of package xds makes each response of the
// xDS server a generation, beginning before the ports open. A change of the tiers file
// makes one of the rules that were sent last.
//
// The service reads rules and tiers again when their files change, and on [Options].Reload.
// The new generation replaces the old one at once. If the new files are broken, the old
// generation stays.
package daemon
