package policy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// DefaultPatience is how long a request waits if it meets a full limit of requests in
	// flight. A client that sends its next request at once often comes before the end of its
	// last one is known.
	DefaultPatience = 5 * time.Millisecond

	// tombstone is how long the charges of an ended stream are denied that come after the end.
	// Envoy's rate limit filter waits for an answer for less than that.
	tombstone = 10 * time.Second

	// unnamedHold is how long a request without a stream id holds its place. Nothing can give
	// it back.
	unnamedHold = window.MinHold

	// endedByLimit is the ending of a stream that a limit has denied. Such a stream holds
	// nothing.
	endedByLimit = "request_rate_limited"

	// EndedInOrder is the ending of a stream whose adapter has the answers to all of its charges, so
	// that none can come after the end.
	EndedInOrder = "in_order"
)

// NewStreamID returns the digest that stands for the id of a stream, and zero for an empty id.
// All processes compute the same digest, because they share what streams hold. To find another
// id with the digest of a given one takes 2^64 attempts. A client that could choose ids would
// not have to: it could repeat one.
func NewStreamID(id string) window.StreamID {
	if id == "" {
		return 0
	}
	digest := sha256.Sum256([]byte(id))
	return max(1, window.StreamID(binary.BigEndian.Uint64(digest[:])))
}

// The misuses: calls that use limits of requests in flight in a way that cannot work, as the log
// says it. docs/advanced.md has them too.
const (
	misuseNoStream         = "a request came to an in_flight rule without the id of its stream, so it holds its place for a second: send x-slidegate-stream in initial_metadata of Envoy's rate limit filter"
	misuseNegative         = "is_negative_hits was ignored for an in_flight rule, because it also gives back what denied requests never held: end streams with the descriptor slidegate=end"
	misuseChargeAtEnd      = "an in_flight rule was charged by a call of apply_on_stream_done, which was ignored: end streams with the descriptor slidegate=end"
	misuseEndAtRequest     = "the descriptor slidegate=end came without x-rls-end and was ignored: set apply_on_stream_done, and send x-rls-end in initial_metadata"
	misuseEndWithoutStream = "the descriptor slidegate=end came without the id of its stream and was ignored: send x-slidegate-stream in initial_metadata of the filter that ends streams"
)

// An EndResult is what the end of a stream did.
type EndResult uint8

// The results of the ends of streams.
const (
	// endReleased: the stream held something, which was given back.
	endReleased EndResult = iota
	// endHeldNothing: the stream held nothing.
	endHeldNothing
	// endFailed: the store could not decide. What the stream holds ends with its hold time.
	endFailed
)

// EndResults has the metric label of each EndResult.
var EndResults = [...]string{endReleased: "released", endHeldNothing: "held_nothing", endFailed: "failed"}

// An EndlessError says that a request meets a limit of requests in flight, but that the adapter
// never hears of the ends of streams. Nothing was charged.
type EndlessError struct {
	// Rule is the rule of the limit.
	Rule *Rule
}

func (e *EndlessError) Error() string {
	return fmt.Sprintf("the rule %s counts requests in flight, and the authorization filter does not say when a request has ended: move the rule's descriptor to Envoy's rate limit filter, as in envoy/in-flight.yaml", e.Rule)
}

var errNoEnds = errors.New("the store does not count what streams hold")

// streamState is what a Call knows of limits of requests in flight.
type streamState struct {
	holds   bool            // a check is in flight
	unnamed window.StreamID // stands for a stream without an id; zero: none yet
	misuse  string          // the last; empty: none
	endless *Rule           // the rule of an EndlessError
}

// ending reports whether the request says that its stream has ended. Such a request charges
// only if the stream held something.
func (c *Call) ending() bool { return c.req.Ending != "" && c.req.Stream != 0 && c.req.ends() }

// ends reports whether a descriptor of the request ends the stream.
func (r *Request) ends() bool {
	for i := range r.Descriptors {
		if r.Descriptors[i].Ends {
			return true
		}
	}
	return false
}

// endStream gives back what the stream of the request holds. settles is true if the rest of
// the request is to be charged.
func (c *Call) endStream(ctx context.Context) (settles bool, err error) {
	d := c.decider
	deny := tombstone
	if c.req.Ending == endedByLimit || c.req.Ending == EndedInOrder {
		deny = 0
	}
	held := false
	if d.localEnder != nil {
		held, _ = d.localEnder.End(ctx, c.req.Stream, deny) // it does not fail without a store behind it
	}
	if d.ender == nil && d.localEnder == nil {
		return false, errNoEnds
	}
	if d.ender != nil {
		var shared bool
		if shared, err = d.ender.End(ctx, c.req.Stream, deny); err != nil && !held {
			d.failed(err)
			d.opts.Meters.Ended(endFailed)
			return false, fmt.Errorf("the store could not end a stream: %w", err)
		}
		held = held || shared
	}
	if !held {
		d.opts.Meters.Ended(endHeldNothing)
		return false, nil
	}
	d.opts.Meters.Ended(endReleased)
	d.places.ended()
	for i := range c.req.Descriptors {
		settles = settles || !c.req.Descriptors[i].Ends
	}
	return settles, nil
}

// hold makes a check of a limit in flight hold its place for the stream of the request. It
// reports false if the check cannot be made.
func (c *Call) hold(rule *Rule, check *window.Check, refund bool) (ok bool) {
	st := &c.stream
	switch {
	case c.req.Endless:
		st.endless = rule
		return false
	case refund:
		st.misuse = misuseNegative
		return false
	case c.req.Ending != "":
		st.misuse = misuseChargeAtEnd
		return false
	}
	st.holds = true
	if check.Stream = c.req.Stream; check.Stream != 0 {
		return true
	}
	if check.Cost > 0 {
		st.misuse = misuseNoStream
	}
	if st.unnamed == 0 {
		st.unnamed = max(1, window.StreamID(rand.Uint64())) //nolint:gosec // no client chooses or learns it
	}
	check.Stream = st.unnamed
	check.Limit.Window = min(check.Limit.Window, unnamedHold)
	return true
}

// countMisuse counts and logs the misuse of the request, if there is one.
func (c *Call) countMisuse() {
	if c.req.ends() {
		switch {
		case c.req.Ending == "":
			c.stream.misuse = misuseEndAtRequest
		case c.req.Stream == 0:
			c.stream.misuse = misuseEndWithoutStream
		}
	}
	if c.stream.misuse == "" {
		return
	}
	c.decider.opts.Meters.Misused()
	if log := c.decider.opts.Log; log != nil {
		log.Warn(c.stream.misuse, DomainField(c.req.Domain))
	}
}
