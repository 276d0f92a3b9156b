// Package transport holds both gRPC servers of rls, internal/unary and that of
// grpc-go, to suites that others have written:
//
//   - h2spec asks the rls process about every rule of HTTP/2 and of HPACK that it
//     knows, the strict ones too (TestH2spec).
//   - The conformance suite of the Connect project calls with clients of its own,
//     some of which know no manners (TestConformance).
//   - The interoperability cases of grpc-go call with its client
//     (TestInteroperability).
//
// It is a module of its own, so that what these suites need does not come into
// the module that rls is built from; TestVersions sees to it that both mean the
// same HTTP/2, gRPC and protobuf. Nothing has to be installed: Go fetches and
// builds what go.mod names.
//
// # Exceptions
//
// What a server does not pass is in the list beside the suite, by server, each
// with its reason. A case in the list that passes fails the test: a list that
// says too much is as wrong as one that says too little.
package transport
