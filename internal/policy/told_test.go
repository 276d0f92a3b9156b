package policy

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// ceiling returns a wait and a share of it in whole seconds, rounded up, without rounding errors.
func ceiling(wait time.Duration, share float64) time.Duration {
	exact := new(big.Rat).SetInt64(int64(wait))
	if f := new(big.Rat).SetFloat64(1 + share); f != nil {
		exact.Mul(exact, f)
	}
	exact.Quo(exact, new(big.Rat).SetInt64(int64(time.Second)))
	whole := new(big.Int).Quo(exact.Num(), exact.Denom())
	if !exact.IsInt() {
		whole.Add(whole, big.NewInt(1))
	}
	return time.Duration(whole.Int64()) * time.Second
}

// TestTold has the shares and places that decide what is told of a wait.
func TestTold(t *testing.T) {
	const sec = time.Second
	denied, last := window.Decision{}, window.Decision{Allowed: true}
	for name, tt := range map[string]struct {
		share, place float64
		d            window.Decision
		wait, want   time.Duration
	}{
		"off":                           {0, 0.9, denied, 12345 * time.Millisecond, 12345 * time.Millisecond},
		"the first place":               {0.2, 0, denied, 10 * sec, 10 * sec},
		"the second third":              {0.2, 0.5, denied, 10 * sec, 11 * sec},
		"the last place":                {0.2, 0.999, denied, 10 * sec, 12 * sec},
		"nothing remains":               {0.2, 0.999, last, 10 * sec, 12 * sec},
		"something remains":             {0.2, 0.999, window.Decision{Allowed: true, Remaining: 1}, 10 * sec, 10 * sec},
		"a smaller cost has room":       {0.2, 0.999, window.Decision{Remaining: 3}, 10 * sec, 12 * sec},
		"no wait helps":                 {0.2, 0.999, window.Decision{Never: true}, 10 * sec, 10 * sec},
		"no wait":                       {0.2, 0.999, denied, 0, 0},
		"a short wait fills its second": {0.2, 0.999, denied, 500 * time.Millisecond, sec},
		"a whole second may be two":     {0.2, 0.5, denied, sec, 2 * sec},
		"the whole wait again":          {1, 0.999, denied, 90 * sec, 180 * sec},
		"a day":                         {0.05, 0.5, denied, 24 * time.Hour, 24*time.Hour + 36*time.Minute},
	} {
		s := LimitStatus{Rule: &Rule{RetryJitter: tt.share}, Decision: tt.d, place: tt.place}
		if got := s.Told(tt.wait); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestToldWaitsAreTrue: under every policy, with any share and after any requests, the told wait
// is at least the wait there is, and at most that and the share of it in whole seconds. After it
// the same cost has room.
func TestToldWaitsAreTrue(t *testing.T) {
	month, err := calendar.New(calendar.Spec{Unit: "hour"})
	if err != nil {
		t.Fatal(err)
	}
	limits := []Limit{
		{Limit: window.Limit{Hits: 5, Window: 90 * time.Second}},
		{Limit: window.Limit{Hits: 5, Window: 90 * time.Second, Policy: window.Fixed}},
		{Limit: window.Limit{Hits: 5, Window: 90 * time.Second, Policy: window.SlidingCounter}},
		{Limit: window.Limit{Hits: 5, Window: 10 * time.Second, Rate: 1, Policy: window.TokenBucket}},
		{Limit: window.Limit{Hits: 5, Window: month.Unit().Nominal(), Policy: window.Calendar}, Calendar: month},
	}
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		now := 20_000 * 24 * time.Hour
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		rs := NewRules(Identity{Secrets: secrets})
		rule := Rule{Domain: "edge", Path: []descriptors.Node{anyOf("a")}, RetryJitter: share, Terms: Terms{Limits: []Limit{limit}}}
		if err := rs.Add(rule); err != nil {
			t.Fatal(err)
		}
		store := memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
		defer store.Close()
		d := NewDecider(rs, Options{Store: store, Clock: store.Now})
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			now += time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "later"))
			r := request("a=" + rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "who"))
			r.Descriptors[0].Cost = uint64(rapid.IntRange(1, 6).Draw(t, "cost"))
			v, err := decideErr(t.Context(), d, r)
			if err != nil {
				t.Fatal(err)
			}
			s := v.Limits[0]
			told, wait := s.Told(s.Wait()), s.Wait()
			if told < wait || told > max(ceiling(wait, share), wait) || s.Decision.Never && told != 0 {
				t.Fatalf("%v with a share of %v: told %v of a wait of %v", limit.Policy, share, told, wait)
			}
			if v.Allowed || told == 0 {
				continue
			}
			seen++
			now += told
			if again, err := decideErr(t.Context(), d, r); err != nil || !again.Allowed {
				t.Fatalf("%v with a share of %v: after the told wait of %v the request is not allowed: %v, %v", limit.Policy, share, told, say(&again), err)
			}
			r.Descriptors[0].Refund = true
			if _, err := decideErr(t.Context(), d, r); err != nil {
				t.Fatal(err)
			}
		}
	})
	if seen == 0 {
		t.Error("nothing was denied")
	}
}

