package memstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
)

// verify holds a store to everything that its parts must agree on.
func verify(t testing.TB, s *Store) {
	t.Helper()
	for i := range s.shards {
		sh := &s.shards[i]
		var (
			logs  int
			bytes int64
			known = make(map[*log]bool)
			held  [owners]int64
		)
		for b := range sh.buckets {
			for l := *sh.bucket(b); l != nil; l = l.next {
				logs++
				bytes += logBytes + int64(len(l.key)) + int64(cap(l.packed))
				known[l] = true
				if sh.owned != nil && !l.ofStream() {
					held[sh.owned.owner(l.key)] += l.size()
				}
				id := l.id()
				if shard, hash := s.shardOf(id); int(shard) != i || hash != l.hash || sh.find(id, hash) != l {
					t.Fatalf("shard %d: %v is where it is not found", i, id)
				}
				if _, err := packed.Decode(l.packed); err != nil && !l.ofStream() && !l.ofOnceRecord() && (!l.ofHolds() || len(l.packed) > 0) {
					t.Fatalf("shard %d: %v: %v", i, id, err)
				}
			}
		}
		if logs != sh.logs || bytes != sh.bytes {
			t.Fatalf("shard %d: %d logs and %d bytes, counted as %d and %d", i, logs, bytes, sh.logs, sh.bytes)
		}
		if bytes > sh.limit {
			t.Fatalf("shard %d: %d bytes, its share is %d", i, bytes, sh.limit)
		}
		if sh.owned != nil && held != sh.owned.bytes {
			t.Fatalf("shard %d: counts of owners are wrong", i)
		}
		if sh.owned != nil && sh.owned.newest != nil && !known[sh.owned.newest] {
			t.Fatalf("shard %d: the newest log of an owner is not in the table", i)
		}
		if n := len(sh.segments) * segmentBuckets; sh.buckets > n || sh.buckets <= n-segmentBuckets {
			t.Fatalf("shard %d: %d buckets in %d segments", i, sh.buckets, len(sh.segments))
		}
		if sh.hand >= sh.buckets || sh.seen > sh.buckets {
			t.Fatalf("shard %d: hand %d, seen %d of %d buckets", i, sh.hand, sh.seen, sh.buckets)
		}
		for k := range sh.candidates.list {
			l := sh.candidates.list[k].log
			if k < sh.candidates.n && !known[l] || k >= sh.candidates.n && l != nil {
				t.Fatalf("shard %d: candidate %d of %d is not in the table", i, k, sh.candidates.n)
			}
			known[l] = false // not twice
		}
	}
}

// TestSomeIsKeptFree: while logs may go, every shard keeps its slack free.
func TestSomeIsKeptFree(t *testing.T) {
	s, _ := boundedStore(t, 2*minShardBytes)
	for i := range 40_000 {
		take(t, s, check(fmt.Sprint("room", i), 100, 1))
	}
	verify(t, s)
	for i := range s.shards {
		if sh := &s.shards[i]; sh.bytes > sh.limit-sh.limit/slackPart {
			t.Errorf("shard %d: %d bytes of %d, want a part of %d free", i, sh.bytes, sh.limit, slackPart)
		}
	}
}

// has reports whether a store has a log, without a look that could change it.
func has(s *Store, c window.Check) bool {
	i, hash := s.shardOf(c.Log())
	return s.shards[i].find(c.Log(), hash) != nil
}

// tryTake is take for calls that may be refused because the store is full.
func tryTake(t testing.TB, s *Store, checks ...window.Check) ([]window.Decision, bool) {
	t.Helper()
	d := make([]window.Decision, len(checks))
	_, err := s.Take(t.Context(), window.MayWait, checks, d)
	if err != nil && !errors.Is(err, ErrFull) {
		t.Fatalf("Take(%+v): got error %v", checks, err)
	}
	return d, err == nil
}

// TestGrowth proves what making room relies on: how much a charge takes at most,
// that need says it exactly, and that it leaves the log alone.
func TestGrowth(t *testing.T) {
	s, now := testStore(t)
	r := rand.New(rand.NewPCG(1, 2))
	for key := range 60 {
		c := check(fmt.Sprint(key), uint64(1+r.IntN(3000)), 1)
		if key%4 == 0 {
			c.Precision = win / time.Duration(1+r.IntN(200))
		}
		if key%4 == 1 {
			c.Limit.Policy = counters[key/4%len(counters)]
		}
		if c.Limit.Policy == window.TokenBucket {
			c.Limit.Rate = uint32(c.Limit.Hits)
		}
		pace := win / time.Duration(1+r.IntN(2*int(c.Limit.Hits)))
		for range 2000 {
			*now += time.Duration(r.Int64N(int64(2 * pace))).Truncate(time.Microsecond)
			if c.Limit.Policy == window.Calendar {
				start := int64(*now/time.Minute) * 60
				c.Period = window.Period{Start: start, End: start + 60, Next: start + 120}
			}
			c.Cost = uint64(1 + r.IntN(2))
			c.Mode = []window.Mode{window.Enforce, window.Enforce, window.Always, window.Refund}[r.IntN(4)]
			a := &checkState{}
			s.locate(a, &c)
			at := s.clock().Microseconds()
			a.look(&c, at)
			if !a.state.Room(&c) {
				continue
			}
			before := a.shard.bytes
			var packed []byte
			if a.log != nil {
				packed = slices.Clone(a.log.packed)
			}
			most, want := a.most(&c), a.need(&c)
			if a.log != nil && string(packed) != string(a.log.packed) {
				t.Fatal("asking what a charge needs has changed the log")
			}
			a.record(&c, at)
			got := a.shard.bytes - before
			if max(got, 0) != want || got > most {
				t.Fatalf("%v of %d: took %d bytes, need says %d, and most %d", c.Mode, c.Cost, got, want, most)
			}
		}
	}
	verify(t, s)
}

