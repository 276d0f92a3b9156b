package redisstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

func TestBudgets(t *testing.T) {
	addr := servers.Redis(t)
	client, other := newClient(t, addr), newClient(t, addr)
	n := 0 // every harness has its own keys and clock on the one server
	met := make(map[string]int)
	policytest.RunBudgets(t, windowtest.Options{Steps: 15_000}, func(t *testing.T) policytest.InFlightHarness {
		n++
		clockKey, o := fmt.Sprintf("clock%d", n), redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}
		var clock time.Duration
		twin := memstore.New(memstore.Options{Clock: func() time.Duration { return clock }, SweepInterval: -1})
		return policytest.InFlightHarness{
			Stores: []window.Store{redisstore.NewWithClock(t, client, o, clockKey), redisstore.NewWithClock(t, other, o, clockKey)},
			SetNow: func(now time.Duration) { clock = epoch + now; setClock(t, client, clockKey, now) },
			Epoch:  epoch,
			Twin:   twin,
			Differs: func(t *testing.T, id window.LogID) string {
				t.Helper()
				return differs(t, twin, clock, client, o.Prefix, id, met)
			},
		}
	})
	t.Logf("%v", met)
	for _, what := range []string{"small", "large", "large with holes"} {
		if met[what] == 0 {
			t.Errorf("no reservations were compared that are %s", what)
		}
	}
}

// differs compares what is reserved of a log with what a store in memory saves, which leaves out what does not count any
// more.
func differs(t *testing.T, twin *memstore.Store, clock time.Duration, client *redis.Client, prefix string, id window.LogID, met map[string]int) string {
	t.Helper()
	var saved bytes.Buffer
	if _, err := twin.Save(&saved); err != nil {
		t.Fatal(err)
	}
	_, want, found := bytes.Cut(saved.Bytes(), []byte(id.Key+"\xa5"))
	if !found {
		return ""
	}
	got, err := client.Get(t.Context(), redisstore.KeyName(prefix, id)+":r").Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	const header, slot = 58, 21
	if len(got) < header || !bytes.HasPrefix(want, redisstore.WithoutExpiry(got)[1:]) {
		return fmt.Sprintf("Redis has\n%x\nand memory, before other logs,\na5%x", got, want[:min(len(want), len(got)+header)])
	}
	contents, err := packed.Decode(got)
	if err != nil {
		t.Fatal(err)
	}
	// The end of the last hold, and how long it counts afterwards. The server's own time goes on meanwhile.
	counts := time.Duration(binary.BigEndian.Uint64(got[43:])&(1<<48-1))*time.Millisecond + time.Duration(binary.BigEndian.Uint32(got[20:]))*time.Second - clock
	if ttl := client.PTTL(t.Context(), redisstore.KeyName(prefix, id)+":r").Val(); counts > 10*time.Minute && ttl < counts/2 {
		return fmt.Sprintf("the reservations count for %v, and Redis keeps them for %v", counts, ttl)
	}
	switch slots := (len(got) - header) / slot; {
	case slots <= 32:
		met["small"]++
	case slots > len(contents.Holds):
		met["large with holes"]++
	default:
		met["large"]++
	}
	return ""
}

// TestShortestHold: reservations of one log that last for different times say how long the shortest lasts, in whatever
// order they come.
func TestShortestHold(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	setClock(t, client, "clock", time.Hour)
	twin := memstore.New(memstore.Options{Clock: func() time.Duration { return epoch + time.Hour }, SweepInterval: -1})
	s := redisstore.NewWithClock(t, client, redisstore.Options{}, "clock")
	defer s.Close()
	for _, key := range []string{"{falls}", "{rises}"} {
		c := window.Check{Key: key, Cost: 1, Limit: window.Limit{Hits: 10, Window: time.Hour}}
		for stream := range window.StreamID(2) {
			c.Stream, c.Budget = stream+1, &window.Budget{Hold: 5 * time.Second}
			if (stream == 0) == (key == "{falls}") {
				c.Budget.Hold *= 2
			}
			for _, store := range []window.Store{s, twin} {
				var d [1]window.Decision
				if _, err := store.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil || !d[0].Allowed {
					t.Fatalf("%s: %+v, %v", key, d, err)
				}
			}
		}
		if text := differs(t, twin, epoch+time.Hour, client, "", c.Log(), make(map[string]int)); text != "" {
			t.Errorf("%s: %s", key, text)
		}
		const at = 16
		if b, err := client.Get(t.Context(), redisstore.KeyName("", c.Log())+":r").Bytes(); err != nil || binary.BigEndian.Uint32(b[at:]) != 5000 {
			t.Errorf("%s: %x, %v", key, b, err)
		}
	}
}

