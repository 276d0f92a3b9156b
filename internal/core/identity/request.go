package identity

import (
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Request is a call of an adapter: do the limits of these descriptors have room?
type Request struct {
	Domain string
	// Descriptors are decided together. The Decider trims the values of their entries
	// in place and writes each address in one form.
	Descriptors []Descriptor
	// Tier, unless empty, replaces the tier of every subject. "rls explain" sets it.
	Tier string
	// Caller is the subject that the adapter has found already. Nil: it has found none.
	Caller *Caller
	// Plain has the API keys themselves, for a source that needs them. Nil for all
	// other sources.
	Plain []PlainKey
	// Stream names the client's stream, for limits of requests in flight. Zero: it is unknown.
	Stream window.StreamID
	// Ending says how the stream has ended. It is empty while the stream is open. Every cost of
	// a stream that has ended is a usage update, whatever its rule says.
	Ending string
	// Exceeds names the bound that the message of the request exceeds, and says what to do. Then
	// Descriptors may be incomplete and Domain empty. Empty: no bound is exceeded.
	Exceeds string
	// Reported is what the call says of the cost of the stream, besides the costs of descriptors.
	Reported Reported
	// ID is the id of the client's request, if Envoy sends it, and Route the route that an adapter
	// knows. People read them; they decide nothing. They are empty if unknown.
	ID, Route string
}

// Reported has the header fields of a call that say what a stream costs, for budgets. Each may be empty.
type Reported struct {
	// Cost is a number: the cost of the descriptors that are [Descriptor.Unpriced].
	Cost string
	// Upstream and Downstream are how many bytes went to the upstream, and of the response to the client. Attempts is how
	// often Envoy has tried the request.
	Upstream, Downstream, Attempts string
}

// A Caller is the answer that an adapter got for one API key.
type Caller struct {
	Fingerprint string
	Answer      tier.Answer
}

// A PlainKey is an API key with the fingerprint that stands for it in descriptors.
type PlainKey struct{ Fingerprint, Key string }

// A Descriptor is one descriptor of a request with its cost.
type Descriptor struct {
	Entries descriptors.Descriptor
	// Cost is the number of hits to spend. Zero spends nothing: it asks what remains.
	Cost uint64
	// Unpriced says that the caller has sent no cost. Cost is then the default.
	Unpriced bool
	// Override replaces the limits of the matching rule, and is a limit if no rule
	// matches. All entries name its log.
	Override *window.Limit
	// Refund gives the cost back, the newest hits first, never below zero. It is always
	// allowed.
	Refund bool
	// Ends says that the stream of the request has ended. If the request has an Ending, no rule
	// matches the descriptor, and the other descriptors are charged only if the stream had a
	// hold.
	Ends bool
}

// EndOfStream returns the descriptor that says that the stream of the request has ended. Envoy's
// configuration has its key and its value, so no client can send them.
func EndOfStream() Descriptor {
	return Descriptor{Entries: descriptors.Descriptor{{Key: endKey, Value: endValue}}, Ends: true}
}

// IsEndOfStream reports whether entries are those of [EndOfStream].
func IsEndOfStream(entries descriptors.Descriptor) bool {
	return len(entries) == 1 && entries[0].Key == endKey && entries[0].Value == endValue
}

const (
	endKey   = "slidegate"
	endValue = "end"
)

// EndsStream reports whether a descriptor of the request ends the stream.
func (r *Request) EndsStream() bool {
	for i := range r.Descriptors {
		if r.Descriptors[i].Ends {
			return true
		}
	}
	return false
}

// is reports whether a fingerprint or an id is the caller's. c may be nil.
func (c *Caller) is(value string, byID bool) bool {
	switch {
	case c == nil:
		return false
	case byID:
		return c.Answer.Subject != nil && c.Answer.Subject.ID == value
	default:
		return c.Fingerprint == value
	}
}

// plain returns the API key with a fingerprint, or "" if the request does not have it.
func (r *Request) plain(fingerprint string) string {
	for i := range r.Plain {
		if r.Plain[i].Fingerprint == fingerprint {
			return r.Plain[i].Key
		}
	}
	return ""
}

// valueOf returns the value of an entry of the descriptor, else of any descriptor
// of the request.
func valueOf(key string, req *Request, entries descriptors.Descriptor) (value string, ok bool) {
	for _, e := range entries {
		if e.Key == key {
			return e.Value, true
		}
	}
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key == key {
				return e.Value, true
			}
		}
	}
	return "", false
}

// ClientAddress returns the client's address from the first descriptor of the request
// that has it, or an empty text.
func ClientAddress(req *Request) string {
	masked := ""
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			switch e.Key {
			case rules.KeyAddress:
				return e.Value
			case rules.KeyMaskedAddress:
				masked = e.Value
			}
		}
	}
	return masked
}
