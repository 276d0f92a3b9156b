package rules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestOwnLimits: an override changes how much, never how it is counted.
func TestOwnLimits(t *testing.T) {
	type limits = []window.Limit
	hits := func(p window.Policy, n uint64, w time.Duration) window.Limit {
		return window.Limit{Policy: p, Hits: n, Window: w}
	}
	bucket := func(rate uint32, w time.Duration, burst uint64) window.Limit {
		return window.Limit{Policy: window.TokenBucket, Rate: rate, Window: w, Hits: burst}
	}
	const m = time.Minute
	plain := hits(window.Sliding, 7, m)
	for name, c := range map[string]struct{ rule, override, want limits }{
		"sliding":                   {limits{hits(window.Sliding, 5, m)}, limits{hits(0, 7, time.Hour)}, limits{hits(0, 7, time.Hour)}},
		"fixed":                     {limits{hits(window.Fixed, 5, m)}, limits{plain}, limits{hits(window.Fixed, 7, m)}},
		"fixed, another window":     {limits{hits(window.Fixed, 5, m)}, limits{hits(0, 7, time.Hour)}, limits{hits(window.Fixed, 7, time.Hour)}},
		"counter":                   {limits{hits(window.SlidingCounter, 5, m)}, limits{plain}, limits{hits(window.SlidingCounter, 7, m)}},
		"the same window first":     {limits{hits(window.Fixed, 5, time.Second), hits(window.SlidingCounter, 5, m)}, limits{plain}, limits{hits(window.SlidingCounter, 7, m)}},
		"several policies":          {limits{hits(window.Fixed, 5, time.Second), hits(window.SlidingCounter, 5, time.Hour)}, limits{plain}, limits{plain}},
		"bucket":                    {limits{bucket(5, time.Second, 50)}, limits{bucket(9, m, 90)}, limits{bucket(9, m, 90)}},
		"hits for a bucket":         {limits{bucket(5, time.Second, 50)}, limits{plain}, limits{bucket(7, m, 7)}},
		"no hits for a bucket":      {limits{bucket(5, time.Second, 50)}, limits{hits(0, 0, m)}, limits{bucket(1, m, 0)}},
		"hits beside a bucket":      {limits{bucket(5, time.Second, 50), hits(window.Fixed, 5, m)}, limits{plain, bucket(1, m, 2)}, limits{hits(window.Fixed, 7, m), bucket(1, m, 2)}},
		"bucket twice":              {limits{bucket(5, time.Second, 50)}, limits{plain, bucket(1, m, 2)}, nil},
		"bucket for sliding":        {limits{hits(window.Sliding, 5, m)}, limits{bucket(1, m, 2)}, nil},
		"in flight":                 {limits{hits(window.InFlight, 5, m)}, limits{hits(window.InFlight, 9, time.Second)}, limits{hits(window.InFlight, 9, m)}},
		"hits for in flight":        {limits{hits(window.InFlight, 5, m)}, limits{plain}, nil},
		"in flight for sliding":     {limits{hits(window.Sliding, 5, m)}, limits{hits(window.InFlight, 9, time.Second)}, nil},
		"hits beside in flight":     {limits{hits(window.Sliding, 5, m), hits(window.InFlight, 5, m)}, limits{plain}, limits{plain, hits(window.InFlight, 5, m)}},
		"in flight beside hits":     {limits{hits(window.Sliding, 5, m), hits(window.InFlight, 5, m)}, limits{hits(window.InFlight, 9, time.Second)}, limits{hits(window.InFlight, 9, m), hits(window.Sliding, 5, m)}},
		"both kinds":                {limits{hits(window.Sliding, 5, m), hits(window.InFlight, 5, m)}, limits{plain, hits(window.InFlight, 9, time.Second)}, limits{plain, hits(window.InFlight, 9, m)}},
		"calendar":                  {limits{hits(window.Calendar, 5, m)}, limits{plain}, limits{hits(window.Calendar, 7, m)}},
		"calendar, another unit":    {limits{hits(window.Calendar, 5, time.Hour)}, limits{plain}, nil},
		"calendar beside a window":  {limits{hits(window.Calendar, 5, time.Hour), hits(window.Fixed, 5, time.Second)}, limits{plain}, limits{hits(window.Fixed, 7, m)}},
		"hits beside a calendar":    {limits{hits(window.Calendar, 5, time.Hour), bucket(5, time.Second, 50)}, limits{plain}, nil},
		"no limits":                 {nil, limits{plain, bucket(1, m, 2)}, limits{plain, bucket(1, m, 2)}},
		"no limits, and in flight":  {nil, limits{hits(window.InFlight, 9, time.Second)}, nil},
		"unlimited":                 {limits{hits(window.Fixed, 5, m)}, nil, limits{}},
		"one of two has no meaning": {limits{hits(window.Fixed, 5, m)}, limits{plain, bucket(1, m, 2)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var rule []rules.Limit
			for _, l := range c.rule {
				rule = append(rule, rules.Limit{Limit: l})
			}
			own, ok := rules.OverrideLimits(nil, rule, c.override)
			if ok != (c.want != nil) {
				t.Fatalf("ownLimits reports %v", ok)
			}
			if !ok {
				return
			}
			got := limits{}
			for _, l := range own {
				got = append(got, l.Limit)
				if err := l.Valid(); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOverrideNotes: an override that does not count as its author may expect has a note.
func TestOverrideNotes(t *testing.T) {
	type limits = []window.Limit
	sliding, day := window.Limit{Hits: 7, Window: time.Minute}, window.Limit{Hits: 7, Window: 24 * time.Hour}
	bucket := window.Limit{Policy: window.TokenBucket, Rate: 5, Window: time.Second, Hits: 50}
	hour := window.Limit{Policy: window.Calendar, Hits: 5, Window: time.Hour}
	places := window.Limit{Policy: window.InFlight, Hits: 5, Window: time.Minute}
	counter := window.Limit{Policy: window.SlidingCounter, Hits: 5, Window: time.Minute}
	large := window.Limit{Hits: 500_000e6, Window: time.Minute}
	largest := window.Limit{Hits: window.MaxHits, Window: time.Minute}
	for name, c := range map[string]struct {
		rule, override limits
		quota          bool
		want           string
	}{
		"the same":         {limits{sliding}, limits{day}, false, ""},
		"unlimited":        {limits{bucket, hour}, nil, false, ""},
		"a bucket":         {limits{bucket}, limits{bucket}, false, ""},
		"all policies":     {limits{bucket, day}, limits{bucket, day}, false, ""},
		"beside in flight": {limits{sliding, places}, limits{sliding}, false, ""},
		"hits for a bucket": {
			limits{bucket},
			limits{sliding},
			false,
			"the rule is a token bucket, so these hits count as 7 per 1m, bursts of 7: write rate and burst",
		},
		"a bucket is lost": {
			limits{bucket, day},
			limits{sliding},
			false,
			"it replaces all limits of the rule, so 5 per 1s, bursts of 50 does not apply to the subject: write under limits what shall stay",
		},
		"a calendar and a bucket are lost": {
			limits{bucket, day, hour},
			limits{sliding},
			false,
			"it replaces all limits of the rule, so 5 per 1s, bursts of 50 and 5 per hour do not apply to the subject: write under limits what shall stay",
		},
		"no meaning": {
			limits{sliding},
			limits{bucket},
			false,
			"these keys have no meaning under the policy sliding: rls ignores this override",
		},
		"no meaning beside a calendar": {
			limits{hour, bucket},
			limits{sliding},
			false,
			"these keys have no meaning under the policies calendar and token_bucket: rls ignores this override",
		},
		"too large": {
			limits{sliding},
			limits{large},
			false,
			"a limit above 4294967294 is too large for the policy of the rule: rls ignores this override",
		},
		"large":             {limits{counter}, limits{large}, false, ""},
		"a bucket too slow": {limits{bucket}, limits{largest}, false, "a limit above 4294967294 is too large for the policy of the rule: rls ignores this override"},
		"quota":             {limits{sliding}, limits{sliding, day}, true, "a quota rule has one limit: rls ignores this override"},
	} {
		rs := rules.NewRules(rules.Identity{})
		r := rules.Rule{Quota: c.quota}
		for _, l := range c.rule {
			r.Terms.Limits = append(r.Terms.Limits, rules.Limit{Limit: l})
		}
		if got := rs.OverrideNote(&r, "free", &tier.Override{Limits: c.override}); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
