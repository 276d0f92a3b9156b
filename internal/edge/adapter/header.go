package adapter

import "github.com/slidegate/slidegate/internal/edge/unary"

// The header fields of a gRPC call that a method may read. They are indexes of unary.Call.Kept.
const (
	RequestID = iota // the id that Envoy gives a client's request
	StreamID         // the id of a client's stream
	StreamEnd        // how that stream has ended
	Compared         // marks calls that another instance makes to compare answers
)

// Kept names these fields, for unary.Options.Keep.
var Kept = []unary.KeptField{
	RequestID: {Name: "x-request-id", Value: atMost},
	StreamID:  {Name: "x-slidegate-stream", Value: func(value string) string { return atMost(present(value)) }},
	StreamEnd: {Name: "x-rls-end", Value: func(value string) string { return present(value[:min(len(value), maxKept)]) }},
	Compared:  {Name: "slidegate-compared", Value: func(string) string { return "1" }},
}

// maxKept bounds a kept value, in bytes. The ids of Envoy have 36.
const maxKept = 128

func atMost(value string) string {
	if len(value) > maxKept {
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
