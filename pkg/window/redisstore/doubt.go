package redisstore

import (
	"context"
	"errors"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// Never is what [Doubt] returns for a call that was certainly not charged: later than
// any instant of a server's clock.
const Never = math.MaxInt64

// A doubt says in an error when the call may have been charged.
type doubt struct {
	known bool
	since int64
}

// inDoubt notes in the error of a call when it may have been charged: after begun, an
// instant of the local clock. Other errors come back as they are: either the server
// has decided nothing, or the caller has left.
func (n *node) inDoubt(err error, begun int64) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	noted := *e // other messages of the same call may share it
	switch e.Class {
	case ClassLate:
		noted.doubt = doubt{true, Never}
	case ClassTimeout, ClassClosed:
		if n.known() {
			noted.doubt = doubt{true, n.clock.deadline(begun)}
		} else {
			noted.doubt = doubt{true, Never} // without the clock nothing is sent
		}
	default:
		return err
	}
	return &noted
}

// Doubt tells from an error of [Store.Take] or [Store.Reserve] whether the call was
// charged. A check of it can only have been charged if its log was written after since,
// an instant of the server's clock in microseconds; see [Store.LastWrite]. known is
// false where that does not tell: the server refused the call or is not asked, the
// logs were on several slots of a cluster, or the caller left.
func Doubt(err error) (since int64, known bool) {
	var e *Error
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.doubt.since, e.doubt.known
}

// LastWrite returns the instant of the server's clock, in microseconds, at which a log
// was written last: charged, refunded or taken back. It is zero if there is no log.
// All errors have a [Class].
func (s *Store) LastWrite(ctx context.Context, id window.LogID) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	begun := now()
	key := string(appendKey(nil, s.opts.Prefix, id))
	n := s.single
	if n == nil {
		var err error
		if n, err = s.nodeFor(ctx, key, 0); err != nil {
			return 0, err
		}
	}
	if n.open.Load() {
		return 0, n.refused()
	}
	done, err := n.breaker.Allow()
	if err != nil {
		return 0, n.refused()
	}
	// The first bytes of every log: its kind, and its clock.
	cmd := redis.NewStringCmd(ctx, "getrange", key, 0, 8)
	err = s.client.Process(ctx, cmd)
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		failed := n.failed(ctx, err)
		if failed.Class.ofTheNode() {
			done(failed)
		} else {
			done(nil)
		}
		return 0, n.inDoubt(failed, begun)
	}
	done(nil)
	head := cmd.Val()
	if len(head) < 9 {
		return 0, nil // there is no log, or the next charge throws away what is there
	}
	return int64(min(bigEndian(head[1:]), Never)), nil
}
