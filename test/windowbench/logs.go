package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

var (
	//go:embed sorted_set.lua
	sortedSetText string
	//go:embed two_counters.lua
	twoCountersText string
	//go:embed plant.lua
	plantText string
	//go:embed get_and_set.lua
	getAndSetText string

	sortedSetScript   = redis.NewScript(sortedSetText)
	twoCountersScript = redis.NewScript(twoCountersText)
	plantScript       = redis.NewScript(plantText)
	getAndSetScript   = redis.NewScript(getAndSetText)
	emptyScript       = redis.NewScript("return 1")

	scripts = []*redis.Script{sortedSetScript, twoCountersScript, plantScript, getAndSetScript, emptyScript}
)

// A call is a command as it is sent, and what its reply must be.
type call struct {
	args  []any
	check func(reply any) error
}

// A past is what was charged to a log before it is measured: hits at an even
// pace, the last of them some time ago.
type past struct {
	hits int
	pace time.Duration
	ago  time.Duration
}

// A kind is a way to keep logs in Redis.
type kind interface {
	// plant makes the log of a check have a past.
	plant(ctx context.Context, b *bench, c window.Check, p past) error
	// call asks a check, which must be allowed or denied.
	call(c window.Check, allowed bool) (call, error)
}

// name is the key of a check's log: the one that redisstore uses.
func name(c window.Check) string {
	return c.Key + ":" + strconv.FormatInt(c.Limit.Window.Microseconds(), 10)
}

// evalsha is a call of one of the scripts here. Their replies begin with 1 if
// the call was allowed.
func evalsha(s *redis.Script, c window.Check, allowed bool, more ...any) call {
	return call{
		args: append([]any{"evalsha", s.Hash(), 1, name(c), c.Limit.Window.Microseconds(), c.Limit.Hits, c.Cost}, more...),
		check: func(reply any) error {
			if list, ok := reply.([]any); ok && len(list) > 0 {
				reply = list[0]
			}
			if got, ok := reply.(int64); !ok || (got == 1) != allowed {
				return fmt.Errorf("reply is %v, want allowed %t", reply, allowed)
			}
			return nil
		},
	}
}

// sortedSet is the baseline. With waits it answers all that our store does.
type sortedSet struct{ waits bool }

func (s sortedSet) call(c window.Check, allowed bool) (call, error) {
	waits := 0
	if s.waits {
		waits = 1
	}
	return evalsha(sortedSetScript, c, allowed, waits), nil
}

func (sortedSet) plant(ctx context.Context, b *bench, c window.Check, p past) error {
	now, err := b.now(ctx)
	if err != nil {
		return err
	}
	first := now - (p.ago + time.Duration(p.hits-1)*p.pace).Microseconds()
	return plantScript.EvalSha(ctx, b.client, []string{name(c)}, first, p.pace.Microseconds(), p.hits).Err()
}

// other is a script without a past: the approximation, and the references.
type other struct{ script *redis.Script }

func (o other) call(c window.Check, allowed bool) (call, error) {
	return evalsha(o.script, c, allowed), nil
}

// plant spends the limit if the past does, which is for a denial, and gives the
// script that wants a string one.
func (o other) plant(ctx context.Context, b *bench, c window.Check, p past) error {
	switch {
	case o.script == getAndSetScript:
		return b.client.Set(ctx, name(c), make([]byte, 135), 0).Err()
	case o.script == twoCountersScript && c.Limit.Hits == uint64(p.hits):
		c.Cost = c.Limit.Hits
		return b.client.Do(ctx, evalsha(o.script, c, true).args...).Err()
	}
	return nil
}

// packed is our store's log.
type packed struct{}

func (packed) plant(ctx context.Context, b *bench, c window.Check, p past) error {
	now, err := b.now(ctx)
	if err != nil {
		return err
	}
	log, err := even(c, now, p)
	if err != nil {
		return err
	}
	return b.client.Set(ctx, name(c), log, 0).Err()
}

// even returns the bytes of a log with a past.
func even(c window.Check, now int64, p past) ([]byte, error) {
	var log []byte
	c.Cost = 1
	at := now - (p.ago + time.Duration(p.hits-1)*p.pace).Microseconds()
	// Which hits share a slot, and so when the log grows, is not to depend on now.
	at -= at % max(c.Precision.Microseconds(), 1)
	for range p.hits {
		var d window.Decision
		if log = window.Take(log, at, &c, &d); !d.Allowed {
			return nil, fmt.Errorf("a past of %d hits does not fit into %+v", p.hits, c.Limit)
		}
		at += p.pace.Microseconds()
	}
	return log, nil
}

func (p packed) call(c window.Check, allowed bool) (call, error) {
	return p.calls([][]window.Check{{c}}, allowed)
}

// calls is one EVALSHA for a number of independent groups.
func (packed) calls(groups [][]window.Check, allowed bool) (call, error) {
	batch := make([]redisstore.Call, len(groups))
	for i, g := range groups {
		batch[i] = redisstore.Call{Checks: g, Decisions: make([]window.Decision, len(g))}
	}
	t := &tape{}
	store := redisstore.New(t, redisstore.Options{})
	take := func() error { return store.TakeAll(context.Background(), batch) }
	if len(batch) == 1 {
		take = func() error {
			_, err := store.Take(context.Background(), window.MayWait, batch[0].Checks, batch[0].Decisions)
			return err
		}
	}
	if err := take(); !errors.Is(err, errTaped) {
		return call{}, fmt.Errorf("redisstore sent nothing: %w", err)
	}
	return call{t.args, func(reply any) error {
		t.reply = reply
		if err := take(); err != nil {
			return err
		}
		for i := range batch {
			for _, d := range batch[i].Decisions {
				if d.Allowed != allowed {
					return fmt.Errorf("decision is %+v, want allowed %t", d, allowed)
				}
			}
		}
		return nil
	}}, nil
}

// A tape is a client that records the commands of the store until it has a reply. Then it
// gives the store that reply.
type tape struct {
	args  []any
	reply any
}

var errTaped = errors.New("taken down, not sent")

// Process implements [redisstore.Client].
func (t *tape) Process(_ context.Context, cmd redis.Cmder) error {
	if t.reply == nil {
		t.args = cmd.Args()
		return errTaped
	}
	answered, ok := cmd.(interface{ SetVal(any) })
	if !ok {
		return fmt.Errorf("%T takes no reply", cmd)
	}
	answered.SetVal(t.reply)
	return nil
}
