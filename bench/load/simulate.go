package main

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A virtual service decides on a virtual clock, by the code that decides live requests.
type virtual struct {
	timeline *replay.Timeline
	digest   func(key, value string) string
	render   *answer.Renderer
}

// newVirtual returns a service with the texts of two files. It reads them in dir.
func newVirtual(dir, rules, tiers string) (*virtual, error) {
	s, _, err := settings.Load("", nil)
	if err != nil {
		return nil, err
	}
	s.Rules.Path, s.Tiers.Path = filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "tiers.yaml")
	for path, text := range map[string]string{s.Rules.Path: rules, s.Tiers.Path: tiers} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	g, err := config.Load(s)
	if err != nil {
		return nil, err
	}
	return &virtual{replay.NewTimeline(g.Rules, 0), g.Secrets.Value, answer.NewRenderer()}, nil
}

func (v *virtual) close() error { return v.timeline.Close() }

// begin is what the virtual clock shows at the beginning, since 1970: a full hour.
const begin = 500_000 * time.Hour

// decide decides a request as Envoy would ask, and reads the answer as a client does.
func (v *virtual) decide(ctx context.Context, at time.Duration, key string) (allowed bool, retryAfter time.Duration, err error) {
	entry := descriptors.Entry{Key: "api_key", Value: v.digest("api_key", key)}
	verdict, err := v.timeline.Decide(ctx, begin+at, decide.Request{
		Domain: domain, Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{entry}, Cost: 1}},
	}, nil)
	if err != nil || verdict.Allowed {
		return err == nil, 0, err
	}
	for _, h := range v.render.Append(nil, verdict, time.Now) {
		if h.Name == "retry-after" {
			seconds, err := strconv.Atoi(h.Value)
			return false, time.Duration(seconds) * time.Second, err
		}
	}
	return false, 0, fmt.Errorf("a denial without Retry-After at %v", at)
}

// An event is something that happens to a caller at a time. Events at one time happen in the order
// in which they were planned.
type event struct {
	at     time.Duration
	number int
	happen func(now time.Duration) error
}

// A timetable is a heap of what is to happen; see [heap.Interface].
type timetable struct {
	events []event
	number int
}

func (t *timetable) Len() int      { return len(t.events) }
func (t *timetable) Swap(i, j int) { t.events[i], t.events[j] = t.events[j], t.events[i] }
func (t *timetable) Less(i, j int) bool {
	a, b := &t.events[i], &t.events[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number)) < 0
}
func (t *timetable) Push(e any) { t.events = append(t.events, e.(event)) }
func (t *timetable) Pop() any {
	last := t.events[len(t.events)-1]
	t.events = t.events[:len(t.events)-1]
	return last
}

// plan plans what is to happen at a time.
func (t *timetable) plan(at time.Duration, happen func(now time.Duration) error) {
	t.number++
	heap.Push(t, event{at, t.number, happen})
}

// run lets everything happen, with no time passing in between.
func (t *timetable) run(ctx context.Context) error {
	for t.Len() > 0 && ctx.Err() == nil {
		e := heap.Pop(t).(event)
		if err := e.happen(e.at); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// network is how long a request or an answer is under way.
var network = logNormal{500 * time.Microsecond, 0.5}

// ask plans a request that is sent now, its decision, and its answer.
func (v *virtual) ask(ctx context.Context, t *timetable, r *rand.Rand, now time.Duration, key string, answered func(now time.Duration, allowed bool, retryAfter time.Duration)) {
	back := network.draw(r)
	t.plan(now+network.draw(r), func(now time.Duration) error {
		allowed, retryAfter, err := v.decide(ctx, now, key)
		t.plan(now+back, func(now time.Duration) error {
			answered(now, allowed, retryAfter)
			return nil
		})
		return err
	})
}

// simulate lets customers send for a time, on a virtual clock.
func simulate(ctx context.Context, v *virtual, all []*customer, lasts time.Duration, seed uint64) error {
	var t timetable
	r := source(seed, 0)
	var turn func(c *caller) func(now time.Duration) error
	turn = func(c *caller) func(now time.Duration) error {
		return func(now time.Duration) error {
			if now >= lasts {
				return nil
			}
			at, send := c.turn(now)
			if !send {
				t.plan(at, turn(c))
				return nil
			}
			v.ask(ctx, &t, r, now, c.customer.key(), func(answered time.Duration, allowed bool, retryAfter time.Duration) {
				t.plan(c.answered(now, answered, allowed, retryAfter), turn(c))
			})
			return nil
		}
	}
	for _, c := range all {
		for _, caller := range c.callers {
			t.plan(caller.first, turn(caller))
		}
	}
	return t.run(ctx)
}
