package adapter

import (
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/edge/unary"
)

// The header fields of a gRPC call that a method may read. They are indexes of unary.Call.Kept.
const (
	RequestID  = iota // the id that Envoy gives a client's request
	StreamID          // the id of a client's stream
	StreamEnd         // how that stream has ended
	Compared          // marks calls that another instance makes to compare answers
	MCP               // what Envoy's MCP filter has read of a client's request, as JSON
	Cost              // the cost of a stream, if descriptors do not have it
	Upstream          // how many bytes of a stream went to the upstream
	Downstream        // how many bytes of its response went to the client
	Attempts          // how often Envoy has tried the request
)

// Reported returns what a call says of the cost of its stream.
func Reported(from *unary.Call) identity.Reported {
	return identity.Reported{Cost: from.Kept[Cost], Upstream: from.Kept[Upstream], Downstream: from.Kept[Downstream], Attempts: from.Kept[Attempts]}
}

// Kept names these fields, for unary.Options.Keep.
var Kept = []unary.KeptField{
	RequestID:  {Name: "x-request-id", Value: func(value string) string { return atMost(value, maxKept) }},
	StreamID:   {Name: "x-slidegate-stream", Value: func(value string) string { return atMost(present(value), maxKept) }},
	StreamEnd:  {Name: "x-rls-end", Value: func(value string) string { return present(value[:min(len(value), maxKept)]) }},
	Compared:   {Name: "slidegate-compared", Value: func(string) string { return "1" }},
	MCP:        {Name: "x-slidegate-mcp", Value: func(value string) string { return atMost(value, maxMCP) }},
	Cost:       {Name: "x-rls-cost", Value: func(value string) string { return atMost(present(value), maxKept) }},
	Upstream:   {Name: "x-rls-wire", Value: func(value string) string { return atMost(present(value), maxKept) }},
	Downstream: {Name: "x-rls-sent", Value: func(value string) string { return atMost(present(value), maxKept) }},
	Attempts:   {Name: "x-rls-attempts", Value: func(value string) string { return atMost(present(value), maxKept) }},
}

// maxKept bounds a kept value, in bytes. The ids of Envoy have 36. maxMCP bounds that of MCP, which has
// names and addresses that a client chooses.
const (
	maxKept = 128
	maxMCP  = 4 << 10
)

func atMost(value string, most int) string {
	if len(value) > most {
		return ""
	}
	return value
}

// present returns nothing for "-", which some formats of Envoy write for an absent value.
func present(value string) string {
	if value == "-" {
		return ""
	}
	return value
}
