// Package edge and the packages in it turn the bytes of a call into plain values, and a verdict into
// the bytes of its answer. They decide nothing. Read them in this order:
//
//   - unary: a gRPC server that answers a call on the goroutine that has read it.
//   - coroutine: runs calls that pause while a store is asked about several.
//   - grpcserver: makes the server of the settings: that one, or grpc-go.
//   - adapter: the one way of a call: memory, decode, decide, append, release.
//   - ratelimit: the method ShouldRateLimit of Envoy, over gRPC and as JSON over HTTP.
//   - extauthz: the method Check of Envoy, over gRPC and HTTP; it finds API keys in requests.
//   - answer: the header fields and the body of an answer.
//   - answer/dynamic: the dynamic metadata of an answer.
//   - wire: the encoding of protobuf, without knowledge of any message.
//
// No package here imports a store, or knows how a customer source works.
package edge
