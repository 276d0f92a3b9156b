package inflight

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// Retry is the wait that answers report if a limit of requests in flight is full. It is
	// the shortest that they can report: any of these requests may end at any time.
	Retry = time.Second

	// DefaultPatience is how long a request waits if it finds a full limit of requests in
	// flight. A client that sends its next request at once often comes before the end of its
	// last one is known.
	DefaultPatience = 5 * time.Millisecond

	// Tombstone is how long the store denies charges that arrive after the end of their stream.
	// Envoy's rate limit filter waits less than that for an answer.
	Tombstone = 10 * time.Second

	// unnamedHold is how long a request without a stream id holds its slot. Nothing can give
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
	MisuseNoStream         = "a request came to an in_flight rule without the id of its stream, so it keeps its slot for a second: send x-slidegate-stream in initial_metadata of Envoy's rate limit filter"
	MisuseNegative         = "is_negative_hits was ignored for an in_flight rule, because it also gives back what denied requests never took: end streams with the descriptor slidegate=end"
	MisuseChargeAtEnd      = "an in_flight rule was charged by a call of apply_on_stream_done, which was ignored: end streams with the descriptor slidegate=end"
	MisuseEndAtRequest     = "the descriptor slidegate=end came without x-rls-end and was ignored: set apply_on_stream_done, and send x-rls-end in initial_metadata"
	MisuseEndWithoutStream = "the descriptor slidegate=end came without the id of its stream and was ignored: send x-slidegate-stream in initial_metadata of the filter that ends streams"
)

// An EndResult is what the end of a stream did.
type EndResult uint8

// The results of the ends of streams.
const (
	// EndReleased: the slots of the stream were given back.
	EndReleased EndResult = iota
	// EndNothing: the stream had no slot.
	EndNothing
	// EndFailed: the store could not decide. What the stream holds ends with its hold time.
	EndFailed
)

// EndResults has the metric label of each EndResult.
var EndResults = [...]string{EndReleased: "released", EndNothing: "held_nothing", EndFailed: "failed"}

// A NoEndError says that a limit of requests in flight applies, but that the adapter does not learn
// when streams end. Nothing was charged.
type NoEndError struct {
	// Rule is the rule of the limit.
	Rule *rules.Rule
}

func (e *NoEndError) Error() string {
	return fmt.Sprintf("the rule %s counts requests in flight, and the authorization filter does not say when a request has ended: move the rule's descriptor to Envoy's rate limit filter, as in envoy/in-flight.yaml", e.Rule)
}

var errNoEnds = errors.New("the store does not count what streams hold")

// Releases give back what streams hold in two stores. Each may be nil.
type Releases struct {
	Store, Local window.Releaser
}

// Release gives back what the stream of a request holds, because it has ended. After an error the
// stream may still hold something, until its hold time ends.
func (r Releases) Release(ctx context.Context, req *identity.Request) (EndResult, error) {
	end := window.Ending{Stream: req.Stream, Deny: Tombstone}
	if req.Ending == endedByLimit || req.Ending == EndedInOrder {
		end.Deny = 0
	}
	released := false
	if r.Local != nil {
		local, _ := r.Local.End(ctx, end) // a local store has no error
		released = local.Released
	}
	if r.Store == nil && r.Local == nil {
		return EndNothing, errNoEnds
	}
	if r.Store != nil {
		shared, err := r.Store.End(ctx, end)
		if err != nil && !released {
			return EndFailed, err
		}
		released = released || shared.Released
	}
	if !released {
		return EndNothing, nil
	}
	return EndReleased, nil
}

// A Stream is the state of one request for limits of requests in flight. The zero value is for a
// request without such limits.
type Stream struct {
	// Holds is true if a check is in flight.
	Holds bool
	// NoEnd is the rule of a [NoEndError]. Nil: there is none.
	NoEnd *rules.Rule

	unnamed window.StreamID // stands for a stream without an id; zero: none yet
	misuse  string          // the last; empty: none
}

// Hold makes a check of a limit in flight hold its slot for the stream of the request. It
// reports false if the check cannot be made.
func (st *Stream) Hold(req *identity.Request, rule *rules.Rule, check *window.Check, refund bool) (ok bool) {
	switch {
	case req.NoEndSignal:
		st.NoEnd = rule
		return false
	case refund:
		st.misuse = MisuseNegative
		return false
	case req.Ending != "":
		st.misuse = MisuseChargeAtEnd
		return false
	}
	st.Holds = true
	if check.Stream = req.Stream; check.Stream != 0 {
		return true
	}
	if check.Cost > 0 {
		st.misuse = MisuseNoStream
	}
	if st.unnamed == 0 {
		st.unnamed = max(1, window.StreamID(rand.Uint64())) //nolint:gosec // no client chooses or learns it
	}
	check.Stream = st.unnamed
	check.Limit.Window = min(check.Limit.Window, unnamedHold)
	return true
}

// Misuse describes how the request uses limits of requests in flight in a way that cannot work. It is
// empty for correct use.
func (st *Stream) Misuse(req *identity.Request) string {
	if req.EndsStream() {
		switch {
		case req.Ending == "":
			return MisuseEndAtRequest
		case req.Stream == 0:
			return MisuseEndWithoutStream
		}
	}
	return st.misuse
}
