package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/ending"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

var _ window.Releaser = (*Store)(nil)

// newEnds returns the calls for streams.
func (s *Store) newEnds() ending.Ends {
	return ending.Ends{
		Prefix: s.opts.Prefix, Streams: s.streams, Take: &s.scripts.take, Ends: &s.scripts.ends, Corrupt: s.opts.Corrupt,
		Run: func(ctx context.Context, of *script.Script, keys []string, argv ...any) (any, error) {
			n, err := s.nodeFor(ctx, keys[0], 0)
			if err != nil {
				return nil, err
			}
			return runOn[any](ctx, s, n, of, keys, argv...)
		},
		Unlink: func(ctx context.Context, key string) error {
			if err := s.client.Process(ctx, redis.NewCmd(ctx, "unlink", key)); err != nil {
				return &failure.Error{Class: failure.Classify(err), Err: failure.Explain(ctx, err)}
			}
			return nil
		},
	}
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
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	settled, err = s.ends.End(ctx, &end)
	return settled, s.count(err)
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
	denied, err := s.ends.Note(ctx, stream, hold, logs)
	if err != nil || denied == 0 || denied == ending.NewStream && unconditional {
		return err
	}
	m.group.SetEnded(denied)
	return nil
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
