package history

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// start is in the last minute of an hour and of a day.
var start = time.Date(2026, 11, 27, 23, 59, 30, 0, time.UTC)

// An instance is a process whose counters a test sets.
type instance struct {
	*Counter
	now    time.Time
	totals map[string]metrics.RuleTotals // by the name of the rule
	denied map[time.Time]map[string]uint64
}

func newInstance(now time.Time, r *Redis, file string) *instance {
	i := &instance{now: now, totals: make(map[string]metrics.RuleTotals), denied: make(map[time.Time]map[string]uint64)}
	i.Counter = New(Options{
		Totals: func(t *metrics.Totals) {
			t.Rules = t.Rules[:0]
			for _, r := range i.totals {
				t.Rules = append(t.Rules, r)
			}
		},
		Denied: func(minute time.Time) map[string]uint64 { return i.denied[minute] },
		Redis:  r, File: file, Now: func() time.Time { return i.now }, Log: zap.NewNop(),
	})
	return i
}

// count raises the counters.
func (i *instance) count(rule string, decisions, denials float64) {
	r := i.totals[rule]
	i.totals[rule] = metrics.RuleTotals{Domain: "edge", Rule: rule, Decisions: r.Decisions + decisions, Denials: r.Denials + denials}
}

// deny raises the count of a subject in this minute.
func (i *instance) deny(who string, denials uint64) {
	minute := i.now.Truncate(time.Minute)
	if i.denied[minute] == nil {
		i.denied[minute] = make(map[string]uint64)
	}
	i.denied[minute][who] += denials
}

// tick lets time pass, and counts.
func (i *instance) tick(d time.Duration) {
	i.now = i.now.Add(d)
	i.take(i.now, false)
	i.write(context.Background())
}

// text returns the whole history in short: "edge/search 27T23 5/2", and "27 sacme 2".
func (i *instance) text(t *testing.T, q Query) (lines []string) {
	t.Helper()
	q.To = i.now.Add(time.Hour)
	a, err := i.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range a.Rules {
		for _, h := range r.Hours {
			lines = append(lines, fmt.Sprintf("%s/%s %s %d/%d", r.Domain, r.Rule, h.Hour.Format("02T15"), h.Decisions, h.Denials))
		}
	}
	for _, d := range a.Days {
		for _, s := range d.Subjects {
			lines = append(lines, fmt.Sprintf("%s %s %d", d.Day[8:], s.Name, s.Count))
		}
	}
	return lines
}

// want compares the whole history.
func (i *instance) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, i.text(t, Query{})); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
}

// inRedis returns where instances add up, in a Redis of the test.
func inRedis(t *testing.T) *Redis {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return &Redis{client, "slidegate:"}
}

// inBoth runs a test with an instance that counts in memory, and with one that counts in Redis.
func inBoth(t *testing.T, f func(t *testing.T, i *instance)) {
	t.Run("memory", func(t *testing.T) { f(t, newInstance(start, nil, "")) })
	t.Run("redis", func(t *testing.T) { f(t, newInstance(start, inRedis(t), "")) })
}