// TestBudgetsCluster runs what needs no clock on a cluster, where streams and logs are on several
// servers.
func TestBudgetsCluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	client, other := newClusterClient(t, cluster), newClusterClient(t, cluster)
	n := 0
	policytest.RunBudgets(t, windowtest.Options{RealClock: true}, func(t *testing.T) policytest.InFlightHarness {
		n++
		o := redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}
		stores := []window.Store{redisstore.New(client, o), redisstore.New(other, o)}
		for _, s := range stores {
			t.Cleanup(func() { s.Close() })
		}
		return policytest.InFlightHarness{Stores: stores}
	})
	// An end that has failed in the middle comes again: it charges a stream that has reserved nothing once.
	s := redisstore.New(client, redisstore.Options{Prefix: "again:"})
	defer s.Close()
	cost := window.Check{Key: "{k}", Mode: window.Always, Cost: 5, Limit: window.Limit{Hits: 100, Window: time.Hour}}
	for i, costs := range [][]window.Check{nil, {cost}, {cost}} {
		if got, err := s.End(t.Context(), window.Ending{Stream: 1, Deny: time.Minute, Costs: costs}); err != nil || (len(got.Logs) == 1) != (i == 1) {
			t.Errorf("end %d: %+v, %v", i, got, err)
		}
	}
}

