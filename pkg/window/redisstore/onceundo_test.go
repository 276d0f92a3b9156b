package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

// undoPolicies are the policies whose charges have receipts.
var undoPolicies = []window.Policy{window.Sliding, window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter}

// slow returns a check of an attempt in a window that no test outlives.
func slow(p window.Policy, key string, hits, cost, attempt uint64) window.Check {
	c := tagged(key, hits, cost, attempt)
	c.Limit.Policy, c.Limit.Window = p, 100*24*time.Hour
	now := int64(epoch / time.Second)
	switch p {
	case window.TokenBucket:
		c.Limit.Rate = uint32(hits)
	case window.Calendar:
		c.Period = window.Period{Start: now - 1000, End: now + 100_000, Next: now + 200_000}
	default:
	}
	return c
}

// newUndoStore returns a store whose clock can be set.
func newUndoStore(t *testing.T, client *redis.Client, o redisstore.Options) (s *redisstore.Store, set func(time.Duration)) {
	t.Helper()
	o.Timeout = patient
	s = redisstore.NewWithClock(t, client, o, "clock")
	t.Cleanup(func() { _ = s.Close() })
	set = func(now time.Duration) { setClock(t, client, "clock", now) }
	set(0)
	return s, set
}

// TestUndoOfAll: three requests with one key were at the log at once, and another slot denies some
// of them. In whatever order they take back what they have recorded, the charge goes with the last
// one that could have kept it, and stays if one was allowed.
func TestUndoOfAll(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s, _ := newUndoStore(t, client, redisstore.Options{})
	for _, p := range undoPolicies {
		for i, order := range [][]int{
			{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, // all are denied
			{0, 1}, {1, 0}, {2, 0}, {0, 2}, {1, 2}, {2, 1}, {0}, {1}, {},
		} {
			key := fmt.Sprint(p, i)
			var all []*redisstore.Pending
			for _, cost := range []uint64{3, 2, 3} {
				one, d := s.TakePending(t, slow(p, key, 9, cost, 1))
				if !d.Allowed || d.Repeated != (len(all) > 0) || d.Remaining != 6 {
					t.Fatalf("%v: request %d: got %+v", p, len(all), d)
				}
				all = append(all, one)
			}
			for n, k := range order {
				left := uint64(6)
				if n == 2 {
					left = 9
				}
				if d := all[k].Deny(); d.Remaining != left || d.Unsettled {
					t.Errorf("%v, denied in the order %v: the decision of %d is %+v, want %d remaining", p, order, k, d, left)
				}
			}
			want, receipts := uint64(6), 1
			if len(order) == 3 {
				want, receipts = 9, 0
			}
			if got := take(t, s, slow(p, key, 9, 0, 0))[0].Remaining; got != want {
				t.Errorf("%v, denied in the order %v: %d remain, want %d", p, order, got, want)
			}
			names := client.Keys(t.Context(), "{"+key+"}*:o*").Val()
			if len(names) != receipts {
				t.Errorf("%v, denied in the order %v: got the receipts %q, want %d", p, order, names, receipts)
			}
			for _, name := range names {
				if ttl := client.PTTL(t.Context(), name).Val(); ttl < 50*time.Minute || ttl > time.Hour+time.Second {
					t.Errorf("%v, denied in the order %v: the receipt lives for %v, want an hour", p, order, ttl)
				}
			}
			// A charge covers two repeats besides the first request that was not denied.
			for n := range 3 {
				repeated := len(order) < 3 && n < len(order) || len(order) == 3 && n > 0
				if d := take(t, s, slow(p, key, 9, 2, 1))[0]; d.Repeated != repeated {
					t.Errorf("%v, denied in the order %v: repeat %d: got %+v, want repeated %v", p, order, n, d, repeated)
				}
			}
		}
	}
	if got := s.Stats(); got.NotTakenBack != 0 || got.TakenBack == 0 {
		t.Errorf("got %+v, want nothing that was not taken back", got)
	}
}

// TestUndoWithoutReceipt: a request takes its charge back, and no other one, if its receipt has
// gone, is that of a later charge, or is something else.
func TestUndoWithoutReceipt(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s, set := newUndoStore(t, client, redisstore.Options{})
	now := time.Duration(0)
	for name, change := range map[string]func(receipt string, c window.Check) (charged uint64){
		"gone": func(receipt string, _ window.Check) uint64 {
			client.Del(t.Context(), receipt)
			return 0
		},
		"later": func(_ string, c window.Check) uint64 {
			now += c.Once.For
			set(now)
			if d := take(t, s, c)[0]; d.Repeated {
				t.Errorf("the receipt has ended: got %+v", d)
			}
			return 1
		},
		"list": func(receipt string, _ window.Check) uint64 {
			client.Del(t.Context(), receipt)
			client.RPush(t.Context(), receipt, "a")
			return 0
		},
		"text": func(receipt string, _ window.Check) uint64 {
			client.Set(t.Context(), receipt, "7", 0)
			return 0
		},
		"longer": func(receipt string, _ window.Check) uint64 {
			client.Append(t.Context(), receipt, "x")
			return 0
		},
		"much longer": func(receipt string, _ window.Check) uint64 {
			client.Append(t.Context(), receipt, strings.Repeat("x", 12))
			return 0
		},
		"other kind": func(receipt string, _ window.Check) uint64 {
			client.SetRange(t.Context(), receipt, 0, "\xa0")
			return 0
		},
		"whose repeats have gone": func(receipt string, _ window.Check) uint64 {
			client.SetRange(t.Context(), receipt, 12, "\x00")
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := slow(window.Sliding, name, 9, 1, 1)
			first, _ := s.TakePending(t, c)
			repeat, d := s.TakePending(t, c)
			if !d.Repeated {
				t.Fatalf("got %+v, want a repeat", d)
			}
			names := client.Keys(t.Context(), "*{"+name+"}*:o*").Val()
			if len(names) != 1 {
				t.Fatalf("got the receipts %q, want one", names)
			}
			charged := change(names[0], c)
			before := client.Dump(t.Context(), names[0]).Val()
			repeat.Deny()
			if got := 9 - take(t, s, slow(window.Sliding, name, 9, 0, 0))[0].Remaining; name != "later" && got != 1 || name == "later" && got != 2 {
				t.Errorf("after the repeat was denied, %d are charged", got)
			}
			if name != "whose repeats have gone" { // then the first would be the last
				first.Deny()
			}
			if got := 9 - take(t, s, slow(window.Sliding, name, 9, 0, 0))[0].Remaining; got != charged {
				t.Errorf("after both were denied, %d are charged, want %d", got, charged)
			}
			if after := client.Dump(t.Context(), names[0]).Val(); after != before {
				t.Errorf("the value is %q, want it as it was: %q", after, before)
			}
		})
	}
}

