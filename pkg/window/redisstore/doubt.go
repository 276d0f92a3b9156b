package redisstore

import (
	"context"
	"errors"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// Never is later than any instant of a server's clock.
const Never = math.MaxInt64

// maxBytes is the most bytes of a log that Bytes returns: Redis does nothing else meanwhile.
const maxBytes = 128 << 10

// A Doubt says when a call that has failed may have been charged: after Since and not
// after Until. Both are instants of the server's clock in microseconds. Since is Never if
// it was certainly not charged.
type Doubt struct{ Since, Until int64 }

// inDoubt adds to the error of a call when the call may have been charged: from begun to
// deadline, by the local clock. It returns other errors unchanged. Then the server has
// decided nothing, the caller has left, or deadline is 0, so the call may still be
// charged.
func (n *node) inDoubt(err error, begun, deadline int64) error {
	var e *Error
	if deadline == 0 || !errors.As(err, &e) {
		return err
	}
	noted := *e // other messages of the same call may share e
	switch e.Class {
	case ClassLate, ClassOverload:
		noted.doubt = &Doubt{Never, Never}
	case ClassTimeout, ClassClosed:
		noted.doubt = &Doubt{Never, Never} // without the clock nothing is sent
		if n.known() {
			*noted.doubt = Doubt{n.clock.deadline(begun), n.clock.latest(deadline)}
		}
	default:
		return err
	}
	return &noted
}

// DoubtOf returns when a call may have been charged, from its error. The error is one of
// [Store.Take] or [Store.Reserve]. known is false if that is unknown. Then the server
// refused the call, its breaker is open, the logs were on several slots, the caller left,
// or the call had no deadline. For an error of another method, known says that a second
// try may succeed.
func DoubtOf(err error) (d Doubt, known bool) {
	var e *Error
	if !errors.As(err, &e) || e.doubt == nil {
		return Doubt{}, false
	}
	return *e.doubt, true
}

// Bytes returns the bytes of a log, up to 128 kB of them: [window.Decode] reads them. They
// are empty if there is no log. All errors have a [Class]. It is for requests: it takes no
// longer than the store's timeout, and its failures open the breaker.
func (s *Store) Bytes(ctx context.Context, id window.LogID) ([]byte, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	begun := now()
	key := KeyName(s.opts.Prefix, id)
	n, err := s.nodeFor(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	cmd := redis.NewStringCmd(ctx, "getrange", key, 0, maxBytes-1)
	err = n.guarded(ctx, func() error {
		if err := s.client.Process(ctx, cmd); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, n.inDoubt(err, begun, begun)
	}
	return []byte(cmd.Val()), nil // empty if the value is not a string
}