// jittered returns a decider that denies everything for 1000 s, with a share of 100%, and
// its store. The log of the rule all is that of all requests.
func jittered(t *testing.T, dir *tier.Directory) (*Decider, *recordingStore) {
	t.Helper()
	rs := NewRules(Identity{Secrets: secrets, Tiers: dir})
	for _, r := range []Rule{
		{Path: []descriptors.Node{anyOf("api_key")}, Name: "per-key"},
		{Path: []descriptors.Node{one("route", "search"), anyOf("api_key")}, Name: "search"},
		{Path: []descriptors.Node{one("route", "all")}, Name: "all"},
		{Path: []descriptors.Node{anyOf("remote_address")}, Name: "per-address", Terms: per(1, time.Second)},
	} {
		r.Domain, r.RetryJitter = "edge", 1
		if len(r.Terms.Limits) == 0 {
			r.Terms = per(1, time.Hour)
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	store := &recordingStore{answer: func(window.Check) window.Decision {
		return window.Decision{RetryAfter: 1000 * time.Second, UnitAfter: 1000 * time.Second, ResetAfter: 1000 * time.Second}
	}}
	d, _ := newDecider(t, rs, store)
	return d, store
}

// told returns what a denied request is told.
func told(t *testing.T, d *Decider, ds ...string) time.Duration {
	t.Helper()
	v := decide(t, d, request(ds...))
	if v.Allowed {
		t.Fatalf("%v: allowed", ds)
	}
	s := &v.Limits[v.Decisive]
	return s.Told(s.Wait())
}

// TestToldBySubject: a subject is told the same wait for the same denial, whichever of its keys
// it uses, and other subjects are told others.
func TestToldBySubject(t *testing.T) {
	d, _ := jittered(t, directory(t))
	acme := told(t, d, "api_key=acme-key")
	for _, ds := range [][]string{
		{"api_key=acme-key"},
		{"api_key=acme-new-key"},
		{"route=search api_key=acme-key"},
		{"api_key=acme-key", "remote_address=192.0.2.1"},
		{"remote_address=192.0.2.1", "api_key=acme-key"},
		{"route=all", "api_key=acme-key"},
	} {
		if got := told(t, d, ds...); got != acme {
			t.Errorf("%v: told %v, otherwise %v", ds, got, acme)
		}
	}
	if hobby := told(t, d, "api_key=hobby-key"); hobby == acme {
		t.Errorf("two subjects are told %v", hobby)
	}
	// A log that all share denies. What else is known of the clients tells them apart.
	one, two := told(t, d, "route=all", "remote_address=192.0.2.1"), told(t, d, "route=all", "remote_address=192.0.2.2")
	if again := told(t, d, "route=all", "remote_address=192.0.2.1"); one == two || one != again {
		t.Errorf("one address is told %v and %v, another one %v", one, again, two)
	}
}

// TestToldWaitsAreEven: what 10,000 subjects are told is spread evenly, and is so among those
// whom a rule enforces that observes all others. The hashes have no random part, so the test
// always gives the same result.
func TestToldWaitsAreEven(t *testing.T) {
	d, store := jittered(t, nil)
	all, few := make([]int, 20), make([]int, 4)
	for i := range 10_000 {
		key := fmt.Sprintf("api_key=customer-%d", i)
		v := decide(t, d, request(key))
		s := &v.Limits[0]
		place := float64(s.Told(s.Wait())-1000*time.Second) / float64(1001*time.Second)
		all[int(place*20)]++
		if !observed(0.9, store.checks[0].Key) {
			few[int(place*4)]++
		}
	}
	// 0.1% of the critical values of chi-square for 19 and 3 degrees of freedom.
	if x := chiSquare(all); x > 43.82 {
		t.Errorf("chi-square %.1f of %v", x, all)
	}
	if x := chiSquare(few); x > 16.27 {
		t.Errorf("of those who are enforced: chi-square %.1f of %v", x, few)
	}
}

func chiSquare(counts []int) (x float64) {
	total := 0
	for _, n := range counts {
		total += n
	}
	for _, n := range counts {
		want := float64(total) / float64(len(counts))
		x += (float64(n) - want) * (float64(n) - want) / want
	}
	return x
}

// TestToldWithoutTheStore: a denial by the rule's own choice is told as any other.
func TestToldWithoutTheStore(t *testing.T) {
	rs := NewRules(Identity{Secrets: secrets})
	err := rs.Add(Rule{
		Domain: "edge", Path: []descriptors.Node{anyOf("a")}, Terms: per(1, time.Minute), RetryJitter: 0.5,
		OnStoreError: StoreErrorDeny, StoreErrorRetry: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := newDecider(t, rs, &recordingStore{err: fmt.Errorf("away")})
	var all []time.Duration
	for i := range 100 {
		all = append(all, told(t, d, fmt.Sprintf("a=%d", i)))
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != 6 || all[0] != 10*time.Second || all[5] != 15*time.Second {
		t.Errorf("told %v, want each second from 10 to 15", all)
	}
}

// TestToldOfAnOverride: a limit that came with a request has the share of the rule that it
// replaces, or that of the rules if none matches.
func TestToldOfAnOverride(t *testing.T) {
	rs := NewRules(Identity{Secrets: secrets})
	rs.SetRetryJitter(1)
	rs.ObserveAll()
	if err := rs.Add(Rule{Domain: "edge", Path: []descriptors.Node{anyOf("a")}, Terms: per(1, time.Minute)}); err != nil {
		t.Fatal(err)
	}
	d, _ := newDecider(t, rs, &recordingStore{answer: func(window.Check) window.Decision {
		return window.Decision{RetryAfter: 1000 * time.Second}
	}})
	r := request("a=x", "b=x")
	for i := range r.Descriptors {
		r.Descriptors[i].Override = &window.Limit{Hits: 1, Window: time.Hour}
	}
	v := decide(t, d, r)
	if a, b := v.Limits[0].Told(1000*time.Second), v.Limits[1].Told(1000*time.Second); a != 1000*time.Second || b <= 1000*time.Second {
		t.Errorf("told %v under a rule without jitter, and %v without a rule", a, b)
	}
}
