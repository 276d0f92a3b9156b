// Package transport tests both gRPC servers of rls, internal/edge/unary and that of
// grpc-go, with suites of other projects:
//
//   - h2spec tests the rls process with its cases for HTTP/2 and HPACK, including the
//     strict ones (TestH2spec).
//   - The conformance suite of the Connect project calls with clients of its own,
//     some of which break rules (TestConformance).
//   - The interoperability cases of grpc-go call with its client
//     (TestInteroperability).
//
// It is a module of its own, so that the dependencies of these suites stay out of the
// module of rls. TestVersions checks that both modules have the same versions of
// HTTP/2, gRPC and protobuf. Nothing has to be installed: Go fetches and builds the
// suites.
//
// # Exceptions
//
// A list next to the suite has the cases that a server fails, by server, each with its
// reason. If a case in the list passes, the test fails.
package transport
