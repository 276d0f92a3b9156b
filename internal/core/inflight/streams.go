package inflight

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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

// The misuses: calls that use limits of requests in flight or budgets in a way that cannot work, as the
// log says it. docs/advanced.md has them too.
const (
	MisuseNoStream         = "a request came to an in_flight rule without the id of its stream, so it keeps its slot for a second: send x-slidegate-stream in initial_metadata of Envoy's rate limit filter"
	MisuseNegative         = "is_negative_hits was ignored for an in_flight rule or a budget, because it also gives back what denied requests never took: end streams with the descriptor slidegate=end"
	MisuseChargeAtEnd      = "an in_flight rule was charged by a call of apply_on_stream_done, which was ignored: end streams with the descriptor slidegate=end"
	MisuseEndAtRequest     = "the descriptor slidegate=end came without x-rls-end and was ignored: set apply_on_stream_done, and send x-rls-end in initial_metadata"
	MisuseBudgetNoStream   = "a request came to a budget without the id of its stream, so it has cost its estimate: send x-slidegate-stream in initial_metadata of the filter that asks rls"
	MisuseBudgetAtEnd      = "a budget was charged by a call of apply_on_stream_done without the descriptor slidegate=end, so what the stream has reserved is charged too: add the descriptor"
	MisuseEstimate         = "an estimate was no number from 1 to max of its budget, so reserve or max of the budget was taken: bound the estimate in Envoy, as in envoy/budgets.yaml"
	MisuseCost             = "the end of a stream had a cost that is no number from 0 to 9007199254740992, so its cost is unknown: correct hits_addend or x-rls-cost"
	MisuseEndWithoutStream = "the descriptor slidegate=end came without the id of its stream and was ignored: send x-slidegate-stream in initial_metadata of the filter that ends streams"
)

// BudgetHoldsFull is the log line about [window.Decision.HoldsFull].
const BudgetHoldsFull = "a budget has denied a request because too many requests have reserved a part of it, although it is not used up: shorten hold, or count by more keys"

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

var errNoEnds = errors.New("the store does not count what streams hold")

// Releases give back what streams hold in two stores. Each may be nil.
type Releases struct {
	Store, Local window.Releaser
}

// AtOnce reports whether Release waits only for short locks.
func (r Releases) AtOnce() bool {
	_, ready := r.Store.(window.ReadyReleaser)
	return ready && r.Local == nil
}

// A reserver is a local store that knows what streams have reserved there: the shared store charges it when they end.
type reserver interface {
	Reserved(stream window.StreamID) []window.Check
	Settled(stream window.StreamID)
}

// Release ends the stream of a request: it gives back what the stream holds in flight, and settles what it
// has reserved. costs are what the request says that it has cost. settled is what the shared store has
// changed. After an error the stream may still hold something, until its hold time ends.
func (r Releases) Release(ctx context.Context, req *identity.Request, costs []window.Check) (settled window.Settled, result EndResult, err error) {
	end := window.Ending{
		Stream: req.Stream, Deny: Tombstone, Costs: costs,
		Bytes: rules.MaxCost, Unreached: req.Reported.Upstream == "0", Denied: req.Ending == endedByLimit,
	}
	if end.Denied || req.Ending == EndedInOrder {
		end.Deny = 0
	}
	if sent, err := strconv.ParseUint(req.Reported.Downstream, 10, 64); err == nil {
		end.Bytes = min(sent, rules.MaxCost)
	}
	released := false
	local, _ := r.Local.(reserver)
	if local != nil && !end.Denied && !end.Unreached {
		for _, c := range local.Reserved(req.Stream) {
			i := slices.IndexFunc(costs, func(o window.Check) bool { return o.Log() == c.Log() })
			if i < 0 {
				end.Costs = append(slices.Clip(end.Costs), c)
			} else if costs[i].Mode == window.Enforce {
				costs[i].Cost = c.Cost
			}
		}
	}
	if r.Local != nil {
		there := end
		there.Costs, there.Denied = costs, true // a stream that it has not admitted costs nothing there
		was, _ := r.Local.End(ctx, there)
		released = was.Released // a local store has no error
	}
	if r.Store == nil && r.Local == nil {
		return settled, EndNothing, errNoEnds
	}
	if r.Store != nil {
		settled, err = r.Store.End(ctx, end)
		if err != nil && (!released || len(end.Costs) > 0) {
			return settled, EndFailed, err
		}
		if local != nil {
			local.Settled(req.Stream)
		}
	}
	for i := range settled.Logs {
		if l := &settled.Logs[i]; l.Cost >= len(costs) {
			l.Cost = -1 // the request does not name it
		}
	}
	if !released && !settled.Released {
		return settled, EndNothing, nil
	}
	return settled, EndReleased, nil
}

