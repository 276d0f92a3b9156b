package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
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
func name(c window.Check) string { return redisstore.KeyName("", c.Log()) }

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
		if log = reference.Take(log, at, &c, &d); !d.Allowed {
			return nil, fmt.Errorf("a past of %d hits does not fit into %+v", p.hits, c.Limit)
		}
		at += p.pace.Microseconds()
	}
	return log, nil
}

func (p packed) call(c window.Check, allowed bool) (call, error) {
	return p.calls([][]window.Check{{c}}, allowed)
}

// calls returns one EVALSHA that decides several independent groups.
func (packed) calls(groups [][]window.Check, allowed bool) (call, error) {
	r := &recorder{}
	if _, err := r.take(groups); !errors.Is(err, errRecorded) {
		return call{}, fmt.Errorf("redisstore sent nothing: %w", err)
	}
	return call{r.args, func(reply any) error {
		decisions, err := (&recorder{reply: reply}).take(groups)
		for _, d := range decisions {
			if err == nil && d.Allowed != allowed {
				err = fmt.Errorf("decision is %+v, want allowed %t", d, allowed)
			}
		}
		return err
	}}, nil
}

// A recorder is a client of redisstore without a server. Without a reply it keeps the
// arguments of the command that the store sends. With a reply it gives that to the store.
type recorder struct {
	args  []any
	reply any

	blocked atomic.Int32  // calls that wait until release is closed
	entered chan struct{} // receives once for each of these calls
	release chan struct{}
}

var errRecorded = errors.New("recorded, not sent")

// inFlight is how many calls the store sends to a server at once.
const inFlight = 2

// take decides groups with one command of a new store, and returns all decisions in order.
//
// The store sends several requests as one command only if they wait for calls in flight.
// So take fills the calls in flight with other requests first, and lets them wait until all
// groups are in the queue.
func (r *recorder) take(groups [][]window.Check) ([]window.Decision, error) {
	store := redisstore.New(r, redisstore.Options{})
	defer store.Close()
	var (
		decisions = make([][]window.Decision, len(groups))
		errs      = make([]error, len(groups))
		all       sync.WaitGroup
	)
	ask := func(i int) {
		decisions[i] = make([]window.Decision, len(groups[i]))
		_, errs[i] = store.Take(context.Background(), window.MayWait, groups[i], decisions[i])
	}
	if len(groups) == 1 {
		ask(0)
		return decisions[0], errs[0]
	}
	r.blocked.Store(inFlight)
	r.entered, r.release = make(chan struct{}), make(chan struct{})
	for range inFlight {
		all.Go(func() {
			_, _ = store.Take(context.Background(), window.MayWait, groups[0], make([]window.Decision, len(groups[0])))
		})
		<-r.entered
	}
	for i := range groups {
		all.Go(func() { ask(i) })
		for store.Stats().Nodes[0].Queued <= i {
			runtime.Gosched()
		}
	}
	close(r.release)
	all.Wait()
	return slices.Concat(decisions...), errors.Join(errs...)
}

// Process implements [redisstore.Client].
func (r *recorder) Process(_ context.Context, cmd redis.Cmder) error {
	if r.blocked.Add(-1) >= 0 {
		r.entered <- struct{}{}
		<-r.release
		return errRecorded
	}
	if r.reply == nil {
		r.args = cmd.Args()
		return errRecorded
	}
	answered, ok := cmd.(interface{ SetVal(any) })
	if !ok {
		return fmt.Errorf("%T takes no reply", cmd)
	}
	answered.SetVal(r.reply)
	return nil
}
