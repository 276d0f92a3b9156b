package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1; nothing is secured by it
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

//go:embed take.lua
var takeScript string

// MaxCalls is how many calls [Store.TakeAll] takes at most: Redis does nothing
// else while it decides them.
const MaxCalls = 64

// A Client sends one command and waits for its reply. Every client of go-redis
// is one: *redis.Client, *redis.ClusterClient, redis.UniversalClient. The
// package comment says how it must be configured.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Options change what a store does. The zero value is usable.
type Options struct {
	// Prefix is put before every key, to tell several services on one Redis
	// apart. It may be empty. Braces in it would take the place of a hash tag in
	// the keys.
	Prefix string
	// Foreign, if not nil, is told of every value under a key of the store that
	// is not a log of the given window and was therefore thrown away. It is
	// called in Take, by several callers at once, so it should be quick. It is
	// not told the key, which may stand for a person.
	Foreign func(win time.Duration)
}

// Store keeps logs in Redis. Create it with New; its methods are safe for
// concurrent use.
type Store struct {
	client  Client
	prefix  string
	foreign func(win time.Duration)
	script  script
}

var _ window.Store = (*Store)(nil)

// A script is a text and the name under which Redis caches it.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// New returns a store on a client, which stays the caller's to close. It sends
// nothing: an unreachable server shows at the first Load or Take.
func New(client Client, o Options) *Store {
	s := &Store{client: client, prefix: o.Prefix, foreign: o.Foreign, script: newScript(takeScript)}
	if s.foreign == nil {
		s.foreign = func(time.Duration) {}
	}
	return s
}

// Load makes the script known to the server, or to every master of a cluster, so
// that the first call need not bring it. Nothing depends on it: a server that
// does not know the script is told by the first call.
func (s *Store) Load(ctx context.Context) error {
	load := func(ctx context.Context, to Client) error {
		cmd := redis.NewStringCmd(ctx, "script", "load", s.script.text)
		if err := to.Process(ctx, cmd); err != nil {
			return err
		}
		if got := cmd.Val(); got != s.script.sha {
			return fmt.Errorf("the server calls the script %.40q, want %q", got, s.script.sha)
		}
		return nil
	}
	var err error
	if cluster, ok := s.client.(masters); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return load(ctx, c) })
	} else {
		err = load(ctx, s.client)
	}
	if err != nil {
		return fmt.Errorf("redisstore: loading the script: %w", explain(ctx, err))
	}
	return nil
}

// masters is a client of several servers, like *redis.ClusterClient.
type masters interface {
	ForEachMaster(ctx context.Context, f func(ctx context.Context, client *redis.Client) error) error
}

// Close implements [window.Store]. The store holds nothing of its own, so it
// does nothing and returns nil; closing the client is up to its owner.
func (s *Store) Close() error { return nil }

// Take implements [window.Store] with one call to Redis, or with none if no check
// needs a log. A ctx that is done already is an error before anything is sent. If
// ctx ends while Redis is asked, the group may be charged or not; the error then
// wraps the context's.
func (s *Store) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	one := [1]Call{{checks, decisions}}
	return s.TakeAll(ctx, one[:])
}

// A Call is what [Store.Take] takes: one request.
type Call struct {
	Checks    []window.Check
	Decisions []window.Decision // as long as Checks; filled in
}

// TakeAll decides several requests with one call to Redis. They are decided in
// order and independently of each other, each with the contract of Take, so a
// later one counts what an earlier one has charged. At most [MaxCalls] are
// taken. On a cluster the logs of all calls must be on one slot.
//
// An error is one of all calls: each may be charged or not, as a whole. If it
// wraps [window.ErrBadCheck], nothing was charged in any.
func (s *Store) TakeAll(ctx context.Context, calls []Call) error {
	if len(calls) > MaxCalls {
		return fmt.Errorf("redisstore: %w: %d calls at once, at most %d", window.ErrBadCheck, len(calls), MaxCalls)
	}
	for i := range calls {
		if err := window.Validate(calls[i].Checks, calls[i].Decisions); err != nil {
			if len(calls) > 1 {
				return fmt.Errorf("redisstore: call %d: %w", i, err)
			}
			return fmt.Errorf("redisstore: %w", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}

	var b batch
	for i := range calls {
		b.add(&calls[i])
	}
	if len(b.asked) == 0 {
		return b.answer("", s.foreign)
	}
	reply, err := s.run(ctx, &b)
	if err != nil {
		return fmt.Errorf("redisstore: %w", explain(ctx, err))
	}
	if err := b.answer(reply, s.foreign); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return nil
}

// once is a command that go-redis must not send again by itself, whatever the
// client's MaxRetries or MaxRedirects: the first may have charged already.
// Redirections of a cluster are still followed, because the node that answers
// with one has run nothing.
type once struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (once) NoRetry() bool { return true }

// run runs the script for a batch.
func (s *Store) run(ctx context.Context, b *batch) (any, error) {
	// Everything but the first two words is the same for EVALSHA and EVAL.
	args := make([]any, 3, 3+2*len(b.asked))
	args[0], args[1], args[2] = "evalsha", s.script.sha, len(b.asked)
	args = b.arguments(args, s.prefix)

	reply, err := s.send(ctx, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// The server has restarted or was told to forget. Nothing has run.
		args[0], args[1] = "eval", s.script.text
		reply, err = s.send(ctx, args)
	}
	return reply, err
}

func (s *Store) send(ctx context.Context, args []any) (any, error) {
	cmd := once{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3) // EVALSHA sha n key: what a cluster client routes by
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// explain adds the context's error to one of the client if the context has ended.
// A socket's deadline is the context's and may be noticed first; it should not
// depend on a race whether the error is recognised.
func explain(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case ok && !time.Now().Before(deadline):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}
