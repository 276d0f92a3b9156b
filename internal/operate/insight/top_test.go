package insight

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/verdict"
)

// names returns the names and counts of a list.
func names(t Top) (list []string) {
	for _, e := range t.Entries {
		list = append(list, fmt.Sprint(e.Name, "=", e.Count))
	}
	return list
}

func TestTop(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	digest := settingsDigest("k-12345678")
	for range 3 {
		ask(t, rs, "per-user", "user", "acme", "remote_address", "192.0.2.7", "path", "/a").deny(i)
	}
	ask(t, rs, "per-key", "api_key", digest, "remote_address", "192.0.2.8").deny(i)
	ask(t, rs, "per-route", "route", "/b", "remote_address", "198.51.100.1").deny(i)
	shadow := ask(t, rs, "per-user", "user", "seen")
	shadow.v.Limits[0].Enforcement = verdict.Observed
	shadow.deny(i)
	ask(t, rs, "per-user", "user", "full").near(i, 9)
	ask(t, rs, "per-user", "user", "full").near(i, 10)
	ask(t, rs, "per-user", "user", "half").near(i, 5)
	for _, tc := range []struct {
		q    TopQuery
		want string
	}{
		{TopQuery{Minutes: 1}, "acme=3 198.51.100.0/24=1 key " + digest[:12] + "=1"},
		{TopQuery{By: "rule", Minutes: 5}, "per-user=3 per-key=1 per-route=1"},
		{TopQuery{By: "route", Minutes: 60}, "/a=3 /b=1"},
		{TopQuery{By: "address", Minutes: 1}, "192.0.2.0/24=4 198.51.100.0/24=1"},
		{TopQuery{By: "address", Minutes: 1, Limit: 1}, "192.0.2.0/24=4"},
		{TopQuery{Order: "shadow"}, "seen=1"},
		{TopQuery{Order: "near"}, "full=2 half=1"},
		{TopQuery{Order: "none"}, ""},
		{TopQuery{By: "none"}, ""},
	} {
		got := i.Top(tc.q)
		if list := strings.Join(names(got), " "); list != tc.want || got.Error != 0 || got.Sampled || got.Instance != "here" {
			t.Errorf("%+v: got %+v, want %s", tc.q, got, tc.want)
		}
	}
	if top := i.Top(TopQuery{Order: "near"}).Entries; top[0].Peak != 1 || top[1].Peak != 0.5 {
		t.Errorf("peaks: got %+v", top)
	}
	top := i.Top(TopQuery{}).Entries
	if top[1].Address != "198.51.100.0/24" || top[2].Digest != digest || top[0].Digest != "" {
		t.Errorf("kinds of names: got %+v", top)
	}
}

// TestTopTime checks what the lists of 1, 5 and 60 minutes still have after a while.
func TestTopTime(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	a := ask(t, rs, "per-user", "user", "acme")
	for range 90 { // one denial a minute
		a.deny(i)
		c.add(time.Minute)
	}
	c.add(-time.Second)
	for minutes, want := range map[int][2]uint64{1: {1, 2}, 5: {5, 6}, 60: {60, 65}} {
		top := i.Top(TopQuery{Minutes: minutes})
		if len(top.Entries) != 1 || top.Entries[0].Count < want[0] || top.Entries[0].Count > want[1] {
			t.Errorf("%d minutes: got %+v, want %v", minutes, top.Entries, want)
		}
	}
	c.add(2 * time.Hour)
	for _, minutes := range []int{1, 5, 60} {
		if top := i.Top(TopQuery{Minutes: minutes}); len(top.Entries) != 0 {
			t.Errorf("%d minutes, two hours later: got %+v", minutes, top.Entries)
		}
	}
}