// TestShares proves that what the shards may hold adds up to the bound, and that
// small bounds have few shards.
func TestShares(t *testing.T) {
	for size, shards := range map[int64]int{0: 64, -1: 64, 1: 1, 2<<20 - 1: 1, 4<<20 + 3: 4, 256 << 20: 64} {
		s := New(Options{MaxBytes: size, SweepInterval: -1})
		if got := len(s.shards); got != shards {
			t.Errorf("%d bytes: %d shards, want %d", size, got, shards)
		}
		var sum int64
		for i := range s.shards {
			sum += s.shards[i].limit
		}
		if size > 0 && sum != size {
			t.Errorf("%d bytes: shares add up to %d", size, sum)
		}
		s.Close()
	}
}

// TestMaxBytes makes up ever new keys of many lengths, and logs that grow: the bound holds.
func TestMaxBytes(t *testing.T) {
	for _, most := range []int64{1000, 20_000, 400_000} {
		s, now := boundedStore(t, most)
		r := rand.New(rand.NewPCG(3, 4))
		for i := range 20_000 {
			*now += 50 * time.Microsecond
			c := check(fmt.Sprintf("%0*d", 1+r.IntN(100), i), 1000, 1)
			if i%3 > 0 {
				c = check(fmt.Sprint("many", r.IntN(4)), 1000, 1) // reaches 1000 in its window, and 10 kB
			}
			if d, ok := tryTake(t, s, c); ok && !d[0].Allowed && i%3 == 0 {
				t.Fatalf("max %d: call %d: got %+v", most, i, d)
			}
			if got := s.Stats().Bytes; got > most {
				t.Fatalf("max %d: %d bytes", most, got)
			}
		}
		verify(t, s)
		if st := s.Stats(); st.Bytes < most/2 || st.Evicted == 0 {
			t.Errorf("max %d: got %+v", most, st)
		}
	}
}

