package accesslog

import "strings"

// An Attribute is one property of a request: an operator of Envoy's access log formats without its
// percent signs. Names of headers are lower-case.
type Attribute string

// The attributes without an argument that more than one package needs.
const (
	StartTime Attribute = "START_TIME"
	Duration  Attribute = "DURATION" // of the request, in milliseconds
	Method    Attribute = "REQ(:method)"
	Path      Attribute = "REQ(:path)" // with the query string
	PathOnly  Attribute = "PATH(NQ)"   // without it
	Authority Attribute = "REQ(:authority)"
	Client    Attribute = "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"
	Peer      Attribute = "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT"
	Status    Attribute = "RESPONSE_CODE"
	Flags     Attribute = "RESPONSE_FLAGS"
	Details   Attribute = "RESPONSE_CODE_DETAILS"
	RouteName Attribute = "ROUTE_NAME"
	Cluster   Attribute = "UPSTREAM_CLUSTER"
	Subject   Attribute = "DYNAMIC_METADATA(envoy.filters.http.ratelimit:subject)"
	Tier      Attribute = "DYNAMIC_METADATA(envoy.filters.http.ratelimit:tier)"
	Rule      Attribute = "DYNAMIC_METADATA(envoy.filters.http.ratelimit:rule)"
)

// Header returns the attribute of a request header.
func Header(name string) Attribute { return Attribute("REQ(" + strings.ToLower(name) + ")") }

// Metadata returns the attribute of dynamic metadata, below a namespace.
func Metadata(namespace string, path ...string) Attribute {
	return Attribute("DYNAMIC_METADATA(" + strings.Join(append([]string{namespace}, path...), ":") + ")")
}

// String returns the operator as a log format has it, with its percent signs.
func (a Attribute) String() string { return "%" + string(a) + "%" }