// TestHours counts in the hour and the day of each minute, and goes on after a rule was gone.
func TestHours(t *testing.T) {
	inBoth(t, func(t *testing.T, i *instance) {
		i.count("search", 5, 2)
		i.count("", 9, 0) // descriptors without a rule
		i.deny("sacme", 2)
		i.deny("k"+strings.Repeat("ab", 32), 1)
		i.deny("a192.0.2.0/24", 3)
		i.tick(30 * time.Second)
		i.want(t, "edge/search 27T23 5/2", "27 192.0.2.0/24 3", "27 acme 2", "27 key abababababab 1")
		i.count("search", 3, 0)
		i.deny("sacme", 1)
		i.tick(time.Minute)
		i.tick(time.Minute) // without a request
		delete(i.totals, "search")
		i.tick(time.Minute)
		i.count("search", 1, 1)
		i.tick(time.Minute)
		i.want(t, "edge/search 27T23 5/2", "edge/search 28T00 4/1", "27 192.0.2.0/24 3", "27 acme 2", "27 key abababababab 1", "28 acme 1")
		for subject, want := range map[string][]string{
			"acme": {"27 acme 2", "28 acme 1"}, "192.0.2.0/24": {"27 192.0.2.0/24 3"}, strings.Repeat("ab", 32): {"27 key abababababab 1"}, "key abababababab": nil, "other": nil,
		} {
			if got := i.text(t, Query{Subject: subject}); !cmp.Equal(got, want) {
				t.Errorf("subject %s: got %q, want %q", subject, got, want)
			}
		}
		if got, want := i.text(t, Query{Rule: "search", From: start.Add(time.Hour)}), []string{"edge/search 28T00 4/1"}; !cmp.Equal(got, want) {
			t.Errorf("rule search from midnight: got %q, want %q", got, want)
		}
		// The end of the process counts the minute that is not over.
		i.count("search", 1, 0)
		i.deny("sacme", 1)
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		i.now = i.now.Add(time.Minute) // what was read is known for a minute
		i.want(t, "edge/search 27T23 5/2", "edge/search 28T00 5/1", "27 192.0.2.0/24 3", "27 acme 2", "27 key abababababab 1", "28 acme 2")
		// Thirty days are kept.
		i.now = i.now.AddDate(0, 0, Days-1)
		i.tick(time.Minute)
		i.want(t, "edge/search 28T00 5/1", "28 acme 2")
		i.now = i.now.AddDate(0, 0, 1)
		i.tick(time.Minute)
		i.want(t)
	})
}

// TestInstances adds up two instances in Redis. A third one that starts later reads the sum.
func TestInstances(t *testing.T) {
	r := inRedis(t)
	one, two := newInstance(start, r, ""), newInstance(start, r, "")
	for n, i := range []*instance{one, two} {
		i.count("search", 5, float64(n))
		i.deny("sacme", 2)
		i.tick(30 * time.Second)
	}
	newInstance(start.Add(time.Minute), r, "").want(t, "edge/search 27T23 10/1", "27 acme 4")
	// All keys end by themselves, and are below the prefix.
	keys, err := r.Client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("got the keys %q, %v, want 2", keys, err)
	}
	for _, key := range keys {
		if life := r.Client.TTL(t.Context(), key).Val(); !strings.HasPrefix(key, "slidegate:history:{2026-11-27}:") || life <= Days*24*time.Hour || life > (Days+1)*24*time.Hour {
			t.Errorf("the key %s lives %v", key, life)
		}
	}
}

// TestOutage keeps the counts while Redis does not answer.
func TestOutage(t *testing.T) {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	i := newInstance(start, &Redis{client, ""}, "")
	server.Stop()
	i.count("search", 5, 2)
	i.deny("sacme", 2)
	i.tick(30 * time.Second)
	i.count("search", 1, 0)
	i.tick(time.Minute)
	if a, err := i.Read(t.Context(), Query{To: i.now}); err == nil {
		t.Errorf("without Redis got %+v, want an error", a)
	}
	server.Start()
	i.tick(time.Minute)
	i.want(t, "edge/search 27T23 5/2", "edge/search 28T00 1/0", "27 acme 2")
}

// TestRestart keeps the counts in the file.
func TestRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "logs.history")
	for n := range 2 {
		i := newInstance(start, nil, file)
		i.count("search | / %20", 5, 2)
		i.deny("sacme", 2)
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		i.want(t, fmt.Sprintf("edge/search | / %%20 27T23 %d/%d", 5*(n+1), 2*(n+1)), fmt.Sprintf("27 acme %d", 2*(n+1)))
	}
	for text, wrong := range map[string]bool{
		"": true, "{": true, "[]": true, "null": true, "{}": false, `{"2026-11-27":null}`: true, `{"x":{"rules":{},"subjects":{}}}`: true,
		`{"2026-11-27":{"rules":{"edge":[]},"subjects":{}}}`: true, `{"2026-11-27":{"rules":{"edge r":1},"subjects":{}}}`: true, `{"2026-11-27":{"rules":{"edge r":null},"subjects":{}}}`: true,
		`{"2026-11-27":{"rules":{"edge %zz":[]},"subjects":{}}}`: true, `{"2026-11-27":{"rules":{"edge r":[{"decisions":-1}]},"subjects":{}}}`: true,
		`{"2026-11-27":{"rules":{},"subjects":{"s` + strings.Repeat("a", maxName) + `":1}}}`: true,
		`{"2026-11-27":{"rules":{},"subjects":{"sacme":-1}}}`:                                true,
		`{"2026-11-27":{}}`: true,
	} {
		tree.Write(t, file, text)
		if _, err := load(file); (err != nil) != wrong {
			t.Errorf("%s: error %v, want one: %v", text, err, wrong)
		}
		newInstance(start, nil, file).want(t)
	}
	if err := os.WriteFile(file, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	newInstance(start, nil, file).want(t)
}