// TestWhoGoesFirst fills a store of one shard and asks for one key more.
func TestWhoGoesFirst(t *testing.T) {
	type held struct {
		key        string
		hits, cost uint64
		at, window time.Duration
	}
	const s = time.Second
	for _, tt := range []struct {
		name string
		held []held
		at   time.Duration
		goes string // empty: the new one is refused
	}{
		{"the least used", []held{{"a", 10, 5, 0, 0}, {"b", 10, 4, 0, 0}, {"c", 10, 6, 0, 0}}, s, "b"},
		{"the least used of its own limit", []held{{"a", 1000, 400, 0, 0}, {"b", 10, 5, 0, 0}, {"c", 2, 1, 0, 0}}, s, "a"},
		{"idle longest of equals", []held{{"a", 10, 5, 3 * s, 0}, {"b", 20, 10, s, 0}, {"c", 2, 1, 2 * s, 0}}, 4 * s, "b"},
		{"idle longest whatever the window", []held{{"a", 10, 5, 2 * s, 0}, {"b", 10, 5, s, time.Hour}, {"c", 10, 5, 3 * s, time.Minute}}, 4 * s, "b"},
		{"the expired, however much was used", []held{{"a", 10, 1, s, 0}, {"b", 10, 10, 0, 0}, {"c", 10, 1, s, 0}}, 10 * s, "b"},
		{"never one that limits", []held{{"a", 10, 10, 0, 0}, {"b", 10, 9, 0, 0}, {"c", 1, 1, 0, 0}}, s, "b"},
		{"all limit", []held{{"a", 10, 10, 0, 0}, {"b", 3, 3, 0, 0}, {"c", 1, 1, 0, 0}}, s, ""},
		{"more than the limit is used", []held{{"a", 10, 12, 0, 0}, {"b", 10, 9, 0, 0}, {"c", 10, 30, 0, 0}}, s, "b"},
		{"all limit until the first has expired", []held{{"a", 1, 1, 0, 0}, {"b", 1, 1, 2 * s, 0}, {"c", 1, 1, s, 0}}, 10 * s, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, now := boundedStore(t, roomFor(len(tt.held)))
			all := make(map[string]window.Check)
			for _, h := range tt.held {
				*now = h.at
				c := check(h.key, h.hits, h.cost)
				c.Mode = window.Always // may be over the limit
				if h.window > 0 {
					c.Limit.Window = h.window
				}
				take(t, st, c)
				all[h.key] = c
			}
			*now = tt.at
			d, ok := tryTake(t, st, check("new", 10, 1))
			if ok != (tt.goes != "") || ok && !d[0].Allowed {
				t.Fatalf("a new key: got %+v, refused %t", d, !ok)
			}
			for key, c := range all {
				if got := has(st, c); got != (key != tt.goes) {
					t.Errorf("%s is there: %t", key, got)
				}
			}
			if got := has(st, check("new", 10, 1)); got != ok {
				t.Errorf("the new key is there: %t", got)
			}
			verify(t, st)
			want := Stats{Logs: len(tt.held), Bytes: st.Stats().Bytes}
			if !ok {
				want.Refused = 1
			} else if tt.at < 10*s {
				want.Evicted = 1
			}
			if got := st.Stats(); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestTheLastLimitCounts proves that whether a log limits is judged by the limit
// of its last check, denied or not.
func TestTheLastLimitCounts(t *testing.T) {
	s, _ := boundedStore(t, roomFor(1))
	take(t, s, check("a", 10, 5))
	take(t, s, check("a", 5, 1)) // denied
	if _, ok := tryTake(t, s, check("b", 10, 1)); ok {
		t.Error("a log at its lowered limit was dropped")
	}
	take(t, s, check("a", 6, 0))
	if _, ok := tryTake(t, s, check("b", 10, 1)); !ok {
		t.Error("a log below its raised limit was not dropped")
	}
}

// TestObservedLogsAreDropped proves that a log which only checks that never deny have named
// is dropped to make room, however much of its limit is used.
func TestObservedLogsAreDropped(t *testing.T) {
	s, _ := boundedStore(t, roomFor(256))
	for i := range 256 {
		c := check(fmt.Sprint("seen", i), 1, 1)
		c.Mode = window.Observe
		take(t, s, c)
	}
	served := 0
	for ok := true; ok; served++ {
		var d []window.Decision
		if d, ok = tryTake(t, s, check(fmt.Sprint(served), 1, 1)); ok && !d[0].Allowed {
			t.Fatalf("key %d: got %+v", served, d)
		}
	}
	verify(t, s)
	if got := s.Stats(); got.Evicted != 256 || served < 256 {
		t.Errorf("got %+v with %d served, want the 256 that were only observed evicted", got, served)
	}
}

// TestWhoseLimitCounts asks for a log in two modes one after the other, with
// limits of which the first or the second is used up, and then for room.
func TestWhoseLimitCounts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  window.Mode
		hits   uint64
		second window.Mode
		then   uint64
		goes   bool
	}{
		{"enforce, observed as used up", window.Enforce, 10, window.Observe, 5, true},
		{"enforce, used up, observed as not", window.Enforce, 5, window.Observe, 10, false},
		{"enforce, given back under a lower limit", window.Enforce, 10, window.Refund, 5, true},
		{"enforce, used up, given back under a higher limit", window.Enforce, 5, window.Refund, 10, false},
		{"observed, then enforced as used up", window.Observe, 10, window.Enforce, 5, false},
		{"observed as used up, then enforced", window.Observe, 5, window.Enforce, 10, true},
		{"observed, then any as used up", window.Observe, 10, window.Any, 5, false},
		{"any", window.Any, 5, window.Observe, 10, false},
		{"always", window.Always, 5, window.Observe, 10, false},
		{"observed, then always as used up", window.Observe, 10, window.Always, 5, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := boundedStore(t, roomFor(1))
			c := check("k", tt.hits, 5)
			c.Mode = tt.first
			take(t, s, c)
			c = check("k", tt.then, 0)
			c.Mode = tt.second
			take(t, s, c)
			// What is remembered outlives a restart.
			loaded, _, _ := loadAt(t, saved(t, s), 0, roomFor(1))
			for _, s := range []*Store{s, loaded} {
				if _, ok := tryTake(t, s, check("new", 10, 1)); ok != tt.goes {
					t.Errorf("a new key: refused %t, want %t", !ok, !tt.goes)
				}
			}
		})
	}
}

// TestWhoNeedsNothingIsServed proves that a charge for which the bytes are there
// is never refused and drops no log, even in a shard that is over its share.
func TestWhoNeedsNothingIsServed(t *testing.T) {
	for _, size := range []int{1, 2} {
		s, _ := boundedStore(t, roomFor(300))
		group := []window.Check{check("k", 10, 1), check("l", 10, 1)}[:size]
		take(t, s, group...)
		take(t, s, check("another", 10, 1))
		sh := &s.shards[0]
		sh.limit = sh.bytes / 2
		sh.usual = usual(sh.limit)
		if d, ok := tryTake(t, s, group...); !ok || d[0].Remaining != 8 {
			t.Errorf("%d checks: got %+v, refused %t, want 8 left", size, d, !ok)
		}
		if !has(s, check("another", 10, 1)) {
			t.Errorf("%d checks: a log was dropped for nothing", size)
		}
	}
}

