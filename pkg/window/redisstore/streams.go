package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

var _ window.Releaser = (*Store)(nil)

// What is known of a stream is the value <prefix>{<16 hex digits>}:s.
const (
	streamBegins = "{"
	streamEnds   = "}:s"
)

// noteSlack is how much longer than its holds a stream is noted on a cluster, because the
// clocks of two servers differ.
const noteSlack = time.Minute

// streamName returns the name of the record of a stream.
func (s *Store) streamName(id window.StreamID) string {
	return fmt.Sprintf("%s%s%016x%s", s.opts.Prefix, streamBegins, uint64(id), streamEnds)
}

// End implements [window.Releaser] with one call to Redis, or with two if the stream has reserved something and the end
// names no cost. On a cluster it takes one call for the
// stream, and then one for each log in which it may hold something, all at once. End returns
// before the deadline of ctx, and after [Options.Timeout] at the latest. An end has no effect
// twice, so the caller may repeat it after an error.
func (s *Store) End(ctx context.Context, end window.Ending) (settled window.Settled, err error) {
	if err := end.Valid(); err != nil {
		return settled, fmt.Errorf("redisstore: %w", err)
	}
	deny := max(min(end.Deny, window.MaxWindow), 0)
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if s.cluster == nil {
		settled, err = s.endHere(ctx, &end, deny)
		return settled, s.count(err)
	}
	settled, err = s.endAcross(ctx, &end, deny)
	return settled, s.count(err)
}

// endHere is End on a single server.
func (s *Store) endHere(ctx context.Context, end *window.Ending, deny time.Duration) (settled window.Settled, err error) {
	name, costs := s.streamName(end.Stream), costsOf(end)
	if len(costs) == 0 {
		reply, err := runFor[int64](ctx, s, s.single, name, "end", end.Stream, deny)
		if err != nil || reply >= 0 {
			settled.Released, err = s.released(reply, err)
			return settled, err
		}
	}
	return s.settle(ctx, s.single, name, &settlement{end: end, deny: deny, costs: costs})
}

// unlink removes a key of a node.
func (s *Store) unlink(ctx context.Context, n *node, key string) error {
	cmd := redis.NewCmd(ctx, "unlink", key)
	if err := s.client.Process(ctx, cmd); err != nil {
		return n.failed(ctx, err)
	}
	return nil
}

// drop ends a stream in one log.
func (s *Store) drop(ctx context.Context, key string, id window.StreamID, deny time.Duration) (released bool, err error) {
	n, err := s.nodeFor(ctx, key, 0)
	if err != nil {
		return false, err
	}
	return s.released(runFor[int64](ctx, s, n, key, "drop", id, deny))
}

// released reads what streams.lua returns for logs in which it has ended a stream.
func (s *Store) released(reply int64, replyErr error) (released bool, err error) {
	for range reply / 2 {
		s.opts.Corrupt(window.MinHold) // the holds are not known: they may have had any
	}
	return reply%2 == 1, replyErr
}

// newStream is the answer of note for a stream of which nothing was known. Such a stream is not
// denied and holds nothing, so the script need not look for what it holds: see holds.lua.
const newStream = math.MaxUint32

// note records, on a cluster, that a stream may soon hold something in logs. It returns for how
// many milliseconds the stream is denied, zero if it is not, or newStream.
func (s *Store) note(ctx context.Context, id window.StreamID, hold time.Duration, logs []string) (denied uint32, err error) {
	name := s.streamName(id)
	n, err := s.nodeFor(ctx, name, 0)
	if err != nil {
		return 0, err
	}
	millis, err := runFor[int64](ctx, s, n, name, "note", id, hold+noteSlack, logs...)
	if millis < 0 {
		return newStream, err
	}
	return uint32(min(millis, newStream-1)), err
}

// noteStream notes, on a cluster, the logs in which a message lets its stream hold something. If
// the stream has ended, the message is changed so that the script denies it. If nothing was
// known of the stream, the message says so, unless one check may find what another one made.
func (s *Store) noteStream(ctx context.Context, m *message) error {
	stream, hold, logs, unconditional := m.group.Stream()
	if stream == 0 {
		return nil
	}
	if m.deadline != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(m.deadline-serverclock.Now()))
		defer cancel()
	}
	denied, err := s.note(ctx, stream, hold, logs)
	if err != nil || denied == 0 || denied == newStream && unconditional {
		return err
	}
	m.group.SetEnded(denied)
	return nil
}

// runFor calls streams.lua for one key of a server, unless the server's breaker is open.
func runFor[T any](ctx context.Context, s *Store, n *node, key, verb string, id window.StreamID, d time.Duration, more ...string) (result T, err error) {
	stream := binary.BigEndian.AppendUint64(nil, uint64(id))
	argv := []any{verb, string(stream), strconv.FormatInt(d.Microseconds(), 10)}
	for _, m := range more {
		argv = append(argv, m)
	}
	return runOn[T](ctx, s, n, &s.scripts.ends, []string{key}, argv...)
}

// runOn calls a script for keys on one slot of a server, unless the server's breaker is open.
func runOn[T any](ctx context.Context, s *Store, n *node, of *script.Script, keys []string, argv ...any) (result T, err error) {
	var reply any
	err = n.guarded(ctx, func() (err error) {
		reply, err = of.Run(ctx, s.client, keys, argv...)
		return err
	})
	if err != nil {
		return result, err
	}
	result, ok := reply.(T)
	if !ok {
		return result, &failure.Error{Class: failure.Reply, Err: fmt.Errorf("reply is %T, want %T", reply, result)}
	}
	return result, nil
}
