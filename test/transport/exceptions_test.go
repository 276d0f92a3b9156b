package transport

// h2specExceptions are the cases of h2spec that rls does not pass with
// grpc.transport unary, each with the reason.
var h2specExceptions = map[string]string{}

// cardinality is why a call with no message, or with two, is answered otherwise than
// the suite wants.
const cardinality = "the table of gRPC's codes has UNIMPLEMENTED for it, grpc-go answers INTERNAL"

// conformanceExceptions are the patterns of the cases of the conformance suite that
// a server does not pass, by server, each with the reason.
var conformanceExceptions = map[string]map[string]string{
	standard: {
		"gRPC Unexpected Requests/**/unary/no-request":        cardinality,
		"gRPC Unexpected Requests/**/unary/multiple-requests": cardinality,
	},
}