// TestTooLargeForItsShare proves that the error says so where no other log is in
// the way, and that none is dropped for what cannot be.
func TestTooLargeForItsShare(t *testing.T) {
	for _, size := range []int{1, 2} {
		s, now := boundedStore(t, 1200)
		take(t, s, check("another", 10, 1))
		group := []window.Check{check("k", 1<<20, 1), check("other", 1<<20, 1)}[:size]
		var err error
		for range 1000 {
			*now += time.Microsecond
			if _, err = s.Take(t.Context(), window.MayWait, group, make([]window.Decision, size)); err != nil {
				break
			}
			take(t, s, check("another", 10, 0))
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "where 1200 fit at most: raise max_bytes") {
			t.Errorf("%d checks: got error %v, want %q that says to raise max_bytes", size, err, ErrFull)
		}
	}
	s, _ := boundedStore(t, roomFor(2))
	take(t, s, check("a", 10, 1))
	take(t, s, check("b", 10, 1))
	group := []window.Check{check("a", 10, 1), check("x", 10, 1), check("y", 10, 1)}
	_, err := s.Take(t.Context(), window.MayWait, group, make([]window.Decision, 3))
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "fit at most: raise max_bytes") {
		t.Errorf("got error %v, want %q that says to raise max_bytes", err, ErrFull)
	}
	if !has(s, check("b", 10, 1)) {
		t.Error("a log was dropped for a group that cannot fit")
	}
	if got := s.Stats().Refused; got != 1 {
		t.Errorf("refused: got %d, want 1", got)
	}
	take(t, s, check("a", 10, 9))
	take(t, s, check("b", 10, 9))
	if _, err := s.Take(t.Context(), window.MayWait, group[1:2], make([]window.Decision, 1)); err != ErrFull { //nolint:errorlint // this one, not one that wraps it
		t.Errorf("where all limit: got error %v, want %q itself", err, ErrFull)
	}
}

// TestFullStoreDecides proves that a store full of limiting logs still answers checks of
// those logs, and checks that need no log.
func TestFullStoreDecides(t *testing.T) {
	s, now := boundedStore(t, roomFor(2))
	take(t, s, check("a", 2, 2))
	*now = 4 * time.Second
	take(t, s, check("b", 2, 2))
	for range 3 {
		if _, ok := tryTake(t, s, check("c", 2, 1)); ok {
			t.Error("a new key: got a decision")
		}
		if d := take(t, s, check("a", 2, 1)); d[0].Allowed || d[0].RetryAfter != 6*time.Second {
			t.Errorf("an old key: got %+v, want denied for 6s", d[0])
		}
		if d := take(t, s, check("c", 2, 0)); !d[0].Allowed || d[0].Remaining != 2 {
			t.Errorf("asking: got %+v, want allowed", d[0])
		}
		if d := take(t, s, check("c", 2, 3)); d[0].Allowed {
			t.Errorf("more than the limit: got %+v, want denied", d[0])
		}
		if d := take(t, s, check("c", 0, 1), check("d", window.Unlimited, 1)); d[0].Allowed || !d[1].Allowed {
			t.Errorf("without a log: got %+v", d)
		}
		if d := take(t, s, check("c", 2, 1), check("a", 2, 1)); d[0].Allowed == d[1].Allowed {
			t.Errorf("a group that is denied: got %+v, want one allowed", d)
		}
		refund := check("c", 2, 1)
		refund.Mode = window.Refund
		take(t, s, refund)
	}
	if got := s.Stats(); got.Logs != 2 || got.Refused != 3 {
		t.Errorf("got %+v, want 2 logs and 3 refused", got)
	}
	*now = 10 * time.Second
	if _, ok := tryTake(t, s, check("c", 2, 1)); !ok {
		t.Error("a new key after one has expired: refused")
	}
}