// TestUndoIsTold: if a charge is taken back by another request than the one that made it, it may be
// long ago that its log was marked. So those who remember denials are told.
func TestUndoIsTold(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s, set := newUndoStore(t, client, redisstore.Options{Prefix: "p:", Refunds: "p:refunds"})
	sub := client.Subscribe(t.Context(), "p:refunds")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil { // until it is subscribed
		t.Fatal(err)
	}
	var want []string
	for _, p := range []window.Policy{window.Sliding, window.TokenBucket} {
		c := slow(p, p.String(), 1, 1, 1)
		first, _ := s.TakePending(t, c)
		repeat, _ := s.TakePending(t, c)
		if d := first.Deny(); d.Remaining != 0 || !d.Unsettled {
			t.Errorf("%v: the charge is left to the repeat: got %+v, want it unsettled", p, d)
		}
		set(time.Minute)
		if d := take(t, s, slow(p, p.String(), 1, 1, 2))[0]; d.Allowed || d.Unsettled {
			t.Errorf("%v: got %+v, want a denial that can be remembered", p, d)
		}
		if d := repeat.Deny(); d.Remaining != 1 || d.Unsettled {
			t.Errorf("%v: the repeat: got %+v, want nothing charged", p, d)
		}
		want = append(want, redisstore.KeyName("p:", c.Log()))
		set(0)
	}
	// What a request takes back of its own marks the log, and is not told.
	own, _ := s.TakePending(t, slow(window.Sliding, "own", 1, 1, 1))
	own.Deny()
	if err := client.Publish(t.Context(), "p:refunds", "end").Err(); err != nil {
		t.Fatal(err)
	}
	var told []string
	for {
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload == "end" {
			break
		}
		told = append(told, m.Payload)
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestUndoFails: what a request cannot take out of its receipt is counted, whether it made it or not.
func TestUndoFails(t *testing.T) {
	server := servers.StartRedis(t)
	s, _ := newUndoStore(t, newClient(t, server.Addr()), redisstore.Options{})
	first, _ := s.TakePending(t, slow(window.Sliding, "k", 9, 3, 1))
	repeat, _ := s.TakePending(t, slow(window.Sliding, "k", 9, 2, 1))
	server.Stop()
	for i, one := range []*redisstore.Pending{first, repeat} {
		if d := one.Deny(); !d.Unsettled {
			t.Errorf("request %d: got %+v, want it unsettled", i, d)
		}
	}
	if got := s.Stats().NotTakenBack; got != 5 {
		t.Errorf("%d hits were not taken back, want 5", got)
	}
}

// A holding is a charge and who holds it: the requests that were let in by it and were not denied.
type holding struct {
	cost    uint64
	holders int
	ends    time.Duration // of its receipt; 0: it has none
	left    bool          // the first request was denied before others
}

// An undoHistory plays requests at one log, of which another slot denies some, against a model.
type undoHistory struct {
	t        *testing.T
	r        *rand.Rand
	client   *redis.Client
	s        *redisstore.Store
	set      func(time.Duration)
	key      string
	policy   window.Policy
	life     time.Duration // of receipts
	now      time.Duration
	receipts map[uint64]*holding
	charges  []*holding
	pending  []pendingOf
	steps    []string
}

// A pendingOf is a request that may still be denied.
type pendingOf struct {
	*redisstore.Pending
	of    *holding
	first bool
	since time.Duration
}

const (
	undoHits = 40
	// undoAfter is the longest time after which a request is denied: shorter than a receipt stays.
	undoAfter = 900 * time.Millisecond
)

// take takes one check, and lets the model judge.
func (h *undoHistory) take() {
	c := slow(h.policy, h.key, undoHits, 1+h.r.Uint64N(3), h.r.Uint64N(3))
	c.Once.For = h.life
	one, got := h.s.TakePending(h.t, c)
	if c.Once.ID != 0 {
		h.client.Persist(h.t.Context(), fmt.Sprintf("%s:o%016x", redisstore.KeyName("", c.Log()), c.Once.ID)) // the clock is not the server's
	}
	used := h.used()
	of := h.receipts[c.Once.ID]
	stays := of != nil && (h.now < of.ends || of.left && of.holders > 0 && h.now < of.ends+time.Second)
	repeated := of != nil && c.Once.ID != 0 && of.holders > 0 && h.now < of.ends && c.Cost <= of.cost && of.holders <= int(c.Once.Repeats)
	allowed := repeated || c.Cost <= undoHits-used
	h.steps = append(h.steps, fmt.Sprintf("%v: attempt %d, cost %d: %+v", h.now, c.Once.ID, c.Cost, got))
	if got.Allowed != allowed || got.Repeated != repeated {
		h.fail("allowed %v, repeated %v; want %v, %v", got.Allowed, got.Repeated, allowed, repeated)
	}
	switch {
	case !allowed:
		return
	case repeated:
		of.holders++
	default:
		stays = stays && of.holders > 0
		of = &holding{cost: c.Cost, holders: 1}
		h.charges = append(h.charges, of)
		if c.Once.ID != 0 && !stays {
			of.ends = h.now + h.life
			h.receipts[c.Once.ID] = of
		}
	}
	h.pending = append(h.pending, pendingOf{one, of, !repeated, h.now})
}

// settle denies or allows a pending request.
func (h *undoHistory) settle(i int) {
	one := h.pending[i]
	h.pending = slices.Delete(h.pending, i, i+1)
	if h.r.IntN(4) == 0 {
		h.steps = append(h.steps, fmt.Sprintf("%v: the one of %v is allowed", h.now, one.since))
		return
	}
	one.of.holders--
	one.of.left = one.of.left || one.first
	got := one.Deny()
	h.steps = append(h.steps, fmt.Sprintf("%v: the one of %v is denied: %+v", h.now, one.since, got))
}

// pass lets time pass, and settles what is over before.
func (h *undoHistory) pass() {
	d := []time.Duration{0, time.Microsecond, 50 * time.Millisecond, 300 * time.Millisecond, 0}[h.r.IntN(5)]
	if h.r.IntN(10) == 0 {
		for len(h.pending) > 0 {
			h.settle(h.r.IntN(len(h.pending)))
		}
		for _, of := range h.receipts { // near the end of a receipt
			if to := of.ends - []time.Duration{time.Microsecond, 500 * time.Millisecond}[h.r.IntN(2)]; to > h.now {
				d = to - h.now
			}
		}
	}
	for len(h.pending) > 0 && h.now+d-h.pending[0].since > undoAfter {
		h.settle(0)
	}
	h.now += d
	h.set(h.now)
}

// used returns what the model has in the log.
func (h *undoHistory) used() (sum uint64) {
	for _, of := range h.charges {
		if of.holders > 0 {
			sum += of.cost
		}
	}
	return sum
}

func (h *undoHistory) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%v\n%s\n%s", h.policy, strings.Join(h.steps, "\n"), fmt.Sprintf(format, args...))
}

// check compares the log with the model.
func (h *undoHistory) check() {
	h.t.Helper()
	if got, want := undoHits-take(h.t, h.s, slow(h.policy, h.key, undoHits, 0, 0))[0].Remaining, h.used(); got != want {
		h.fail("%d are charged, want %d", got, want)
	}
}

// TestUndoHistories: whatever requests with a few keys do at one log, and whenever another slot
// denies some of them, each charge stays as long as a request holds it that was not denied.
func TestUndoHistories(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	seed := random.Seed(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	r := rand.New(rand.NewPCG(seed, 0))
	s, set := newUndoStore(t, client, redisstore.Options{})
	complete := 0
	for i := range 600 {
		h := &undoHistory{
			t: t, r: r, client: client, s: s, set: set, key: fmt.Sprint("k", i), policy: undoPolicies[i%len(undoPolicies)],
			life: []time.Duration{time.Second, time.Hour}[r.IntN(2)], receipts: make(map[uint64]*holding),
		}
		set(0)
		lost := s.Stats().NotTakenBack
		for range 40 {
			switch n := len(h.pending); {
			case r.IntN(2) == 0 && n < 8:
				h.take()
			case r.IntN(2) == 0 && n > 0:
				h.settle(r.IntN(n))
			default:
				h.pass()
			}
			if s.Stats().NotTakenBack != lost {
				break // the machine was too slow for the time that a request has
			}
			h.check()
		}
		for len(h.pending) > 0 {
			h.settle(r.IntN(len(h.pending)))
		}
		if s.Stats().NotTakenBack == lost {
			h.check()
			complete++
		}
	}
	if complete < 300 {
		t.Errorf("%d histories were played to their ends, want at least 300", complete)
	}
}

// TestOnceDeniedAtOnce: requests with one key are at two stores at once, and one of the stores
// denies some of them. If all are denied, nothing is charged, and otherwise it is charged once.
func TestOnceDeniedAtOnce(t *testing.T) {
	t.Run("Scopes", func(t *testing.T) {
		s, stores := openPair(t, newClient(t, servers.Redis(t)))
		deniedAtOnce(t, s, stores[0].Stats, "r", "g", 1)
	})
	t.Run("Slots", func(t *testing.T) {
		c := startCluster(t)
		s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: patient})
		t.Cleanup(func() { _ = s.Close() })
		keys := onSlotsOf(c)
		deniedAtOnce(t, s, s.Stats, keys[0], keys[1], 0)
	})
}