// TestTopReportsWhatItMissed records more events than the queue has room for, while nothing is taken out.
// The list tells how many it has not counted, as long as it is of their time. So does a list of a
// second in which the sample was full.
func TestTopReportsWhatItMissed(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, func(o *Options) { o.Record.PerSecond = 2 * maxQueue })
	r := i.recorder
	acme, seen := ask(t, rs, "per-user", "user", "acme"), ask(t, rs, "per-user", "user", "seen")
	seen.v.Limits[0].Enforcement = verdict.Observed
	const near, shadow, denials = 100, 7, maxQueue + 50
	r.mu.Lock() // the goroutine moves nothing meanwhile
	for range near {
		acme.near(i, 9)
	}
	for range shadow {
		seen.deny(i)
	}
	for range denials {
		acme.deny(i)
	}
	r.mu.Unlock()
	for _, tc := range []struct {
		order      string
		count, err uint64
	}{{"near", near, 0}, {"shadow", shadow, 0}, {"denied", denials, near + shadow + denials - maxQueue}} {
		top := i.Top(TopQuery{Order: tc.order, Minutes: 1})
		if len(top.Entries) != 1 || top.Entries[0].Count != tc.count || top.Error != tc.err || top.Sampled {
			t.Errorf("got %+v, want %d with an error of %d", top, tc.count, tc.err)
		}
	}
	c.add(10 * time.Minute)
	for minutes, want := range map[int]bool{5: false, 60: true} {
		if top := i.Top(TopQuery{Minutes: minutes}); (top.Error > 0) != want {
			t.Errorf("ten minutes later, %d minutes: got %+v", minutes, top)
		}
	}
	c.add(2 * time.Hour)
	if top := i.Top(TopQuery{Minutes: 60}); top.Error != 0 {
		t.Errorf("two hours later: got %+v", top)
	}

	r.denials.oneOf.Store(none)
	acme.deny(i)
	acme.deny(i)
	if top := i.Top(TopQuery{}); top.Error != 2 {
		t.Errorf("with a full sample: got %+v, want an error of 2", top)
	}
	r.denials.oneOf.Store(1)
	r.denials.chosen.Store(10 * maxQueue)
	acme.deny(i)
	if top := i.Top(TopQuery{}); top.Error != 3 || r.denials.oneOf.Load() != none {
		t.Errorf("while the sample becomes full: got %+v, want an error of 3", top)
	}
}

// TestTopError compares the lists with exact counts, while clients invent 50,000 names of which
// few are frequent. The error is what it is told to be, and the memory has its bound.
func TestTopError(t *testing.T) {
	const events = 50_000
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.2, 1, events)
	exact := make(map[string]uint64)
	r := i.recorder
	a := ask(t, rs, "per-user", "user", "x")
	long := strings.Repeat("n", 100)
	for n := range events {
		name := fmt.Sprint(long, zipf.Uint64())
		exact[name]++
		a.v.Limits[0].Subject = name
		r.mu.Lock()
		r.move(event{Denial: r.copyOf(&a.req, &a.v, &a.v.Limits[0], 1)})
		r.mu.Unlock()
		if n%(events/50) == 0 {
			c.add(time.Second)
		}
	}
	for _, minutes := range []int{1, 5, 60} {
		top := i.Top(TopQuery{Minutes: minutes})
		if top.Error == 0 || top.Error > events*35/1000/2 {
			t.Errorf("%d minutes: Error %d of %d", minutes, top.Error, events)
		}
		for _, e := range top.Entries {
			if n := exact[e.Name]; e.Count < n || e.Count > n+top.Error {
				t.Errorf("%d minutes: %s has %d, told as %d with an error of %d", minutes, e.Name[100:], n, e.Count, top.Error)
			}
		}
		var most []string
		for name, n := range exact {
			if n > top.Error {
				most = append(most, name)
			}
		}
		for _, name := range most {
			if len(top.Entries) < 20 && !slices.ContainsFunc(top.Entries, func(e TopEntry) bool { return e.Name == name }) {
				t.Errorf("%d minutes: %s has %d, more than the error, and is missing", minutes, name[100:], exact[name])
			}
		}
		if top.Entries[0].Name != long+"0" {
			t.Errorf("%d minutes: the first is %s", minutes, top.Entries[0].Name)
		}
	}
}