// TestRefusedIsFree proves that a group for which there is no room leaves nothing
// behind, whatever its modes and wherever its logs are.
func TestRefusedIsFree(t *testing.T) {
	in := func(m window.Mode, c window.Check) window.Check { c.Mode = m; return c }
	for _, tt := range []struct {
		name   string
		keys   int
		group  []window.Check
		passes bool
	}{
		{"two new where one fits", 2, []window.Check{check("x", 5, 1), check("y", 5, 1)}, false},
		{"two new where two fit", 3, []window.Check{check("x", 5, 1), check("y", 5, 1)}, true},
		{"a new one beside an old", 2, []window.Check{check("free", 5, 1), check("x", 5, 1)}, false},
		{"a new one instead of an old", 2, []window.Check{check("x", 5, 1)}, true},
		{"more than there can be", 2, []window.Check{check("x", 5, 1), check("y", 5, 1), check("z", 5, 1)}, false},
		{"always, refund and enforce", 2, []window.Check{in(window.Refund, check("free", 5, 2)), in(window.Always, check("free", 5, 1)), check("x", 5, 1)}, false},
		{"any and observe", 2, []window.Check{in(window.Any, check("x", 5, 1)), in(window.Observe, check("y", 5, 1))}, false},
		{"observed, without room", 2, []window.Check{in(window.Observe, check("full", 2, 1)), check("free", 5, 1)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, now := boundedStore(t, roomFor(tt.keys))
			take(t, s, check("full", 2, 2))
			take(t, s, check("free", 5, 2))
			*now = time.Second
			before := string(packedOf(t, s, check("free", 5, 0)))
			_, ok := tryTake(t, s, tt.group...)
			if ok != tt.passes {
				t.Fatalf("refused %t, want %t", !ok, !tt.passes)
			}
			verify(t, s)
			if ok {
				return
			}
			for _, c := range tt.group {
				if c.Key != "free" && has(s, c) {
					t.Errorf("%s has a log", c.Key)
				}
			}
			if got := s.Stats().Refused; got != 1 {
				t.Errorf("refused: got %d, want 1", got)
			}
			if len(tt.group) > tt.keys && !has(s, check("free", 5, 0)) {
				t.Error("a log was dropped for a group that cannot fit")
			}
			// Where the other log could go to make room it may have gone.
			own := slices.ContainsFunc(tt.group, func(c window.Check) bool { return c.Key == "free" })
			if own && string(packedOf(t, s, check("free", 5, 0))) != before {
				t.Error("a log of the group has changed")
			}
		})
	}
}

// TestGrowthIsRefused proves that a log which would outgrow the bound is left as
// it is, alone and in a group, and that what needs no growth goes on.
func TestGrowthIsRefused(t *testing.T) {
	for _, size := range []int{1, 2} {
		s, now := boundedStore(t, 1200)
		group := []window.Check{check("k", 1<<20, 1), check("other", 1<<20, 1)}[:size]
		allowed := 0
		for ; ; allowed++ {
			*now += time.Microsecond
			if _, ok := tryTake(t, s, group...); !ok {
				break
			}
			if allowed > 1000 {
				t.Fatal("never refused")
			}
		}
		verify(t, s)
		before := packedOf(t, s, group[0])
		text := string(before)
		for range 3 {
			*now += time.Microsecond
			if _, ok := tryTake(t, s, group...); ok {
				t.Errorf("%d checks: a charge that needs a slot more: got a decision", size)
			}
		}
		if got := packedOf(t, s, group[0]); &got[0] != &before[0] || string(got) != text {
			t.Errorf("%d checks: a refused charge has changed the log", size)
		}
		if got := s.Stats().Bytes; got > 1200 || got < 600 {
			t.Errorf("%d checks: %d bytes, want nearly 1200", size, got)
		}
		*now = time.Duration(allowed) * time.Microsecond // the same instant as the last charge: no slot more
		if d, ok := tryTake(t, s, group...); !ok || d[0].Remaining != uint64(1<<20-allowed-1) {
			t.Errorf("%d checks: a charge that needs no slot: got %+v, refused %t, want it as the %dth", size, d, !ok, allowed+1)
		}
	}
}

// TestInventedKeys fills a store with customers who have used a half or all of
// their limits, and then makes up keys. Of the customers' logs that count for
// most, none is lost but the first of each shard.
func TestInventedKeys(t *testing.T) {
	const customers = 8_000
	for _, size := range []int64{customers * (logBytes + 32 + 6), 2 * minShardBytes} { // what they need, in one shard; and two
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s, now := boundedStore(t, size)
			for i := range customers {
				*now += time.Microsecond
				cost := uint64(50 + 50*(i%2))
				if _, ok := tryTake(t, s, check(fmt.Sprint("c", i), 100, cost)); !ok {
					t.Fatalf("customer %d: refused", i)
				}
			}
			had := make(map[string]bool)
			for i := range customers {
				c := check(fmt.Sprint("c", i), 100, 1)
				had[c.Key] = has(s, c)
			}
			for i := range 3 * customers {
				*now += time.Microsecond
				sh := s.shardFor(check(fmt.Sprint("evil", i), 100, 1))
				hand := sh.hand
				if _, ok := tryTake(t, s, check(fmt.Sprint("evil", i), 100, 1)); !ok {
					t.Fatalf("made-up key %d: refused", i)
				}
				if moved := (sh.hand - hand + sh.buckets) % sh.buckets; moved > step {
					t.Fatalf("made-up key %d: looked at %d of %d buckets", i, moved, sh.buckets)
				}
			}
			lost, full := 0, 0
			for i := range customers {
				if c := check(fmt.Sprint("c", i), 100, 1); had[c.Key] && !has(s, c) {
					lost++
					if i%2 == 1 {
						full++
					}
				}
			}
			// A shard that was full of customers has to make room for its first
			// strangers among them, and for the slack that it keeps.
			if most := customers/slackPart + 2*len(s.shards); lost > most || full > 0 {
				t.Errorf("lost %d customers, want at most %d, and %d that were at their limit, want none", lost, most, full)
			}
			verify(t, s)
		})
	}
}

func (s *Store) shardFor(c window.Check) *shard {
	i, _ := s.shardOf(c.Log())
	return &s.shards[i]
}

