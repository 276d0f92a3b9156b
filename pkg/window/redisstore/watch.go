package redisstore

import (
	"context"
	"errors"
	"strconv"
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

// Watch listens on [Options.Refunds] until ctx ends, and then returns nil. It calls forget
// for every log that a refund of any process gave hits back to. It calls forgetAll after
// each connection, because it may have missed refunds before. A caller that caches denials
// must delete those of such logs. Watch calls both from one goroutine.
//
// If the store has no channel, or its client cannot subscribe, Watch returns an error at
// once. A lost connection shows within seconds; refunds in that time are missed.
func (s *Store) Watch(ctx context.Context, forget func(window.LogID), forgetAll func()) error {
	client, ok := s.client.(subscriber)
	if !ok || s.opts.Refunds == "" {
		return errNoRefunds
	}
	pause := s.opts.ProbeInterval
	for ctx.Err() == nil {
		heard := false
		err := s.listen(ctx, client.Subscribe(ctx, s.opts.Refunds), forget, func() {
			if !heard {
				heard, pause = true, s.opts.ProbeInterval
				s.opts.Deaf(nil)
			}
			forgetAll()
		})
		if ctx.Err() == nil {
			s.opts.Deaf(err)
			forgetAll()
		}
		wait, cancel := context.WithTimeout(ctx, pause)
		<-wait.Done()
		cancel()
		pause = min(2*pause, watchTimeout) // a missing permission lasts
	}
	return nil
}

// listen listens until the connection fails, and returns why.
func (s *Store) listen(ctx context.Context, sub *redis.PubSub, forget func(window.LogID), forgetAll func()) error {
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
			forgetAll()
		case *redis.Message:
			if id, ok := s.logOf(m.Payload); ok {
				forget(id)
			}
		}
	}
}

// watchTimeout is how long a connection may be silent before it is pinged, and then how
// long it has to answer.
const watchTimeout = 5 * time.Second

// logOf parses the name of a log's key.
func (s *Store) logOf(key string) (window.LogID, bool) {
	key, ok := strings.CutPrefix(key, s.opts.Prefix)
	i := strings.LastIndexByte(key, ':')
	if !ok || i < 1 {
		return window.LogID{}, false
	}
	micros, err := strconv.ParseInt(key[i+1:], 10, 64)
	if err != nil || micros <= 0 || micros > maxMicros {
		return window.LogID{}, false
	}
	return window.LogID{Key: key[:i], Window: time.Duration(micros) * time.Microsecond}, true
}
