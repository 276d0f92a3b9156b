package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/servers"
)

func TestOnce(t *testing.T) {
	policytest.RunOnce(t, windowtest.Options{Steps: 15_000}, harnesses(t))
}

// tagged returns a check of an attempt, whose key has a hash tag.
func tagged(key string, hits, cost, attempt uint64) window.Check {
	c := check("{"+key+"}x", hits, cost)
	c.Limit.Window = time.Hour
	c.Once = window.Once{ID: attempt, For: time.Hour, Repeats: 2}
	return c
}

// onceRecordOf returns the name and the value of the one idempotency record in a Redis.
func onceRecordOf(t *testing.T, c redis.Cmdable) (name string, r packed.OnceRecord) {
	t.Helper()
	for _, name = range c.Keys(t.Context(), "*:o*").Val() {
		if r, ok := packed.ReadOnceRecord([]byte(c.Get(t.Context(), name).Val())); ok {
			return name, r
		}
	}
	return "", r
}

// TestOnceRecord has the name, the bytes and the life of an idempotency record.
func TestOnceRecord(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: patient})
	defer s.Close()
	c := tagged("a", 9, 3, 0xabc)
	before := client.Time(t.Context()).Val().UnixMicro()
	take(t, s, c)
	name, r := onceRecordOf(t, client)
	if want := "p:{a}x:3600000000:o0000000000000abc"; name != want || window.HashTag(name) != window.HashTag(redisstore.KeyName("p:", c.Log())) {
		t.Errorf("got the name %q, want %q", name, want)
	}
	if took := r.Ends - before - time.Hour.Microseconds(); r.Cost != 3 || r.Repeats != 0 || took < 0 || took > time.Minute.Microseconds() {
		t.Errorf("got %+v, made at %d", r, before)
	}
	if ttl := client.PTTL(t.Context(), name).Val(); ttl > time.Hour+time.Second || ttl < time.Hour-time.Minute {
		t.Errorf("it lives for %v, want an hour", ttl)
	}
	take(t, s, c)
	if ttl := client.PTTL(t.Context(), name).Val(); ttl > time.Hour+time.Second {
		t.Errorf("after a repeat it lives for %v, want no longer than before", ttl)
	}
	if _, now := onceRecordOf(t, client); now.Ends != r.Ends || now.Repeats != 1 {
		t.Errorf("after a repeat: got %+v, want the end and one repeat more than %+v", now, r)
	}
	if ids, _, err := s.List(t.Context(), inspect.Match{}, ""); err != nil || len(ids) != 1 {
		t.Errorf("the list has %v, error %v, want the log alone", ids, err)
	}
	if _, err := s.Remove(t.Context(), []window.LogID{c.Log()}); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, c)[0]; !d.Repeated || d.Remaining != 9 {
		t.Errorf("after the log was removed: got %+v, want a repeat, and nothing used", d)
	}
}

// TestCorruptOnceRecord: a value that is no idempotency record is removed and reported.
func TestCorruptOnceRecord(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	told := 0
	s := redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: patient, Corrupt: func(time.Duration) { told++ }})
	defer s.Close()
	c := tagged("a", 100, 1, 1)
	take(t, s, c)
	name, good := onceRecordOf(t, client)
	bytes := client.Get(t.Context(), name).Val()
	for i, put := range []func(context.Context) error{
		func(ctx context.Context) error { return client.Set(ctx, name, "7", 0).Err() },
		func(ctx context.Context) error { return client.Set(ctx, name, bytes+"x", 0).Err() },
		func(ctx context.Context) error { return client.Set(ctx, name, bytes+strings.Repeat("x", 12), 0).Err() },
		func(ctx context.Context) error { return client.Set(ctx, name, "\xa0"+bytes[1:], 0).Err() },
		func(ctx context.Context) error { return client.Set(ctx, name, strings.Repeat("x", 100_000), 0).Err() },
		func(ctx context.Context) error { return client.RPush(ctx, name, "a").Err() },
	} {
		if err := client.Del(t.Context(), name).Err(); err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context()); err != nil {
			t.Fatal(err)
		}
		first, second := take(t, s, c)[0], take(t, s, c)[0]
		if first.Repeated || !second.Repeated || first.Remaining != uint64(98-i) || second.Remaining != first.Remaining || told != i+1 {
			t.Errorf("value %d: got %+v, %+v, told of %d; want one charge, one repeat, and %d", i, first, second, told, i+1)
		}
	}
	// An idempotency record that claims to be eternal or used up is one.
	good.Repeats = 255
	value := make([]byte, packed.OnceRecordBytes(good.Cost))
	good.Put(value)
	if err := client.Set(t.Context(), name, value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, c)[0]; d.Repeated || !d.Allowed {
		t.Errorf("all repeats are used: got %+v", d)
	}
}

