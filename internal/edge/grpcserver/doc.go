// Package grpcserver makes the gRPC server that the settings choose: grpc-go, or package unary,
// whose adapters answer on the goroutine that reads the connection. Services, health, codec and
// bounds are the same. It has TLS handshakes and their errors, a bounded gzip, interceptors,
// keepalive, and the reflection for the admin port ([Describe]).
package grpcserver
