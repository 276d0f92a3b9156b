package replay

import (
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// A Question is one call that Envoy makes for a request.
type Question struct {
	Domain string
	// Descriptors have their own costs. Values of secret entries are digests or placeholders, never
	// API keys.
	Descriptors []decide.Descriptor
	// Subject is the id of the caller in the tiers file, if the log has it. Empty: the descriptors
	// say who calls.
	Subject string
	// AtEnd is true if Envoy asks when the stream has ended.
	AtEnd bool
}

// A Describer makes the questions that Envoy asks about a request.
type Describer interface {
	// Wants returns the attributes that Describe reads, in the order of the record's values.
	Wants() []accesslog.Attribute
	// Describe appends the questions of a request, none if Envoy asks nothing. The questions are
	// valid until the next call. It is not safe for concurrent use.
	Describe(dst []Question, r *accesslog.Record) []Question
	// Unreported returns what the logs read so far do not report, and what was assumed instead.
	Unreported() []Unreported
}

// An Unreported is an attribute that decides descriptors, and that a log does not have.
type Unreported struct {
	Attribute accesslog.Attribute `json:"attribute"`
	// Location is where the configuration needs it, such as envoy.yaml:120.
	Location string `json:"place"`
	// Effect is a sentence: what was assumed instead.
	Effect   string `json:"effect"`
	Requests uint64 `json:"requests"`
}
