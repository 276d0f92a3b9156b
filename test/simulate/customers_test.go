package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/cache"
)

// The tiers of customers. Tier i has the limit of its key divided by i+1. An unknown customer has another one.
var tierNames = []string{"large", "small"}

const (
	unknownTier = "unknown"
	unknownHits = 1
	// tierPatience is how long a request waits for the tier of its customer. It is longer than a question takes.
	tierPatience = 5 * time.Millisecond
)

// hitsOf returns the limit of a tier.
func (k *keySpec) hitsOf(tier int) uint64 { return k.Limit.Hits / uint64(tier+1) }

// A tierChange is a change of the tier of all customers.
type tierChange struct {
	at   time.Duration
	tier int
}

// A report is that an instance has got the news of a change, by its number.
type report struct {
	at     time.Duration
	change int
}

// customers is the customer database as an instance sees it.
type customers struct {
	in      *instance
	changes chan int // the numbers of changes
}

// newCustomers returns the cache of an instance in front of the database. It watches until the instance stops.
func newCustomers(in *instance) *cache.Cache {
	of := &customers{in, make(chan int, 100)}
	in.customers = of
	o := cache.Options{
		Source: of, Timeout: tierPatience, Subjects: 100, Unknown: 100, TTL: day, UnknownTTL: day, Stale: day,
		Breaker: cache.Breaker{Failures: 5, Retry: 100 * time.Millisecond},
	}
	if in.w.mutants.forgets {
		o.TTL, o.Stale = 100*time.Millisecond, 0
	}
	c, err := cache.New(o)
	if err != nil {
		panic(err)
	}
	var ctx context.Context
	ctx, in.unwatch = context.WithCancel(context.Background())
	in.watched.Go(func() { _ = c.Run(ctx) })
	return c
}

// Lookup implements [tier.Source].
func (c *customers) Lookup(ctx context.Context, k tier.Key) (*tier.Record, error) {
	w := c.in.w
	w.pause(ctx, w.brief("lookup", c.in.name, k.ID))
	w.mu.Lock()
	down, now := w.plan.unreported(w.now(), w.now()), w.changes[len(w.changes)-1].tier
	w.mu.Unlock()
	if down {
		<-ctx.Done()
		return nil, errors.New("the customer database does not answer")
	}
	w.pause(ctx, w.brief("found", c.in.name, k.ID))
	return &tier.Record{Subject: &tier.Subject{ID: k.ID, Tier: tierNames[now]}}, nil
}

// Watch implements [tier.Watcher]. While the database does not answer, news is late.
func (c *customers) Watch(ctx context.Context, ready func(), changed func(tier.Change)) error {
	w := c.in.w
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-c.changes:
			w.pause(ctx, w.brief("news", c.in.name, n))
			for w.plan.unreported(w.now(), w.now()) && ctx.Err() == nil {
				w.pause(ctx, 10*time.Millisecond)
			}
			if !w.mutants.deaf {
				changed(tier.Change{})
			}
			w.mu.Lock()
			c.in.reports = append(c.in.reports, report{w.now(), n})
			w.mu.Unlock()
		}
	}
}

// Close implements [tier.Source].
func (*customers) Close() error { return nil }

// brief returns how long a message to or from the customer database takes: never long.
func (w *world) brief(parts ...any) time.Duration {
	return 60*time.Microsecond + time.Duration(w.number(append(parts, int64(w.now()))...)%500_000)
}

// unreported reports whether the customer database does not answer between two moments.
func (p *plan) unreported(from, to time.Duration) bool {
	for _, f := range p.Faults {
		if f.Kind == faultCustomers && f.At <= to && from <= f.At+f.For {
			return true
		}
	}
	return false
}

// promote changes the tier of all customers now and then.
func (w *world) promote() {
	r := w.rand("tiers")
	for {
		time.Sleep(300*time.Millisecond + time.Duration(r.Int64N(int64(2*time.Second))))
		if w.now() >= w.plan.Length {
			return
		}
		w.mu.Lock()
		next := 1 - w.changes[len(w.changes)-1].tier
		w.changes = append(w.changes, tierChange{w.now(), next})
		w.note("the tier of customers is %s", tierNames[next])
		for _, in := range w.instances {
			if in != nil {
				in.customers.changes <- len(w.changes) - 1
			}
		}
		w.mu.Unlock()
	}
}

// tiersOf are the limits of a key by tier.
func tiersOf(k *keySpec, apart bool) map[string]rules.Terms {
	all := make(map[string]rules.Terms)
	for i, name := range tierNames {
		l := k.Limit
		l.Hits = k.hitsOf(i)
		if apart {
			l.Window -= time.Duration(i) * time.Microsecond
		}
		all[name] = rules.Terms{Limits: []rules.Limit{{Limit: l}}}
	}
	return all
}

// judgeTiers checks by which tier calls were decided: by one that was valid after the last news of the instance,
// and by that of a customer whom the instance knows.
func (w *world) judgeTiers(k *key, all []*op) {
	if !k.Tiers {
		return
	}
	known := make(map[*instance]time.Duration) // since when
	for _, o := range all {
		if _, ok := known[o.instance]; !ok && o.limit > unknownHits {
			known[o.instance] = o.end
		}
	}
	for _, o := range all {
		if o.limit == 0 {
			continue // it has no decision
		}
		if since, ok := known[o.instance]; o.limit == unknownHits {
			if ok && o.begin > since {
				w.breaks(promiseKnown, "the customer was known at %v: %v", since, o)
			}
			continue
		}
		last := report{}
		for _, r := range o.instance.reports {
			if r.at < o.begin {
				last = r
			}
		}
		if w.plan.unreported(last.at-time.Second, o.end) {
			continue
		}
		ok := false
		for n := last.change; n < len(w.changes) && w.changes[n].at <= o.end; n++ {
			ok = ok || o.limit == k.hitsOf(w.changes[n].tier)
		}
		if !ok {
			w.breaks(promiseTier, "the instance got news of change %d at %v, and the limit is %d: %v", last.change, last.at, o.limit, o)
		}
	}
}

// value returns the value of the entry of a key.
func (k *key) value() string {
	if k.Tiers {
		return k.name
	}
	return fmt.Sprintf("{%s}", k.name)
}

var _ tier.Watcher = (*customers)(nil)