// TestBounds counts more rules and subjects than a day has.
func TestBounds(t *testing.T) {
	inBoth(t, func(t *testing.T, i *instance) {
		i.count(strings.Repeat("r", maxName), 1, 1)
		for n := range maxRules + 20 {
			i.count(fmt.Sprint("rule-", n), 1, 0)
		}
		for n := range maxSubjects + 50 {
			i.deny(fmt.Sprint("ssubject-", n), 2)
		}
		i.deny("s"+strings.Repeat("a", maxName), 99)
		i.tick(30 * time.Second)
		i.deny("sacme", 7)
		i.deny("sfew", 1)
		i.tick(time.Minute)
		a, err := i.Read(t.Context(), Query{To: i.now})
		if err != nil {
			t.Fatal(err)
		}
		decisions := uint64(0)
		for _, r := range a.Rules {
			decisions += r.Hours[0].Decisions
		}
		if first := a.Rules[0]; len(a.Rules) > maxRules+1 || decisions != maxRules+21 || first.Domain != "" || first.Rule != OtherRules || first.Hours[0].Decisions < 20 {
			t.Errorf("%d rules with %d decisions, the first %+v", len(a.Rules), decisions, first)
		}
	})
	d := newDay()
	for n := range maxSubjects {
		d.deny(fmt.Sprint("s", n), 2)
	}
	d.deny("sfew", 1)
	d.deny("smany", 3)
	if len(d.Subjects) != maxSubjects || d.Subjects["smany"] != 3 || d.Subjects["sfew"] != 0 {
		t.Errorf("%d subjects, many %d, few %d", len(d.Subjects), d.Subjects["smany"], d.Subjects["sfew"])
	}
}

// TestManyInstances adds more rules than a day has, and subjects, from several instances.
func TestManyInstances(t *testing.T) {
	r := inRedis(t)
	for n := range 3 {
		i := newInstance(start.Add(-24*time.Hour), r, "")
		for hour := range 24 {
			i.now = time.Date(2026, 11, 27, hour, 30, 0, 0, time.UTC)
			for k := range maxRules {
				i.count(fmt.Sprint("rule-", n, "-", k), 2, 1)
			}
			i.tick(0)
		}
		for k := range maxSubjects {
			i.deny(fmt.Sprint("s", n, "-", k), uint64(n)+1)
		}
		i.tick(time.Minute)
	}
	d, err := r.read(t.Context(), "2026-11-27")
	if err != nil || len(d.Subjects) != maxSubjects {
		t.Fatalf("got %d subjects, %v, want %d", len(d.Subjects), err, maxSubjects)
	}
	all := Count{}
	for _, hours := range d.Rules {
		for _, c := range hours {
			all.Decisions, all.Denials = all.Decisions+c.Decisions, all.Denials+c.Denials
		}
	}
	if want := (Count{3 * 24 * maxRules * 2, 3 * 24 * maxRules}); all != want {
		t.Errorf("got %+v, want %+v", all, want)
	}
	for who, n := range d.Subjects {
		if n != 3 {
			t.Errorf("%s has %d denials: subjects with 3 have its place", who, n)
		}
	}
	if fields, bytes := r.Client.HLen(t.Context(), r.keys("2026-11-27")[0]).Val(), r.Client.MemoryUsage(t.Context(), r.keys("2026-11-27")[0]).Val(); fields > maxFields+48 || bytes > 5<<20 {
		t.Errorf("%d fields of %d bytes", fields, bytes)
	}
}

