// Package ending ends streams: it gives back what they hold in flight, and settles what they have reserved of budgets.
package ending

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

// What is known of a stream is the value <prefix>{<16 hex digits>}:s.
const (
	StreamBegins = "{"
	streamEnds   = "}:s"
)

// noteSlack is how much longer than its holds a stream is noted on a cluster, because the
// clocks of two servers differ.
const noteSlack = time.Minute

// Ends are the calls for streams of one store. It is safe for concurrent use if its functions are.
type Ends struct {
	Prefix     string         // of all keys
	Streams    string         // what the names of streams begin with; empty on a cluster
	Take, Ends *script.Script // take.lua, streams.lua
	// Run calls a script for keys on one slot.
	Run func(ctx context.Context, of *script.Script, keys []string, argv ...any) (reply any, err error)
	// Unlink removes a key.
	Unlink func(ctx context.Context, key string) error
	// Corrupt is called for each value that is removed.
	Corrupt func(win time.Duration)
}

// streamName returns the name of the record of a stream.
func (e *Ends) streamName(id window.StreamID) string {
	return fmt.Sprintf("%s%s%016x%s", e.Prefix, StreamBegins, uint64(id), streamEnds)
}

// End ends a stream, by an ending that is valid.
func (e *Ends) End(ctx context.Context, end *window.Ending) (settled window.Settled, err error) {
	deny := max(min(end.Deny, window.MaxWindow), 0)
	if e.Streams == "" {
		return e.endAcross(ctx, end, deny)
	}
	name, costs := e.streamName(end.Stream), costsOf(end)
	if len(costs) == 0 {
		reply, err := runFor[int64](ctx, e, name, "end", end.Stream, deny)
		if err != nil || reply >= 0 {
			settled.Released, err = e.released(reply, err)
			return settled, err
		}
	}
	return e.settle(ctx, name, &settlement{end: end, deny: deny, costs: costs})
}

// drop ends a stream in one log.
func (e *Ends) drop(ctx context.Context, key string, id window.StreamID, deny time.Duration) (released bool, err error) {
	return e.released(runFor[int64](ctx, e, key, "drop", id, deny))
}

// released reads what streams.lua returns for logs in which it has ended a stream.
func (e *Ends) released(reply int64, replyErr error) (released bool, err error) {
	for range reply / 2 {
		e.Corrupt(window.MinHold) // the holds are not known: they may have had any
	}
	return reply%2 == 1, replyErr
}

// NewStream is the answer of Note for a stream of which nothing was known. Such a stream is not
// denied and holds nothing, so the script need not look for what it holds: see holds.lua.
const NewStream = math.MaxUint32

// Note records, on a cluster, that a stream may soon hold something in logs, as [script.Group.Stream] names them. It returns for how
// many milliseconds the stream is denied, zero if it is not, or NewStream.
func (e *Ends) Note(ctx context.Context, id window.StreamID, hold time.Duration, logs []string) (denied uint32, err error) {
	millis, err := runFor[int64](ctx, e, e.streamName(id), "note", id, hold+noteSlack, logs...)
	if millis < 0 {
		return NewStream, err
	}
	return uint32(min(millis, NewStream-1)), err
}

// runFor calls streams.lua for one key.
func runFor[T any](ctx context.Context, e *Ends, key, verb string, id window.StreamID, d time.Duration, more ...string) (result T, err error) {
	stream := binary.BigEndian.AppendUint64(nil, uint64(id))
	argv := []any{verb, string(stream), strconv.FormatInt(d.Microseconds(), 10)}
	for _, m := range more {
		argv = append(argv, m)
	}
	return resultOf[T](e.Run(ctx, e.Ends, []string{key}, argv...))
}

// resultOf returns a reply of a type.
func resultOf[T any](reply any, err error) (result T, _ error) {
	if err != nil {
		return result, err
	}
	result, ok := reply.(T)
	if !ok {
		return result, &failure.Error{Class: failure.Reply, Err: fmt.Errorf("reply is %T, want %T", reply, result)}
	}
	return result, nil
}
