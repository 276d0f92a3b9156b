package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// quick returns options for a run of a few seconds.
func quick() *options {
	return &options{config: "../" + traffic.EnvoyConfig, lasts: 2 * time.Second, unit: time.Second, customers: 30, seed: 1}
}

// long returns options for a run on the virtual clock.
func long(wrong string) *options {
	return &options{lasts: time.Minute, unit: 10 * time.Second, customers: 60, seed: 1, wrong: wrong}
}

// TestThroughEnvoy proves the properties through a real Envoy, on each store. None of them depends
// on how fast the machine is.
func TestThroughEnvoy(t *testing.T) {
	for _, store := range []string{onMemory, onRedis} {
		t.Run(store, func(t *testing.T) {
			t.Cleanup(func() { goleak.VerifyNone(t) })
			needs(t, store)
			o := quick()
			var out strings.Builder
			failures, err := o.measure(t.Context(), store, &out)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range failures {
				t.Error(f)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

// needs skips the test if a server is missing.
func needs(t *testing.T, store string) {
	t.Helper()
	edge.EnvoyAccepts(t, "../"+traffic.EnvoyConfig)
	if store == onRedis {
		servers.Redis(t)
	}
}

// TestTheOracleFindsARequestTooMany has an rls whose limits are larger by one than those of the
// oracle, through a real Envoy. The window is an hour, so that what the oracle finds does not
// depend on the speed of the machine.
func TestTheOracleFindsARequestTooMany(t *testing.T) {
	needs(t, onMemory)
	tiers, all := nightly(10, time.Hour, 1)
	err := process.Run(t.Context(), func(tb process.TB) {
		l := startLive(tb, quick(), onMemory, rulesFile(tiers, "", 1), tiersFile(tiers, all), len(all))
		denied := func(c *customer) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.ContainsFunc(c.calls, func(a call) bool { return !a.allowed })
		}
		err := l.run(tb.Context(), all, 0, func() bool { return !slices.ContainsFunc(all, func(c *customer) bool { return !denied(c) }) })
		if err != nil {
			tb.Fatalf("%w", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if got, want := above(c), []string{c.name() + " got 3 in 1h0m0s, and its limit is 2"}; !cmp.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestVirtual proves the properties for many customers and minutes, on the virtual clock, and that
// the same seed gives the same run.
func TestVirtual(t *testing.T) {
	r, err := long("").people(t.Context(), onVirtual)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.failures {
		t.Error(f)
	}
	for _, b := range r.behaviours {
		if denies := b.name != "counts its own requests"; b.allowed == 0 || denies != (b.denied > 0) {
			t.Errorf("%s: %d allowed, %d denied", b.name, b.allowed, b.denied)
		}
	}
	if last := r.behaviours[len(r.behaviours)-1]; last.name != "saturates" || last.denied < 100*last.allowed {
		t.Errorf("the last behaviour is %s with %d allowed and %d denied, want the saturating one", last.name, last.allowed, last.denied)
	}
	for _, l := range r.limits {
		if l.most > l.limit.hits || l.tier == "free" && l.reached == 0 {
			t.Errorf("%s: %d in %v, limit %d, reached by %d", l.tier, l.most, l.limit.window, l.limit.hits, l.reached)
		}
	}
	again, err := long("").people(t.Context(), onVirtual)
	if diff := cmp.Diff(r, again, cmp.AllowUnexported(report{}, behaved{}, limited{}, limit{})); err != nil || diff != "" {
		t.Errorf("the same seed, %v (-first +second):\n%s", err, diff)
	}
	o := long("")
	o.seed = 2
	if other, err := o.people(t.Context(), onVirtual); err != nil || cmp.Equal(r, other, cmp.AllowUnexported(report{}, behaved{}, limited{}, limit{})) {
		t.Errorf("another seed gives the same run, or %v", err)
	}
}

// TestTheOracleFails proves that each property fails when rls breaks it.
func TestTheOracleFails(t *testing.T) {
	for wrong, want := range map[string]string{"more": " got 21 in 10s, and its limit is 20", "fixed": " in 10s, and its limit is 20", "less": "requests within the limits were denied"} {
		r, err := long(wrong).people(t.Context(), onVirtual)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.failures, func(f string) bool { return strings.HasSuffix(f, want) }) {
			t.Errorf("%s: got %q, want one that ends with %q", wrong, r.failures, want)
		}
	}
}

// TestStampede: on the virtual clock, with the answers of rls, the fullest second with jitter has at
// most half of what it has without. The one setting only makes waits longer.
func TestStampede(t *testing.T) {
	o := long("")
	b, err := o.bursts(t.Context(), onVirtual)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range b.failures(o.customers) {
		t.Error(f)
	}
	if b.without.shortest != 10*time.Second || b.without.longest != 10*time.Second {
		t.Errorf("without jitter the waits are %v to %v, want 10s", b.without.shortest, b.without.longest)
	}
	if b.with.shortest < 10*time.Second || b.with.longest > 15*time.Second {
		t.Errorf("with jitter the waits are %v to %v, want 10s to 15s", b.with.shortest, b.with.longest)
	}
	if without, with := b.without.fullest(), b.with.fullest(); with > without/2 || without < o.customers*9/10 {
		t.Errorf("%d came back in the fullest second without jitter, %d with it, of %d", without, with, o.customers)
	}
	if b.without.again+b.with.again > 0 {
		t.Errorf("denied again after Retry-After: %d without jitter, %d with it", b.without.again, b.with.again)
	}
}

// TestOracle: what is known of charges between two times.
func TestOracle(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	at := func(sent, answered int, allowed bool) call {
		return call{sent: ms(sent), answered: ms(answered), allowed: allowed}
	}
	slack := int(clockSlack / time.Millisecond)
	for _, tt := range []struct {
		name           string
		calls          []call
		above, wrongly int
	}{
		{"nothing", nil, 0, 0},
		{"within", []call{at(0, 1, true), at(500, 501, true), at(1100, 1101, true)}, 0, 0},
		{"a third in a window", []call{at(0, 1, true), at(500, 501, true), at(900, 901, true)}, 1, 0},
		{"a third at the edge of the clocks", []call{at(0, 1, true), at(500, 501, true), at(994, 1000-slack, true)}, 0, 0},
		{"a third that may be later, because its answer is", []call{at(0, 1, true), at(500, 501, true), at(900, 1100, true)}, 0, 0},
		{"a third that may be later, because the first may be earlier", []call{at(0, 300, true), at(500, 501, true), at(999, 1100, true)}, 0, 0},
		{"denied with two in the window", []call{at(0, 1, true), at(500, 501, true), at(900, 901, false)}, 0, 0},
		{"denied with one in the window", []call{at(0, 1, true), at(900, 901, false)}, 0, 1},
		{"denied after one has left the window", []call{at(0, 1, true), at(500, 501, true), at(1001+slack, 1020, false)}, 0, 1},
		{"denied while one may be in the window", []call{at(0, 1, true), at(500, 501, true), at(1000+slack, 1020, false)}, 0, 0},
		{"denied while another was under way", []call{at(0, 1, true), at(898, 901, false), at(900, 950, true)}, 0, 0},
		{"denied before another was sent", []call{at(0, 1, true), at(890, 891, false), at(900, 950, true)}, 0, 1},
		{"denials do not count", []call{at(0, 1, true), at(2, 3, true), at(4, 5, false), at(6, 7, false), at(1010, 1011, true)}, 0, 0},
	} {
		c := &customer{tier: &tier{name: "t", limits: []limit{{2, time.Second}, {1000, time.Hour}}}}
		for _, a := range tt.calls {
			c.record(a)
		}
		if got := above(c); len(got) != tt.above {
			t.Errorf("%s: above its limit: %q, want %d", tt.name, got, tt.above)
		}
		if got := wrongly(c); len(got) != tt.wrongly {
			t.Errorf("%s: wrongly denied: %v, want %d", tt.name, got, tt.wrongly)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-stores", "disk"},
		{"-customers", "9"},
		{"-customers", "10000"},
		{"-unit", "1ms"},
		{"-for", "0s"},
		{"-wrong", "perhaps"},
		{"-stores", "memory", "-rls", "no-such-rls"},
		{"more"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
	var out strings.Builder
	err := run(t.Context(), []string{"-stores", "virtual", "-customers", "60", "-for", "30s", "-wrong", "more"}, &out, io.Discard)
	if err == nil || strings.Count(out.String(), "\nFAILED") != mostFailures+1 {
		t.Errorf("a wrong service: got %v\n%s", err, &out)
	}
}