// TestHostile reads what another program has written: an error, and no panic.
func TestHostile(t *testing.T) {
	r := inRedis(t)
	keys := r.keys("2026-11-27")
	long := strings.Repeat("x", 1<<20)
	for what, write := range map[string]func(redis.Pipeliner){
		"a text":             func(p redis.Pipeliner) { p.Set(t.Context(), keys[0], "x", 0) },
		"a text as subjects": func(p redis.Pipeliner) { p.Set(t.Context(), keys[1], "x", 0) },
		"many fields": func(p redis.Pipeliner) {
			for n := range maxFields + 49 {
				p.HSet(t.Context(), keys[0], fmt.Sprint("00aedge r", n), 1)
			}
		},
		"many subjects": func(p redis.Pipeliner) {
			for n := range maxSubjects + 1 {
				p.ZAdd(t.Context(), keys[1], redis.Z{Score: 1, Member: fmt.Sprint("s", n)})
			}
		},
		"a long field":         func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00a"+long, 1) },
		"a long value":         func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge r", long) },
		"a long subject":       func(p redis.Pipeliner) { p.ZAdd(t.Context(), keys[1], redis.Z{Score: 1, Member: "s" + long}) },
		"a long name":          func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge "+long[:maxName], 1) },
		"no name":              func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00a", 1) },
		"an empty field":       func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "", 1) },
		"one byte":             func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "0", 1) },
		"an hour too late":     func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "24aedge r", 1) },
		"an hour below 0":      func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "-1aedge r", 1) },
		"an unknown kind":      func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00xedge r", 1) },
		"a bad escape":         func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge %zz", 1) },
		"bytes":                func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge %ff", 1) },
		"a text as a count":    func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge r", "many") },
		"a count below 0":      func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge r", -1) },
		"no number":            func(p redis.Pipeliner) { p.HSet(t.Context(), keys[0], "00aedge r", "nan") },
		"an infinite score":    func(p redis.Pipeliner) { p.ZAdd(t.Context(), keys[1], redis.Z{Score: -1, Member: "sacme"}) },
		"bytes as a subject":   func(p redis.Pipeliner) { p.ZAdd(t.Context(), keys[1], redis.Z{Score: 1, Member: "s\xff"}) },
		"a subject of 1e300 ×": func(p redis.Pipeliner) { p.ZAdd(t.Context(), keys[1], redis.Z{Score: 1e300, Member: "sacme"}) },
	} {
		r.Client.Del(t.Context(), keys...)
		if _, err := r.Client.Pipelined(t.Context(), func(p redis.Pipeliner) error { write(p); return nil }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		i := newInstance(start, r, "")
		if a, err := i.Read(t.Context(), Query{To: i.now}); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: got %+v, error %v, want a short error", what, a, err)
		}
		i.count("search", 1, 0)
		i.tick(30 * time.Second) // writes what it can, or keeps it
	}
	// A subject of an unknown kind is not shown.
	r.Client.Del(t.Context(), keys...)
	r.Client.ZAdd(t.Context(), keys[1], redis.Z{Score: 1, Member: "zacme"}, redis.Z{Score: 1, Member: "s"})
	newInstance(start, r, "").want(t)
}

// TestJSON has no null in an empty answer.
func TestJSON(t *testing.T) {
	a, err := newInstance(start, nil, "").Read(t.Context(), Query{To: start})
	text, _ := json.Marshal(a)
	if want := `{"from":"2026-10-29T00:00:00Z","to":"2026-11-27T23:59:30Z","of":"instance","rules":[],"days":[]}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}

// TestRun counts once a minute by itself, while operators read.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var decisions atomic.Uint64
		c := New(Options{
			Totals: func(to *metrics.Totals) {
				to.Rules = []metrics.RuleTotals{{Domain: "edge", Rule: "search", Decisions: float64(decisions.Load())}}
			},
			Denied: func(time.Time) map[string]uint64 { return map[string]uint64{"sacme": 1} },
			Now:    time.Now, Log: zap.NewNop(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		for n := range uint64(5) {
			decisions.Store(10 * (n + 1))
			time.Sleep(every)
			synctest.Wait()
			a, err := c.Read(ctx, Query{To: time.Now()})
			if err != nil || len(a.Rules) != 1 || a.Rules[0].Hours[0].Decisions != 10*(n+1) || a.Days[0].Subjects[0].Count != n+1 {
				t.Fatalf("after %d minutes: %+v, %v", n+1, a, err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
