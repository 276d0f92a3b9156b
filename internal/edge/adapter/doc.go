// Package adapter is the way of a request through an adapter, from a transport of gRPC or from
// HTTP. A [Handler] takes memory for the request out of a pool, decodes the request, has it
// decided, appends the answer, and puts the memory back. [Codec] is the codec of grpc-go that
// leaves messages to the adapters. [Kept] names the headers that adapters keep: x-request-id,
// x-slidegate-stream, x-slidegate-mcp, x-rls-end, x-rls-cost, x-rls-wire, x-rls-sent, and the mark of
// compared calls.
//
// # Transports
//
//   - [Handler.Handle] answers calls of package unary. Without waiting it answers on the
//     goroutine that reads the connection. A call that is not decided then is asked again
//     with waiting, on a separate goroutine, and continues where it stopped.
//   - [Handler.Register] registers the method on a server of grpc-go or of package unary, which
//     must have been made with [Codec].
//   - An adapter that reads HTTP uses [Handler.Get] and [Handler.Put] itself.
//
// # Panics
//
// A Handler does not recover. The caller recovers, once for all transports. The memory of a
// request that panicked is never used again.
package adapter