// TestAllLimit proves that a store which is full of logs that limit refuses new
// keys at once, without looking at all logs in any call, takes every log that
// expires for a new one, and loses none of the others.
func TestAllLimit(t *testing.T) {
	const most = 8_000
	s, now := boundedStore(t, most*(logBytes+32+6))
	served := 0
	one := func(i int) bool {
		c := check(fmt.Sprint("k", i), 1, 1)
		sh := s.shardFor(c)
		hand := sh.hand
		_, ok := tryTake(t, s, c)
		slack := max(most/len(s.shards)/slackPart, 1)
		if moved := (sh.hand - hand + sh.buckets) % sh.buckets; moved > 4*sh.buckets/slack+2*step {
			t.Fatalf("key %d: looked at %d of %d buckets", i, moved, sh.buckets)
		}
		return ok
	}
	for i := range 3 * most {
		*now += time.Microsecond
		if one(i) {
			served++
		}
	}
	if got := s.Len(); got != served || served < most*97/100 {
		t.Errorf("%d keys served, %d logs held of %d", served, got, most)
	}
	if got := s.Stats(); got.Evicted != 0 || got.Refused != uint64(3*most-served) {
		t.Errorf("got %+v, want none evicted, %d refused", got, 3*most-served)
	}
	// Some have expired now, wherever they are.
	*now = win + most/10*time.Microsecond
	before := served
	for i := range 3 * most {
		if one(1_000_000 + i) {
			served++
		}
	}
	if got := served - before; got < most/20 {
		t.Errorf("served after some expired: got %d, want the %d that made room", got, most/10)
	}
	verify(t, s)
}

// TestNothingToFindIsFound proves that a refusal is right: whenever a log could go
// that has stopped limiting long enough ago, it is found.
func TestNothingToFindIsFound(t *testing.T) {
	s, now := boundedStore(t, roomFor(200)) // one shard
	r := rand.New(rand.NewPCG(5, 6))
	oracle := func() bool { // may any log go?
		for i := range s.shards {
			sh := &s.shards[i]
			for b := range sh.buckets {
				for l := *sh.bucket(b); l != nil; l = l.next {
					var c candidate
					if c.judge(l, now.Microseconds()) != limiting {
						return true
					}
				}
			}
		}
		return false
	}
	refusals, finds := 0, 0
	for i := range random.Steps(t, 2_500, 6_000) {
		if r.IntN(50) == 0 {
			*now += time.Duration(r.Int64N(int64(win / 100))).Truncate(time.Microsecond)
		}
		hits := uint64(1 + r.IntN(2))
		c := check(fmt.Sprint(r.IntN(1000)), hits, 1)
		c.Limit.Policy = window.Fixed // its value does not grow
		full := !s.shards[0].within(s.shards[0].limit, logBytes+int64(len(c.Key))+20)
		can := has(s, c) || oracle()
		// A round of the hand is at most as many calls as it has steps.
		ok := false
		for range 2 * 300 * (logEffort + bucketEffort) / step {
			if _, ok = tryTake(t, s, c); ok {
				break
			}
		}
		if full && ok != can {
			t.Fatalf("call %d: refused %t, and a log may go: %t", i, !ok, can)
		}
		switch {
		case !ok:
			refusals++
		case full:
			finds++
		}
	}
	verify(t, s)
	if refusals < 100 || finds < 50 {
		t.Errorf("%d refused and %d served while full: the test shows nothing", refusals, finds)
	}
}

// TestRefusalIsExact lets logs that limit push out all others while the clock
// stands still. The first call that is refused is the one that finds none left.
func TestRefusalIsExact(t *testing.T) {
	for _, tt := range []struct {
		size int64
		held int
	}{
		{60_000, 480},
		{1 << 20, 8500},
	} {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			s, _ := boundedStore(t, tt.size)
			r := rand.New(rand.NewPCG(11, 12))
			may := 0 // go
			for i := range tt.held {
				cost := uint64(5)
				if r.IntN(4) > 0 {
					cost = 10
				} else {
					may++
				}
				take(t, s, check(fmt.Sprint("held", 10_000+i), 10, cost))
			}
			may -= int(s.Stats().Evicted)
			// The size of a new log, and so how many fit where the others are.
			size := s.shards[0].bytes / int64(s.Len())
			fit := int((tt.size - s.shards[0].bytes) / size)
			served := 0
			for {
				if _, ok := tryTake(t, s, check(fmt.Sprint("new_", 10_000+served), 1, 1)); !ok {
					break
				}
				served++
			}
			if want := fit + may; served != want {
				t.Errorf("served %d new keys, want %d for which there is room and %d instead of others", served, fit, may)
			}
			for i := range 100 {
				if _, ok := tryTake(t, s, check(fmt.Sprint("late", i), 1, 1)); ok {
					t.Error("served after a refusal, though nothing has changed")
				}
			}
			verify(t, s)
		})
	}
}

