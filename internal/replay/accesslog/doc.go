// Package accesslog reads access logs: which requests came, when, and what is known of each.
//
// A log says what its format lets it say. An [Attribute] names one property of a request, in the
// words of Envoy's own access log formats, for example REQ(x-tenant) or PATH(NQ). The caller says
// which attributes it wants. A [Record] has a value for each of them, and the value says whether
// the request had none, or whether the format cannot tell.
package accesslog
