package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/test/random"
)

// keeping is a describer whose questions stay valid.
type keeping struct{ *fields }

func (keeping) Keep(int) {}

// batched gives a random number of records at once.
type batched struct {
	*records
	random *rand.Rand
}

func (b batched) Batch(most int) ([]accesslog.Record, error) {
	from := b.next
	if from == len(b.of) {
		return nil, io.EOF
	}
	b.next += min(1+b.random.IntN(most), len(b.of)-from)
	return b.of[from:b.next], nil
}

// rulesOfAhead are rules of each policy.
func rulesOfAhead(t *testing.T) *policy.Rules {
	hours, err := calendar.New(calendar.Spec{Unit: "hour"})
	if err != nil {
		t.Fatal(err)
	}
	directory, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	if err := directory.Add(tier.Subject{ID: "v1", Tier: "pro"}); err != nil {
		t.Fatal(err)
	}
	periods := limited("calendar", window.Limit{Hits: 30, Window: calendar.Hour.Nominal(), Policy: window.Calendar})
	periods.Terms.Limits[0].Calendar = hours
	return rulesOf(
		t, directory, limited("tenant", per(8, time.Minute), per(30, time.Hour)), limited("other", per(5, time.Minute)), limited("learns", per(20, time.Minute)), periods,
		limited("bucket", window.Limit{Hits: 5, Window: time.Second, Rate: 1, Policy: window.TokenBucket}),
		limited("flight", window.Limit{Hits: 2, Window: time.Hour, Policy: window.InFlight}),
		policy.Rule{Domain: "edge", Name: "per-key", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, ByTier: map[string]policy.Terms{
			"free": {Limits: []policy.Limit{{Limit: per(3, time.Minute)}}}, "pro": {Limits: []policy.Limit{{Limit: per(9, time.Minute)}}},
		}},
	)
}

// decisionsAndReport replays a source. It also returns whether a request depended on those before.
func decisionsAndReport(t *testing.T, describer Describer, source Source, against bool) (text string, dependent bool) {
	var out bytes.Buffer
	o := EngineOptions{Rules: rulesOfAhead(t), Describer: describer, Decisions: NewDecisions(&out, []string{"log"}), WhatIf: func(string) bool { return true }}
	if against {
		o.Against = rulesOfAhead(t)
	}
	e := NewEngine(o)
	defer e.Close()
	if err := e.Run(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	report, err := e.Report(t.Context(), Logs{})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Decisions.Flush(); err != nil {
		t.Fatal(err)
	}
	of, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return out.String() + string(of), e.dependent
}

// TestAhead decides requests one after the other, and ahead: both write the same decisions and
// report the same.
func TestAhead(t *testing.T) {
	for name, f := range map[string]fields{
		"one key": {keys: []string{"tenant"}}, "two keys": {keys: []string{"tenant", "other"}}, "bucket": {keys: []string{"bucket", "tenant"}},
		"learns":   {keys: []string{"learns"}, costs: []uint64{1, 3, 1, 1, 2, 1, 1, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}},
		"calendar": {keys: []string{"calendar", "tenant"}}, "in flight": {keys: []string{"flight", "tenant"}}, "at the end": {keys: []string{"tenant", "learns"}, end: "learns"},
		"tiers": {keys: []string{"api_key", "tenant"}, subject: true},
	} {
		for _, against := range []bool{false, true} {
			t.Run(fmt.Sprint(name, against), func(t *testing.T) {
				steps := random.Steps(t, 800, 3000)
				random := rand.New(rand.NewPCG(7, uint64(len(name))))
				from, at := new(records), time.Duration(0)
				for range steps {
					at += time.Duration(random.ExpFloat64() * float64(3*time.Second))
					var values []string
					for range len(f.keys) {
						values = append(values, []string{"v1", "v2", "v3", "v4", "-"}[random.IntN(5)])
					}
					from.add(at, append(values, fmt.Sprint(random.IntN(9000)))...)
				}
				want, _ := decisionsAndReport(t, &f, from, against)
				from.next = 0
				got, dependent := decisionsAndReport(t, keeping{&f}, batched{from, random}, against)
				if got != want {
					t.Errorf("ahead:\n%.2000s\none after the other:\n%.2000s", got, want)
				}
				if want := name == "learns" || name == "calendar" || name == "in flight" || name == "at the end"; dependent != want {
					t.Errorf("requests depend on those before: %v, want %v", dependent, want)
				}
			})
		}
	}
}
