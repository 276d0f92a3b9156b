package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1; nothing is secured by it
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

//go:embed take.lua
var takeScript string

// What the script takes and answers for each check.
const (
	argsPerCheck  = 3
	replyPerCheck = 5

	outcomeDenied  = 0
	outcomeAllowed = 1
	outcomeNever   = 2
)

// ErrBadLog is wrapped by the error of a Take that found something else than a
// log under one of its keys. Nothing was charged.
var ErrBadLog = errors.New("the value is not a log")

// badLogReply begins the script's error for it.
const badLogReply = "BADLOG "

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
}

// Store keeps logs in Redis. Create it with New; its methods are safe for
// concurrent use.
type Store struct {
	client Client
	prefix string
	script script
}

var _ window.Store = (*Store)(nil)

// A script is a text and the name under which Redis caches it.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// New returns a store on a client, which stays the caller's to close. It sends
// nothing: an unreachable server shows at the first Take.
func New(client Client, o Options) *Store {
	return &Store{client: client, prefix: o.Prefix, script: newScript(takeScript)}
}

// Close implements [window.Store]. The store holds nothing of its own, so it
// does nothing and returns nil; closing the client is up to its owner.
func (s *Store) Close() error { return nil }

// Take implements [window.Store] with one call to Redis. A ctx that is done
// already is an error before anything is sent. If ctx ends while Redis is
// asked, the group may be charged or not; the error then wraps the context's.
func (s *Store) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if err := window.Validate(checks, decisions); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	if len(checks) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}

	folded, answer := window.Fold(checks)
	reply, err := s.run(ctx, folded)
	if err != nil {
		return s.explain(ctx, err, checks, answer)
	}
	if answer == nil {
		return decode(reply, decisions)
	}
	answers := make([]window.Decision, len(folded))
	if err := decode(reply, answers); err != nil {
		return err
	}
	for i, j := range answer {
		decisions[i] = answers[j]
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

// run runs the script for checks that name every log once.
func (s *Store) run(ctx context.Context, checks []window.Check) (any, error) {
	// Everything but the first two words is the same for EVALSHA and EVAL.
	const head = 3
	args := make([]any, head, head+len(checks)*(1+argsPerCheck))
	args[0], args[1], args[2] = "evalsha", s.script.sha, len(checks)
	for i := range checks {
		args = append(args, s.key(checks[i].Log()))
	}
	for i := range checks {
		c := &checks[i]
		// A cost above the limit is "never", by however much: so cut, it is a
		// number that a double in the script holds exactly.
		cost := min(c.Cost, c.Limit.Hits+1)
		args = append(args, c.Limit.Window.Microseconds(), c.Limit.Hits, cost)
	}

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

// key returns the name of a log's sorted set.
func (s *Store) key(id window.LogID) string {
	b := make([]byte, 0, len(s.prefix)+len(id.Key)+len(":34560000000000"))
	b = append(b, s.prefix...)
	b = append(b, id.Key...)
	b = append(b, ':')
	b = strconv.AppendInt(b, id.Window.Microseconds(), 10)
	return string(b)
}

// explain turns an error of the client into one for the caller.
func (s *Store) explain(ctx context.Context, err error, checks []window.Check, answer []int) error {
	if text, ok := strings.CutPrefix(err.Error(), badLogReply); ok {
		number, why, _ := strings.Cut(text, " ")
		if n, convErr := strconv.Atoi(number); convErr == nil {
			// The script numbers the folded checks from 1; the caller knows its own.
			i := n - 1
			for at, j := range answer {
				if j == i {
					i = at
					break
				}
			}
			if i >= 0 && i < len(checks) {
				return fmt.Errorf("redisstore: check %d, window %v, prefix %q: %w: %s", i, checks[i].Limit.Window, s.prefix, ErrBadLog, why)
			}
		}
		return fmt.Errorf("redisstore: prefix %q: %w: %s", s.prefix, ErrBadLog, text)
	}
	// A socket's deadline is the context's and may be noticed first; it should
	// not depend on a race whether the error is recognised.
	deadline, ok := ctx.Deadline()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	case ctx.Err() != nil:
		return fmt.Errorf("redisstore: %w: %w", ctx.Err(), err)
	case ok && !time.Now().Before(deadline):
		return fmt.Errorf("redisstore: %w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}

// decode reads the script's reply strictly: anything but the numbers that
// take.lua promises is an error.
func decode(reply any, decisions []window.Decision) error {
	values, ok := reply.([]any)
	if !ok {
		return fmt.Errorf("redisstore: reply is %T, want an array of %d integers", reply, len(decisions)*replyPerCheck)
	}
	if got := len(values); got != len(decisions)*replyPerCheck {
		return fmt.Errorf("redisstore: reply has %d values, want %d integers for each of %d checks", got, replyPerCheck, len(decisions))
	}
	for i := range decisions {
		var n [replyPerCheck]int64
		for j := range n {
			v, ok := values[i*replyPerCheck+j].(int64)
			if !ok || v < 0 {
				return fmt.Errorf("redisstore: value %d of the reply to check %d is %T, want an integer of at least 0", j, i, values[i*replyPerCheck+j])
			}
			n[j] = v
		}
		if n[0] > outcomeNever {
			return fmt.Errorf("redisstore: the outcome of check %d is %d, want %d, %d or %d", i, n[0], outcomeDenied, outcomeAllowed, outcomeNever)
		}
		decisions[i] = window.Decision{
			Allowed:    n[0] == outcomeAllowed,
			Never:      n[0] == outcomeNever,
			Remaining:  uint64(n[1]),
			RetryAfter: time.Duration(n[2]) * time.Microsecond,
			UnitAfter:  time.Duration(n[3]) * time.Microsecond,
			ResetAfter: time.Duration(n[4]) * time.Microsecond,
		}
	}
	return nil
}
