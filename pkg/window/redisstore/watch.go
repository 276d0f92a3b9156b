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

// A subscriber can listen on a channel, as every client of go-redis.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// errNoRefunds says that a store has nothing to listen to.
var errNoRefunds = errors.New("redisstore: no channel for refunds, or a client that cannot subscribe")

// Watch listens on [Options.Refunds] until ctx ends, and then returns nil. It
// calls forget for every log that has got hits back, whoever gave them, and
// forgetAll whenever it may have missed some: after each (re)connection. Who
// remembers denials must forget those of such logs. Both are called by one
// goroutine.
//
// Telling takes as long as a message takes from Redis to here, and a message may
// be lost with its connection, which shows within seconds.
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
		pause = min(2*pause, watchTimeout) // what is not permitted will not be soon
	}
	return nil
}

// listen listens until a connection fails, and returns why.
func (s *Store) listen(ctx context.Context, sub *redis.PubSub, forget func(window.LogID), forgetAll func()) error {
	defer func() { _ = sub.Close() }() // whatever is wrong with it is known
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	asked := false // whether it is there, since it has last said something
	for {
		// Not by its Channel, which hides that it has connected again.
		message, err := sub.ReceiveTimeout(ctx, watchTimeout)
		switch {
		case err == nil:
			asked = false
		case ctx.Err() == nil && isTimeout(err) && !asked && sub.Ping(ctx) == nil:
			asked = true
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

// watchTimeout is how long a connection may be silent until it is asked whether it
// is there, and then how long it has to answer.
const watchTimeout = 5 * time.Second

// logOf reads the name of a log's key.
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
