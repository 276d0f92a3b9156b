// Package tracing sends spans of decisions to a receiver of OTLP, over gRPC or HTTP. It has the
// variables of OpenTelemetry (OTEL_…), the [Tracer] with its exporter and sampler, and the span of
// a [Call]: its parent, attributes, the child span of the store, and exemplars.
//
// [Open] reads the standard variables of OpenTelemetry. It refuses wrong values that decide where
// spans go, and those that the libraries would print although they may be secrets. It returns nil if
// traces are off, so nothing else runs then.
//
// # Spans
//
// Each call that decides a request has a span of kind server, with the method as its name.
// Its parent comes from the metadata of the call. Envoy sends it there. [Tracer.Begin] begins the
// span and puts it into a context. The decider and the store describe the decision through that
// context. A request that Redis has decided has a child span named "store". It says how many
// requests shared the call to Redis.
//
// Attributes name rules, tiers and outcomes, which come from the configuration. They have no
// value of a request, no subject and no address, because spans go to another service.
//
// # Bounds
//
// Ended spans wait in a queue of OTEL_BSP_MAX_QUEUE_SIZE spans, by default 2048. If it is full,
// further spans are dropped. No call waits for the receiver. [Tracer.Close] sends what waits, for
// two seconds at most.
package tracing