// deniedAtOnce plays rounds of six requests with one key. What tag has charges once, and what is
// in the scope beside it denies some.
func deniedAtOnce(t *testing.T, s window.Store, stats func() redisstore.Stats, tag, other string, scope window.Scope) {
	const callers = 6
	full, open := in(scope, hour("{"+other+"}full", 1, 1)), in(scope, hour("{"+other+"}open", 1_000_000, 1))
	take(t, s, full)
	met := make(map[string]int)
	for round := range 120 {
		once := hour(fmt.Sprintf("{%s}%d", tag, round), 9, 1)
		once.Once = window.Once{ID: 1, For: time.Hour, Repeats: 100}
		lost, denied := stats().NotTakenBack, round%callers+1
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				gate := open
				if i < denied {
					gate = full
				}
				got := make([]window.Decision, 2)
				if _, err := s.Take(t.Context(), window.MayWait, []window.Check{once, gate}, got); err != nil || windowtest.Allowed(got) != (i >= denied) {
					t.Errorf("round %d: got %+v, error %v; want allowed %v", round, got, err, i >= denied)
				}
			})
		}
		all.Wait()
		want := uint64(1)
		if denied == callers {
			want = 0
		}
		once.Once, once.Cost = window.Once{}, 0
		if got := 9 - take(t, s, once)[0].Remaining; got < want || got > want+stats().NotTakenBack-lost {
			t.Errorf("round %d, %d of %d denied: %d are charged, want %d", round, denied, callers, got, want)
		}
		met[fmt.Sprint(want)]++
	}
	if len(met) != 2 {
		t.Errorf("got the rounds %v, want some of both kinds", met)
	}
}