// TestCertainMeansAll lets buckets be made while the hand goes round from
// anywhere: when the shard has seen all, the hand has been at every log that was
// there when it began.
func TestCertainMeansAll(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	c := check("k", 1, 1)
	var d window.Decision
	packed := reference.Take(nil, 0, &c, &d)
	for trial := range 500 {
		sh := &shard{table: newTable(), limit: 1 << 30}
		add := func(i int) {
			l := sh.add(window.LogID{Key: fmt.Sprint(i), Window: win}, r.Uint32())
			l.limit = 1
			sh.keep(l, packed)
		}
		old := 50 + r.IntN(200)
		for i := range old {
			add(i)
		}
		unseen := make(map[*log]bool)
		for b := range sh.buckets {
			for l := *sh.bucket(b); l != nil; l = l.next {
				unseen[l] = true
			}
		}
		sh.hand, sh.seen = r.IntN(sh.buckets), 0
		for i := old; sh.seen < sh.buckets; i++ {
			for range r.IntN(3) {
				add(i)
			}
			from := sh.hand
			for k := range sh.visit(1+r.IntN(60), 0, nil, true) {
				for l := *sh.bucket((from + k) % sh.buckets); l != nil; l = l.next {
					delete(unseen, l)
				}
			}
		}
		if len(unseen) > 0 {
			t.Fatalf("trial %d: %d of %d logs were not seen", trial, len(unseen), old)
		}
	}
}

// TestForgottenAreNotSeen proves that a shard which knows of a log that may go, or
// could know, but has left it out of its candidates, does not claim to have seen
// all.
func TestForgottenAreNotSeen(t *testing.T) {
	c := check("k", 2, 1)
	var d window.Decision
	packed := reference.Take(nil, 0, &c, &d)
	withFree := func(n int, most int64) *shard {
		sh := &shard{table: newTable(), limit: most}
		for i := range n {
			l := sh.add(window.LogID{Key: fmt.Sprint(i), Window: win}, uint32(i*5))
			l.limit = 2
			sh.keep(l, packed)
		}
		return sh
	}
	round := func(sh *shard, collect bool) {
		for left := sh.buckets; left > 0; {
			left -= sh.visit(1, 0, nil, collect)
		}
	}
	for n := range 3 * maxCandidates {
		sh := withFree(n, 1<<20)
		for range 5 {
			round(sh, true)
			if all := sh.seen >= sh.buckets; all != (n <= maxCandidates) {
				t.Fatalf("%d logs that may go, room for %d candidates: all seen %t", n, maxCandidates, all)
			}
		}
	}
	sh := withFree(maxCandidates+1, 1)
	last := sh.find(window.LogID{Key: fmt.Sprint(maxCandidates), Window: win}, maxCandidates*5)
	last.limit = 1 // limits, so the others are all candidates
	round(sh, true)
	if sh.seen < sh.buckets {
		t.Fatalf("seen %d of %d buckets", sh.seen, sh.buckets)
	}
	last.limit = 2
	if sh.offerNew(last, 0); sh.seen != 0 {
		t.Error("a new log that is no candidate: all seen")
	}
	sh = withFree(1, 1<<20)
	if round(sh, false); sh.seen != 0 {
		t.Error("a sweep that makes no candidates: all seen")
	}
	round(sh, true)
	if sh.offerNew(sh.find(window.LogID{Key: "0", Window: win}, 0), 0); sh.seen != 0 {
		t.Error("a new log in a shard that is not near its bounds: all seen")
	}
}

// TestMovedAreNotSeen proves that a log which moves because its bucket goes does
// not pass for seen if its bucket was not.
func TestMovedAreNotSeen(t *testing.T) {
	c := check("k", 2, 1)
	var d window.Decision
	packed := reference.Take(nil, 0, &c, &d)
	sh := &shard{table: newTable(), limit: 1 << 30}
	logs := make([]*log, 4*segmentBuckets)
	for i := range logs {
		logs[i] = sh.add(window.LogID{Key: fmt.Sprint(i), Window: win}, uint32(i))
		logs[i].limit = 2
		sh.keep(logs[i], packed)
	}
	last := logs[len(logs)-1]
	for _, l := range logs[:len(logs)-1] {
		sh.remove(l)
	}
	for sh.seen = 0; sh.hand < sh.buckets-1; {
		sh.visit(1, 0, nil, true)
	}
	if sh.candidates.n != 0 || sh.seen < sh.buckets-1 {
		t.Fatalf("%d candidates, %d of %d buckets seen, want none and all but the last", sh.candidates.n, sh.seen, sh.buckets)
	}
	for !sh.shrink(1) {
	}
	for sh.seen < sh.buckets {
		sh.visit(1, 0, nil, true)
	}
	if sh.candidates.n != 1 || sh.candidates.list[0].log != last {
		t.Error("the shard claims to have seen all, and has not met the log that moved")
	}
}