// TestExpiredOnACluster: the end of a denied stream, which the log then denies, reports what has expired too, and once.
func TestExpiredOnACluster(t *testing.T) {
	s := redisstore.New(newClusterClient(t, servers.StartCluster(t)), redisstore.Options{})
	defer s.Close()
	c := window.Check{Key: "{k}", Cost: 60, Limit: window.Limit{Hits: 100, Window: time.Hour}, Budget: &window.Budget{Hold: window.MinHold}}
	decide := func() (d [1]window.Decision) {
		c.Stream++
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := decide(); !d[0].Allowed {
		t.Fatalf("%+v", d)
	}
	var all window.Expired
	for after := 0; after < 3; {
		if all.Holds > 0 {
			after++
		}
		if d := decide(); d[0].Allowed || d[0].Expired.Holds > 0 {
			t.Fatalf("%+v: want a denial", d)
		}
		settled, err := s.End(t.Context(), window.Ending{Stream: c.Stream, Denied: true})
		if err != nil || settled.Released {
			t.Fatalf("%+v, %v", settled, err)
		}
		for _, l := range settled.Logs {
			if l.Reserved+l.Spent > 0 || l.Cost >= 0 || l.Log != c.Log() {
				t.Errorf("%+v: want nothing but what has expired", l)
			}
			all.Holds, all.Units = all.Holds+l.Expired.Holds, all.Units+l.Expired.Units
		}
	}
	if want := (window.Expired{Holds: 1, Units: 60}); all != want {
		t.Errorf("%+v has expired, want %+v", all, want)
	}
}

// TestDamagedBudgets changes bytes of what streams have reserved, and of what is known of them. No call fails because
// of that, and a reservation that cannot be read is reported.
func TestDamagedBudgets(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	corrupt := 0
	s := redisstore.New(client, redisstore.Options{Corrupt: func(time.Duration) { corrupt++ }})
	defer s.Close()
	r := random.Rand(t, 41)
	budget := &window.Budget{Hold: time.Minute}
	for i := range 600 {
		stream := window.StreamID(1000*i + 1)
		c := window.Check{Key: fmt.Sprintf("{%d}", i/20), Cost: 1, Stream: stream, Budget: budget, Limit: window.Limit{Hits: 1000, Window: time.Hour, Policy: window.Policy(i / 20 % 5)}}
		switch c.Limit.Policy {
		case window.TokenBucket:
			c.Limit.Rate = 10
		case window.Calendar:
			now := time.Now().Unix()
			c.Period = window.Period{Start: now - 100, End: now + 1000, Next: now + 2000}
		}
		var d [1]window.Decision
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		keys := []string{redisstore.KeyName("", c.Log()) + ":r", fmt.Sprintf("{%016x}:s", uint64(stream))}
		key := keys[r.IntN(2)]
		value, err := client.Get(t.Context(), key).Bytes()
		if err == nil && r.IntN(2) == 0 {
			for range 1 + r.IntN(3) {
				value[r.IntN(len(value))] = byte(r.Uint32())
			}
			if r.IntN(3) == 0 {
				value = value[:r.IntN(len(value))]
			}
			client.Set(t.Context(), key, value, time.Minute)
		}
		if r.IntN(3) == 0 {
			cost := c
			cost.Mode, cost.Stream, cost.Budget = window.Always, 0, nil
			if _, err := s.End(t.Context(), window.Ending{Stream: stream, Costs: []window.Check{cost}[:r.IntN(2)]}); err != nil {
				t.Fatalf("End after %x: %v", value, err)
			}
		}
	}
	if corrupt < 20 {
		t.Errorf("%d values were corrupt", corrupt)
	}
}

// TestDamagedBudgetInADryRun: a reservation that cannot be read is reported once, also if the group begins with a check that
// is always charged, so that its checks are judged twice.
func TestDamagedBudgetInADryRun(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	corrupt := 0
	s := redisstore.New(client, redisstore.Options{Corrupt: func(time.Duration) { corrupt++ }})
	defer s.Close()
	checks := make([]window.Check, 5)
	for i := range checks {
		checks[i] = window.Check{Key: fmt.Sprintf("{k}%d", i), Cost: 1, Limit: window.Limit{Hits: 100, Window: time.Hour}}
	}
	budget := &checks[4]
	checks[0].Mode, budget.Stream, budget.Budget = window.Always, 1, &window.Budget{Hold: time.Minute}
	client.Set(t.Context(), redisstore.KeyName("", budget.Log())+":r", "noise", time.Hour)
	d := make([]window.Decision, len(checks))
	if _, err := s.Take(t.Context(), window.MayWait, checks, d); err != nil || corrupt != 1 || d[4].Reserved != 1 {
		t.Errorf("%d values were corrupt, %+v, error %v", corrupt, d, err)
	}
}

// TestBudgetsInScopes reserves in two scopes at once, or in none. One end settles both.
func TestBudgetsInScopes(t *testing.T) {
	stores := []*redisstore.Store{
		redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{}),
		redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{}),
	}
	s := redisstore.NewScopes([]string{"region", "global"}, stores)
	defer s.Close()
	s.Holds(0)
	s.Holds(1)
	budget := &window.Budget{Hold: time.Minute}
	check := func(stream window.StreamID, scope window.Scope, cost uint64) window.Check {
		return window.Check{Key: "{k}", Limit: window.Limit{Hits: 100, Window: time.Hour}, Cost: cost, Stream: stream, Budget: budget, Scope: scope}
	}
	group := func(stream window.StreamID, region, global uint64) [2]window.Decision {
		var d [2]window.Decision
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{check(stream, 0, region), check(stream, 1, global)}, d[:]); err != nil {
			t.Fatal(err)
		}
		return d
	}
	group(1, 60, 70)
	if d := group(2, 40, 40); d[1].Allowed {
		t.Fatalf("110 of 100: %+v", d)
	}
	if d := group(9, 0, 0); d[0].Reserved != 60 || d[1].Reserved != 70 {
		t.Fatalf("the denied request has reserved something: %+v", d)
	}
	cost := check(0, 1, 25)
	cost.Mode, cost.Budget = window.Always, nil
	settled, err := s.End(t.Context(), window.Ending{Stream: 1, Costs: []window.Check{cost}})
	if err != nil || len(settled.Logs) != 2 || !settled.Released {
		t.Fatalf("the end: %+v, error %v", settled, err)
	}
	for _, l := range settled.Logs {
		want := window.SettledLog{Log: cost.Log(), Reserved: 70, Spent: 25, Remaining: 75}
		if l.Log.Scope == 0 {
			want = window.SettledLog{Log: check(0, 0, 0).Log(), Cost: -1, Reserved: 60, Spent: 60, Remaining: 40}
		}
		if l != want {
			t.Errorf("got %+v, want %+v", l, want)
		}
	}
}

