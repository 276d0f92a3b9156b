// Package daemon wires the service and runs it: [Run] opens every listener,
// serves, reloads, and drains.
//
// # Life of a process
//
//  1. The configuration is loaded; anything wrong with it is an error of Run and
//     nothing was served.
//  2. Every listener is opened. A port in use is an error of Run too.
//  3. All servers run. When one of them fails, all stop, and Run returns why.
//     A memory store has read its snapshot by then.
//  4. When the context ends, the drain begins: for drain.delay everything is
//     still answered, so that proxies that have not heard yet lose nothing; then
//     GOAWAY is sent and calls in flight finish, at most for drain.timeout.
//  5. The store is closed. A memory store writes its snapshot: nothing is charged
//     any more.
//
// Health stays SERVING through the drain unless drain.not_serving is set. A lone
// instance that says NOT_SERVING makes Envoy send it nothing more and let every
// request pass. The page /readyz says no from the start of the drain.
//
// # gRPC
//
// The settings choose who speaks it: grpc-go, or package unary, which has the
// adapters answer on the goroutine that reads. Services, health, codec and bounds
// are the same. What streams, reflection and the Watch of health, is also on the
// admin listener, where grpc-go answers next to the pages: calls there are told by
// their content type, may last for ever, and end with the drain. They show the same
// health as the main listener has, and nothing there can spend a quota.
//
// # Redis
//
// A service starts without its Redis and finds it later. Files with credentials
// and certificates are looked at for each new connection; what cannot be read
// leaves what was read before. The pages /healthcheck and /readyz tell what the
// last calls have shown of the servers, and never wait for one.
//
// # TLS
//
// With grpc.tls every TCP listener of gRPC speaks TLS, and unix sockets do not. Each
// handshake takes what the files hold then, as connections to Redis do.
//
// # Reload
//
// Rules and tiers are read again when their files change and on [Reload]. The new
// generation replaces the old one at once; a broken one is refused, and the last
// good one stays.
package daemon
