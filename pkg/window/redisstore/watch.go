package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// A subscriber can listen on a channel, as all clients of go-redis can.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// errNoRefunds says that a store cannot listen for refunds.
var errNoRefunds = errors.New("redisstore: no channel for refunds, or a client that cannot subscribe")

// RefundsChannel is the channel of rls and of package redislimit for [Options.Refunds], without the
// prefix of keys. All processes that share logs must use the same one.
const RefundsChannel = "refunds"

// Heard has the functions that [Store.Watch] calls, all from one goroutine. None may be nil.
type Heard struct {
	// Refunded is called for every log that a refund of any process gave hits back to. A
	// caller that caches denials must delete those of such logs.
	Refunded func(window.LogID)
	// Removed is called for every log that [Store.Remove] of any process has removed, and
	// Refunded after it. What the caller has reserved in the log before is gone too. So the
	// caller must neither spend it nor give it back.
	Removed func(window.LogID)
	// Missed is called after each connection, because messages may have been missed before.
	Missed func()
}

// Watch listens on [Options.Refunds] until ctx ends, and then returns nil.
//
// If the store has no channel, or its client cannot subscribe, Watch returns an error at
// once. A lost connection shows within seconds; messages in that time are missed.
func (s *Store) Watch(ctx context.Context, h Heard) error {
	client, ok := s.client.(subscriber)
	if !ok || s.opts.Refunds == "" {
		return errNoRefunds
	}
	pause := s.opts.ProbeInterval
	for ctx.Err() == nil {
		heard := false
		err := s.listen(ctx, client.Subscribe(ctx, s.opts.Refunds), h, func() {
			if !heard {
				heard, pause = true, s.opts.ProbeInterval
				s.opts.Deaf(nil)
			}
		})
		if ctx.Err() == nil {
			s.opts.Deaf(err)
			h.Missed()
		}
		wait, cancel := context.WithTimeout(ctx, pause)
		<-wait.Done()
		cancel()
		pause = min(2*pause, watchTimeout) // a missing permission lasts
	}
	return nil
}

// listen listens until the connection fails, and returns why. It calls subscribed when it
// can hear messages.
func (s *Store) listen(ctx context.Context, sub *redis.PubSub, h Heard, subscribed func()) error {
	defer func() { _ = sub.Close() }() // its failure is known already
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	pinged := false // since the last message
	for {
		// Not by PubSub.Channel, which hides that it has connected again.
		message, err := sub.ReceiveTimeout(ctx, watchTimeout)
		switch {
		case err == nil:
			pinged = false
		case ctx.Err() == nil && isTimeout(err) && !pinged && sub.Ping(ctx) == nil:
			pinged = true
		default:
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			subscribed()
			h.Missed()
		case *redis.Message:
			s.hear(m.Payload, h)
		}
	}
}

// hear takes a message: the name of a log, alone or with the mark of a removal.
func (s *Store) hear(message string, h Heard) {
	key, removed := strings.CutSuffix(message, resetMark)
	id, ok := s.logOf(key)
	switch {
	case !ok:
	case removed:
		h.Removed(id)
	default:
		h.Refunded(id)
	}
}

// watchTimeout is how long a connection may be silent before it is pinged, and then how
// long it has to answer.
const watchTimeout = 5 * time.Second

// logOf parses the name of a log's key.
func (s *Store) logOf(key string) (window.LogID, bool) {
	key, ok := strings.CutPrefix(key, s.opts.Prefix)
	if !ok {
		return window.LogID{}, false
	}
	return ParseKeyName(key)
}
