// Package edge and the packages in it turn the bytes of a call into plain values, and a verdict into
// the bytes of its answer. They decide nothing. Read them in this order:
//
//   - unary: a gRPC server that answers a call on the goroutine that has read it.
//   - grpcserver: makes the server of the settings: that one, or grpc-go.
//   - adapter: the one way of a call: memory, decode, decide, append, release.
//   - ratelimit and extauthz: the two methods of Envoy, over gRPC and HTTP.
//   - answer and wire: the fields, body and metadata of an answer, and how protobuf encodes them.
//
// No package here imports a store, or knows how a customer source works.
package edge