// TestHoldsFull: a budget that has [window.MaxHolds] reservations denies the next one, and says why.
func TestHoldsFull(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{})
	defer s.Close()
	c := window.Check{Key: "{k}", Cost: 1, Stream: 1 << 40, Budget: &window.Budget{Hold: time.Hour}, Limit: window.Limit{Hits: 1 << 20, Window: time.Hour}}
	now := time.Now()
	for n := window.MaxHolds - 1; n <= window.MaxHolds; n++ { // as holds.lua has them
		ends := binary.BigEndian.AppendUint64(nil, uint64(now.Add(time.Minute).UnixMilli()))[2:]
		hold := append(bytes.Clone(ends), 0, 0, 0, 0, 0, 0, 1)
		b := binary.BigEndian.AppendUint64(nil, 165<<56|uint64(now.UnixMicro()))
		b = binary.BigEndian.AppendUint64(b, uint64(n))
		b = binary.BigEndian.AppendUint64(b, uint64(time.Hour.Milliseconds())<<32)
		b = binary.BigEndian.AppendUint64(b, uint64(n)<<16|uint64(n))
		b = append(append(append(b, 0, 0, 0, 0, 0, byte(n>>8), byte(n)), ends...), hold...)
		for i := range n {
			b = append(binary.BigEndian.AppendUint64(b, uint64(i+1)), hold...)
		}
		client.Set(t.Context(), redisstore.KeyName("", c.Log())+":r", b, time.Hour)
		var d [1]window.Decision
		full := n == window.MaxHolds
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil || d[0].HoldsFull != full || d[0].Allowed == full || d[0].Reserved < uint64(n) {
			t.Errorf("%d reservations: %+v, %v", n, d[0], err)
		}
	}
}

// TestEndsAmongMany: streams that share a log end in any order, and leave nothing, in flight and under a budget.
func TestEndsAmongMany(t *testing.T) {
	const streams = 500
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{})
	defer s.Close()
	for _, c := range []window.Check{
		{Key: "{k}", Cost: 1, Limit: window.Limit{Hits: streams, Window: time.Hour, Policy: window.InFlight}},
		{Key: "{k}", Cost: 1, Limit: window.Limit{Hits: streams, Window: time.Hour}, Budget: &window.Budget{Hold: time.Hour}},
	} {
		for stream := range window.StreamID(streams) {
			var d [1]window.Decision
			c.Stream = 1<<60 + stream
			if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil || !d[0].Allowed {
				t.Fatalf("stream %d: %+v, error %v", stream, d[0], err)
			}
		}
		for i := range window.StreamID(streams) {
			stream := i * 389 % streams
			if settled, err := s.End(t.Context(), window.Ending{Stream: 1<<60 + stream, Unreached: true}); err != nil || !settled.Released {
				t.Fatalf("the end of stream %d: %+v, error %v", stream, settled, err)
			}
		}
		key := redisstore.KeyName("", c.Log())
		if left, err := client.Exists(t.Context(), key+":r").Result(); err != nil || left != 0 {
			t.Errorf("%d keys are left, error %v", left, err)
		}
		if left, err := client.Exists(t.Context(), key).Result(); err != nil || c.Budget == nil && left != 0 {
			t.Errorf("%d keys are left, error %v", left, err)
		}
	}
}
