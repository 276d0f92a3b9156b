package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a run of every row with as few calls as make sense. What its figures
// are does not matter; that every answer was the right one is seen to by the
// rows themselves.
func tiny() options {
	return options{rounds: 1, calls: 64, redis: "redis-server", only: regexp.MustCompile(""), keys: 2, large: 12_000}
}

func TestEveryRow(t *testing.T) {
	rows, version, err := measure(t.Context(), tiny(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version, "Redis ") {
		t.Errorf("version is %q, want Redis and its number", version)
	}
	names := make(map[string]bool)
	for _, r := range rows {
		if names[r.name()] {
			t.Errorf("two rows are called %s", r.name())
		}
		names[r.name()] = true
		for _, side := range []struct {
			name    string
			probe   probe
			samples []sample
		}{{"ours", r.ours, r.our}, {"base", r.base, r.their}, {"waits", r.waits, r.theirWaits}} {
			if want := side.probe != nil; want != (len(side.samples) == 1) {
				t.Errorf("%s: %s has %d samples", r.name(), side.name, len(side.samples))
			}
			for _, s := range side.samples {
				if s.value <= 0 || math.IsInf(s.value, 0) {
					t.Errorf("%s: %s is %v", r.name(), side.name, s.value)
				}
			}
		}
	}

	var out bytes.Buffer
	writeTables(&out, rows)
	columns, tables := 0, 0
	for line := range strings.Lines(out.String()) {
		switch n := strings.Count(line, "|"); {
		case n == 0:
			columns = 0
		case columns == 0:
			columns, tables = n, tables+1
		case n != columns:
			t.Errorf("%d separators, want %d as in the head: %s", n, columns, line)
		}
	}
	if tables != 6 {
		t.Errorf("got %d tables, want one for each of 6 topics:\n%s", tables, &out)
	}
}

// TestWrongAnswers proves that a row with wrong answers fails.
func TestWrongAnswers(t *testing.T) {
	b := newBench(t, tiny())
	for _, k := range []kind{packed{}, sortedSet{}, sortedSet{waits: true}, other{twoCountersScript}} {
		c := limit{hits: 5}.check("wrong", time.Hour, 0)
		if err := k.plant(t.Context(), b, c, past{hits: 5, pace: time.Second}); err != nil {
			t.Fatal(err)
		}
		for _, allowed := range []bool{true, false} {
			ask, err := k.call(c, allowed)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.send(t.Context(), load{calls: []call{ask}, each: 1, count: 2, batch: 1}); (err == nil) == allowed {
				t.Errorf("%#v: a spent limit, allowed %t is wanted: error is %v", k, allowed, err)
			}
		}
		if err := b.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBaselines asks the scripts that ours is compared with.
func TestBaselines(t *testing.T) {
	b := newBench(t, tiny())
	const hour = int64(3_600_000_000)
	ask := func(s *redis.Script, key string, cost, waits int) []int64 {
		t.Helper()
		reply, err := s.Run(t.Context(), b.client, []string{key}, hour, 5, cost, waits).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}

	for i, step := range []struct {
		cost               int
		allowed, remaining int64
	}{{2, 1, 3}, {4, 0, 3}, {3, 1, 0}, {1, 0, 0}, {3, 0, 0}, {6, 0, 0}} {
		for waits := range 2 {
			got := ask(sortedSetScript, []string{"without", "with"}[waits], step.cost, waits)
			if got[0] != step.allowed || got[1] != step.remaining {
				t.Errorf("sorted set, step %d: got %v, want %d with %d left", i, got, step.allowed, step.remaining)
			}
			if want := 2 + 3*waits; len(got) != want {
				t.Errorf("sorted set, waits %d: got %v, want %d numbers", waits, got, want)
			}
		}
		got := ask(twoCountersScript, "counters", step.cost, 0)
		if got[0] != step.allowed || got[1] != step.remaining {
			t.Errorf("two counters, step %d: got %v, want %d with %d left", i, got, step.allowed, step.remaining)
		}
	}
	if n := b.client.ZCard(t.Context(), "with").Val(); n != 5 {
		t.Errorf("the sorted set has %d members, want 5, one for each hit", n)
	}
	if d := b.client.PTTL(t.Context(), "with").Val(); d <= 0 || d > time.Hour {
		t.Errorf("the sorted set lives for %v, want at most an hour", d)
	}

	// The previous of two counters counts for the part that is still covered. The
	// window is so long that a slow test does not matter.
	long := window.MaxWindow.Microseconds()
	now, err := b.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.client.Set(t.Context(), fmt.Sprintf("long:%d", now/long-1), 1000, 0)
	got, err := twoCountersScript.Run(t.Context(), b.client, []string{"long"}, long, 1000, 0).Int64Slice()
	if want := 1000 * (now % long) / long; err != nil || got[1] < want-1 || got[1] > want+1 {
		t.Errorf("two counters, a full previous one: got %v, error %v, want %d left or so", got, err, want)
	}

	// What has expired is removed.
	c := limit{hits: 5}.check("expired", time.Hour, 0)
	if err := (sortedSet{}).plant(t.Context(), b, c, past{hits: 1500, pace: time.Second, ago: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if n := b.client.ZCard(t.Context(), name(c)).Val(); n != 1500 {
		t.Errorf("%d hits are planted, want 1500", n)
	}
	if got := ask(sortedSetScript, name(c), 1, 0); got[0] != 1 || got[1] != 4 {
		t.Errorf("all hits have expired: got %v, want allowed with 4 left", got)
	}

	// Hits at 50, 40, 30, 20 and 10 minutes ago.
	c = limit{hits: 5}.check("past", time.Hour, 0)
	if err := (sortedSet{}).plant(t.Context(), b, c, past{hits: 5, pace: 10 * time.Minute, ago: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	for cost, want := range map[int][]int64{1: {10, 10, 50}, 3: {30, 10, 50}} {
		got := ask(sortedSetScript, name(c), cost, 1)
		for i, minutes := range want {
			// A moment has passed since the hits were planted.
			if wait := got[2+i]; wait > minutes*hour/60 || wait < (minutes-1)*hour/60 {
				t.Errorf("cost %d: wait %d is %d us, want a little less than %d minutes", cost, i, wait, minutes)
			}
		}
	}
}
