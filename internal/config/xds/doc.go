// Package xds gets rules from an xDS server, such as Envoy Gateway. It has the [Client] of the
// aggregated stream (ADS) with versions, nonces, ACK, NACK and reconnects. It has a codec that
// bounds messages, and [Decode], which turns RateLimitConfig into domains and descriptors for a
// [Loader].
//
// # Terms
//
//   - The xDS server holds the rules of many services. It chooses those of one service
//     by the id of its node.
//   - A resource is one message RateLimitConfig: the rules of one domain.
//   - A response has all resources. A domain that is not in it is gone ("state of the world").
//   - The client accepts a response (ACK) or refuses it with a reason (NACK).
//   - A version is what the server calls a response. The client does not compare versions: a
//     server may count from 1 again.
//
// # Life of a Client
//
//  1. [Client.Run] connects and opens one stream of the method StreamAggregatedResources. The
//     first request has the node, the type of resources, and no version.
//  2. The goroutine that reads the stream keeps only the newest response.
//  3. Run takes that response, decodes it and hands it to the [Loader]. If that fails, Run
//     refuses the response, and the Loader keeps the last good rules. A server may send a
//     refused response again at once. Then Run does not load it again, and waits before it
//     answers.
//  4. After a load, Run waits as long as the load took. So loads use half of one CPU at most,
//     however often the server sends.
//  5. If the stream ends, Run connects again. The waits grow from a second to a
//     minute, and start again after a stream that had a response. Each connection resolves the
//     name of the server and uses the files of certificates as they are then.
//
// If the server disappears without closing the connection, probes of TCP find that out within
// about a minute. If the server is frozen, pings of HTTP/2 find that out after about five minutes:
// grpc-go servers disconnect clients that ping more often.
//
// # Bounds
//
// 64 MiB bound a message. Since two bytes of it can become hundreds in
// memory, [Decode] counts before it decodes: at most 262,144 messages in one response, or one
// for each 25 bytes of it, at most 100 levels deep. The codec of the stream counts resources.
package xds