// TestCandidates proves that the best are kept, in whatever order they come.
func TestCandidates(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for range 200 {
		var (
			cs  candidates
			all []candidate
		)
		for i := range 40 {
			c := candidate{log: new(log), used: uint64(1 + r.IntN(9)), limit: uint64(10 + 10*r.IntN(2)), last: int64(i * 7 % 40)}
			all = append(all, c)
			if kept := cs.offer(c); kept != (i < maxCandidates) {
				t.Fatalf("candidate %d: nothing was left out: %t", i, kept)
			}
			if !cs.offer(cs.list[0]) {
				t.Fatal("a candidate that is one already: something was left out")
			}
		}
		slices.SortFunc(all, func(a, b candidate) int {
			if a.before(&b) {
				return -1
			}
			return 1
		})
		kept := cs.list[:cs.n]
		for i := range all {
			if got := slices.Contains(kept, all[i]); got != (i < maxCandidates) {
				t.Fatalf("the %dth best is kept: %t", i+1, got)
			}
		}
	}
}

// TestOwnLogMayGoLater proves that a log which stayed because its own group needed
// room is not taken for one that may not go.
func TestOwnLogMayGoLater(t *testing.T) {
	s, _ := boundedStore(t, roomFor(400))
	own := check("own", 10, 1)
	take(t, s, own)
	own.Cost = 0
	for i, ok := 0, true; ok; i++ { // until the only log that may go is in the group
		_, ok = tryTake(t, s, own, check(fmt.Sprint(i), 1, 1))
	}
	if _, ok := tryTake(t, s, check("x", 1, 1)); !ok || has(s, own) {
		t.Errorf("another group: refused %t, and the log is there: %t", !ok, has(s, own))
	}
}

// TestExpiredAreNotCounted proves that an expired log is not counted as evicted, whether a
// call or the sweeper drops it.
func TestExpiredAreNotCounted(t *testing.T) {
	s, now := boundedStore(t, roomFor(300))
	for i := range 290 {
		take(t, s, check(fmt.Sprint("old", i), 10, 1))
	}
	*now = win
	var group []window.Check
	for i := range 100 {
		group = append(group, check(fmt.Sprint("new", i), 10, 1))
	}
	take(t, s, group...)
	if got := s.Stats(); got.Evicted != 0 {
		t.Errorf("got %+v, want none evicted", got)
	}
}

// TestSameHash puts logs of one hash into a table.
func TestSameHash(t *testing.T) {
	table := newTable()
	ids := []window.LogID{{Key: "a", Window: win}, {Key: "a", Window: win, Policy: window.Fixed}, {Key: "a", Window: 2 * win}, {Key: "b", Window: win}}
	for _, id := range ids {
		if got := table.find(id, 7); got != nil {
			t.Errorf("%v: got %v before it is there", id, got)
		}
		table.insert(id, 7)
	}
	for _, id := range ids {
		if got := table.find(id, 7); got == nil || got.key != id.Key || got.id() != id {
			t.Errorf("%v: got %v", id, got)
		}
	}
}

// TestVisitIsBounded proves that sweeping holds a lock for so many logs at most.
func TestVisitIsBounded(t *testing.T) {
	s, now := boundedStore(t, 1<<20) // one shard
	sh := &s.shards[0]
	for i := 0; sh.logs < 3000; i++ {
		take(t, s, check(fmt.Sprint(i), 1, 1))
	}
	*now = win
	for left := sh.logs; left > 0; left = sh.logs {
		sh.visit(sweepChunk, now.Microseconds(), nil, false)
		if got := left - sh.logs; got > sweepChunk/logEffort || got == 0 {
			t.Fatalf("one piece has dropped %d logs, want 1 to %d", got, sweepChunk/logEffort)
		}
	}
	before := sh.buckets
	sh.visit((before-sh.hand-1)*bucketEffort, now.Microseconds(), nil, false)
	if sh.hand != before-1 {
		t.Fatalf("the hand is at %d of %d empty buckets", sh.hand, before)
	}
	if sh.shrink(100) || sh.buckets != before-100 {
		t.Errorf("100 buckets of %d were to go, %d are left", before, sh.buckets)
	}
	for !sh.shrink(100) {
	}
	if sh.buckets != segmentBuckets {
		t.Errorf("%d buckets are left, want %d", sh.buckets, segmentBuckets)
	}
	verify(t, s) // the hand is where there are buckets
}

// TestTable compares the table with a map, while it grows and shrinks.
func TestTable(t *testing.T) {
	s, now := testStore(t)
	r := rand.New(rand.NewPCG(7, 8))
	want := make(map[string]time.Duration) // when it expires
	for phase := range 8 {
		for range 8_000 {
			*now += 500 * time.Microsecond
			if phase%2 == 1 {
				*now += 20 * time.Millisecond
			}
			key := strings.Repeat("x", r.IntN(3)) + fmt.Sprint(r.IntN(1<<16))
			take(t, s, check(key, 1<<20, 1))
			want[key] = *now + win
		}
		s.Sweep()
		for key, until := range want {
			if until <= *now {
				delete(want, key)
			}
		}
		if got := s.Len(); got != len(want) {
			t.Fatalf("%d logs, want %d", got, len(want))
		}
		for key := range want {
			if !has(s, check(key, 1, 1)) {
				t.Fatalf("%s is not found", key)
			}
		}
		verify(t, s)
	}
}