// TestOnceAcrossSlots: a request on several servers has no idempotency records, so it is charged each time, and
// a client saves nothing by crossing slots. If one server denies, nothing is charged.
func TestOnceAcrossSlots(t *testing.T) {
	c := startCluster(t)
	client := newClusterClient(t, c)
	s := redisstore.New(client, redisstore.Options{Timeout: patient})
	t.Cleanup(func() { _ = s.Close() })
	keys := onSlotsOf(c)
	once := tagged(keys[0], 6, 1, 1)
	for i, step := range []struct {
		other             uint64 // the cost of the other log; 0: the request has one log
		allowed, repeated bool
		remaining         uint64
	}{
		{1, true, false, 5},
		{1, true, false, 4},
		{9, false, false, 4},
		{0, true, false, 3}, // no request before it has left an idempotency record
		{0, true, true, 3},
		{1, true, false, 2},
		{9, false, false, 2},
		{0, true, true, 2},
		{0, true, false, 1},
	} {
		ask := []window.Check{once}
		if step.other > 0 {
			ask = append(ask, hour("{"+keys[1]+"}other", 8, step.other))
		}
		got := take(t, s, ask...)
		if reference.Allowed(got) != step.allowed || got[0].Repeated != step.repeated || got[0].Remaining != step.remaining || got[0].Unsettled {
			t.Fatalf("step %d: got %+v, want %+v", i, got, step)
		}
	}
	if got := s.Stats().NotTakenBack; got != 0 {
		t.Errorf("%d hits could not be taken back, want none", got)
	}
	policytest.RunOnceAtOnce(t, windowtest.Harness{Store: s})
}

// TestOnceInOneCall: requests that share a call of the script are decided in order, each with the
// idempotency records that those before it have left.
func TestOnceInOneCall(t *testing.T) {
	s := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient})
	defer s.Close()
	plain := check("plain", 3, 1)
	var requests []redisstore.Request
	add := func(checks ...window.Check) {
		requests = append(requests, redisstore.Request{Checks: checks, Decisions: make([]window.Decision, len(checks))})
	}
	add(tagged("a", 2, 1, 1))
	add(plain, tagged("a", 2, 1, 1))
	add(tagged("b", 2, 1, 1), plain)
	add(tagged("a", 2, 1, 2), check("zero", 0, 1)) // denied
	add(tagged("a", 2, 1, 2), tagged("b", 2, 1, 1))
	add(plain, tagged("a", 2, 1, 1), plain)
	add(tagged("a", 2, 1, 3))
	add(tagged("a", 2, 1, 1), tagged("a", 2, 1, 2))
	if err := s.TakeAll(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, r := range requests {
		for i, d := range r.Decisions {
			got += fmt.Sprintf("%d%s ", d.Remaining, map[bool]string{true: "r"}[d.Repeated])
			if i == len(r.Decisions)-1 {
				got += fmt.Sprint(reference.Allowed(r.Decisions), "; ")
			}
		}
	}
	want := "1 true; 2 1r true; 1 1 true; 1 0 false; 0 1r true; 1 0r 1 false; 0 false; 0 0 false; "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestOnceWhileASlotMoves: a request with an idempotency key is decided while the slot of its log moves, as one
// without a key is.
func TestOnceWhileASlotMoves(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: 2 * time.Second})
	t.Cleanup(func() { _ = s.Close() })
	one := tagged("tag", 1000, 1, 1)
	slot := c.Slot(redisstore.KeyName("", one.Log()))
	from := c.MasterOfSlot(slot)
	to := c.Masters()[0]
	if to.Addr() == from.Addr() {
		to = c.Masters()[1]
	}
	take(t, s, one)
	ask := func(what string, attempt uint64) {
		t.Helper()
		next := tagged("tag", 1000, 1, attempt)
		if attempt == 0 {
			next.Once = window.Once{}
		}
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{next}, make([]window.Decision, 1)); err != nil {
			t.Errorf("%s: attempt %d: %v", what, attempt, err)
		}
	}
	c.BeginMigration(slot, from, to)
	ask("the log is at the old server", 0)
	ask("the log is at the old server", 1)
	ask("the log is at the old server", 2)
	c.MigrateKeys(slot, from, to, 100)
	ask("the log is at the new server", 0)
	ask("the log is at the new server", 1)
	ask("the log is at the new server", 3)
	c.FinishMigration(slot, from, to)
	ask("afterwards", 4)
}

// TestDeniedOnceRecordWritesNothing: while a server refuses writes, a denied request with an idempotency key does not show
// that it writes again.
func TestDeniedOnceRecordWritesNothing(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	var again atomic.Int64
	s := redisstore.New(client, redisstore.Options{Timeout: patient, Changed: func(c redisstore.Change) {
		if !c.Refuses && !c.Open {
			again.Add(1)
		}
	}})
	defer s.Close()
	take(t, s, tagged("full", 1, 1, 1))
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{tagged("other", 9, 1, 1)}, make([]window.Decision, 1)); failure.Of(err) != failure.Replicas {
		t.Fatalf("got %v, want the class %s", err, failure.Replicas)
	}
	if d := take(t, s, tagged("full", 1, 1, 2))[0]; d.Allowed {
		t.Fatalf("got %+v, want a denial", d)
	}
	if got := again.Load(); got != 0 {
		t.Error("the server is told to write again, and it refuses to")
	}
}
