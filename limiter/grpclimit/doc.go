// Package grpclimit has server interceptors for gRPC that ask a [limiter.Limiter] about each call.
// A [Key] makes entries from metadata, the method or the address. [Limit] has the interceptors of
// unary calls and of streams, and answers with status, details, header and trailer.
//
//	limit, err := grpclimit.New(l, grpclimit.Options{
//		Domain:      "shop",
//		Descriptors: [][]grpclimit.Key{{grpclimit.Metadata("api_key", "x-api-key")}},
//	})
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A [Key] makes one entry from a call: from its metadata, the address of the client, the method, a
// constant or a function. Each list of keys makes one descriptor.
//
// A denied call gets the status RESOURCE_EXHAUSTED. Its details are google.rpc.QuotaFailure, and
// google.rpc.RetryInfo if a wait helps. Its trailer has the fields that an HTTP answer has as headers,
// with retry-after, and grpc-retry-pushback-ms for clients with a retry policy. Calls that pass have
// the fields in their header.
//
// [Limit.Stream] charges a stream once, when it begins. [Limit.Messages] charges each message that the
// client sends instead.
package grpclimit