// A Stream is the state of one request for limits of requests in flight and for budgets. The zero value is
// for a request without them.
type Stream struct {
	// Holds is true if a check is in flight, and Reserves if one has a budget.
	Holds, Reserves bool

	unnamed window.StreamID // stands for a stream without an id; zero: none yet
	misuse  string          // the last; empty: none
}

// Hold makes a check of a limit in flight hold its slot for the stream of the request. It
// reports false if the check cannot be made.
func (st *Stream) Hold(req *identity.Request, check *window.Check, refund bool) (ok bool) {
	switch {
	case refund:
		st.misuse = MisuseNegative
		return false
	case req.Ending != "":
		st.misuse = MisuseChargeAtEnd
		return false
	}
	st.Holds = true
	if !st.name(req, check) {
		if check.Cost > 0 {
			st.misuse = MisuseNoStream
		}
		check.Limit.Window = min(check.Limit.Window, unnamedHold)
	}
	return true
}

// name gives a check the stream of the request. It reports false if it has none; another id then stands
// for it.
func (st *Stream) name(req *identity.Request, check *window.Check) (ok bool) {
	if check.Stream = req.Stream; check.Stream != 0 {
		return true
	}
	if st.unnamed == 0 {
		st.unnamed = max(1, window.StreamID(rand.Uint64())) //nolint:gosec // no client chooses or learns it
	}
	check.Stream = st.unnamed
	return false
}

// Reserve makes a check under a budget reserve what a descriptor may cost, for the stream of the request. If
// the stream has ended, the check is for what it has cost, or, if that is unknown, for an estimate: see
// [window.Ending]. It returns the cost, and false if there is nothing to check.
func (st *Stream) Reserve(req *identity.Request, d *identity.Descriptor, b *rules.Budget, check *window.Check) (cost uint64, ok bool) {
	cost, said, valid := priceOf(req, d)
	switch {
	case d.Refund:
		st.misuse = MisuseNegative
		return 0, false
	case req.Ending != "":
		if !req.EndsStream() {
			st.misuse = MisuseBudgetAtEnd
		}
		if said && !valid {
			st.misuse = MisuseCost
		}
		if said && valid {
			return cost, true
		}
		check.Mode = window.Enforce
		return b.Reserve, req.Stream != 0 && req.EndsStream() && reached(req)
	}
	st.Reserves, check.Budget = true, &b.Budget
	named := st.name(req, check)
	if said && valid && cost == 0 && !named {
		return 0, true // a question
	}
	switch cost, valid = b.Estimate(cost, said); {
	case !valid:
		st.misuse = MisuseEstimate
	case !named:
		st.misuse = MisuseBudgetNoStream
	}
	return cost, true
}

// reached reports whether the ended stream of a request has sent something to the upstream.
func reached(req *identity.Request) bool {
	sent, err := strconv.ParseUint(req.Reported.Upstream, 10, 64)
	return err == nil && sent > 0 && req.Ending != endedByLimit
}

// priceOf returns the cost of a descriptor. said is false if the call has none, and valid if it is no number
// up to [rules.MaxCost]. A fraction is rounded up.
func priceOf(req *identity.Request, d *identity.Descriptor) (cost uint64, said, valid bool) {
	text := req.Reported.Cost
	switch {
	case !d.Unpriced:
		return d.Cost, true, d.Cost <= rules.MaxCost
	case text == "":
		return 0, false, false
	}
	exact, err := strconv.ParseFloat(text, 64)
	if err != nil || !(exact >= 0 && exact <= rules.MaxCost) || strings.Trim(text, ".0123456789eE+-") != "" {
		return 0, true, false
	}
	return uint64(math.Ceil(exact)), true, true
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
