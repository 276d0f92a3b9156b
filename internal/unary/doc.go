// Package unary is a gRPC server for unary methods: HTTP/2 on the Framer and hpack
// of golang.org/x/net/http2, one goroutine for each connection, and answers that
// leave together.
package unary
