package grant

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestRaise raises limits of each policy. No grant lowers a limit, or changes the log.
func TestRaise(t *testing.T) {
	const minute, month = time.Minute, 30 * 24 * time.Hour
	for name, tt := range map[string]struct {
		amount Amount
		limit  window.Limit
		want   window.Limit // zero: not raised
	}{
		"a factor":           {Amount{Factor: 2}, window.Limit{Hits: 100, Window: minute}, window.Limit{Hits: 200, Window: minute}},
		"rounded up":         {Amount{Factor: 1.5}, window.Limit{Hits: 3, Window: minute}, window.Limit{Hits: 5, Window: minute}},
		"not a hit too many": {Amount{Factor: 1.1}, window.Limit{Hits: 10, Window: minute}, window.Limit{Hits: 11, Window: minute}},
		"a limit of 0":       {Amount{Factor: 2}, window.Limit{Window: minute}, window.Limit{}},
		"the largest":        {Amount{Factor: 1000}, window.Limit{Hits: 1 << 31, Window: minute}, window.Limit{Hits: window.Unlimited - 1, Window: minute}},
		"the largest month":  {Amount{Factor: 1000}, window.Limit{Hits: 1 << 52, Window: month, Policy: window.Calendar}, window.Limit{Hits: window.MaxHits, Window: month, Policy: window.Calendar}},
		"not unlimited":      {Amount{Factor: 3}, window.Limit{Hits: window.Unlimited / 3, Window: month, Policy: window.Calendar}, window.Limit{Hits: window.Unlimited + 1, Window: month, Policy: window.Calendar}},
		"money":              {Amount{Limit: "750000000000/month"}, window.Limit{Hits: 500_000e6, Window: month, Policy: window.Calendar}, window.Limit{Hits: 750_000e6, Window: month, Policy: window.Calendar}},
		"unlimited":          {Amount{Factor: 2}, window.Limit{Hits: window.Unlimited, Window: minute}, window.Limit{}},
		"a bucket":           {Amount{Factor: 3}, window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}, window.Limit{Hits: 150, Rate: 30, Window: time.Second, Policy: window.TokenBucket}},
		"in flight":          {Amount{Factor: 2}, window.Limit{Hits: 20, Window: minute, Policy: window.InFlight}, window.Limit{Hits: 40, Window: minute, Policy: window.InFlight}},
		"a number":           {Amount{Limit: "500/minute"}, window.Limit{Hits: 100, Window: minute, Policy: window.Fixed}, window.Limit{Hits: 500, Window: minute, Policy: window.Fixed}},
		"another window":     {Amount{Limit: "500/hour"}, window.Limit{Hits: 100, Window: minute}, window.Limit{}},
		"a smaller number":   {Amount{Limit: "50/1m"}, window.Limit{Hits: 100, Window: minute}, window.Limit{}},
		"a month":            {Amount{Limit: "500/month"}, window.Limit{Hits: 100, Window: month, Policy: window.Calendar}, window.Limit{Hits: 500, Window: month, Policy: window.Calendar}},
		"30 days":            {Amount{Limit: "500/30d"}, window.Limit{Hits: 100, Window: month}, window.Limit{Hits: 500, Window: month}},
		"the rate":           {Amount{Limit: "20/second"}, window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}, window.Limit{Hits: 50, Rate: 20, Window: time.Second, Policy: window.TokenBucket}},
		"the burst":          {Amount{Limit: "90/1s"}, window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}, window.Limit{Hits: 90, Rate: 90, Window: time.Second, Policy: window.TokenBucket}},
		"a number in flight": {Amount{Limit: "30"}, window.Limit{Hits: 20, Window: minute, Policy: window.InFlight}, window.Limit{Hits: 30, Window: minute, Policy: window.InFlight}},
		"a window in flight": {Amount{Limit: "30/minute"}, window.Limit{Hits: 20, Window: minute, Policy: window.InFlight}, window.Limit{}},
	} {
		if err := tt.amount.Valid(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l := rules.Limit{Limit: tt.limit, Precision: rules.PrecisionOf(tt.limit)}
		raised := tt.amount.Raise(&l)
		if tt.want == (window.Limit{}) {
			tt.want = tt.limit
		}
		if l.Limit != tt.want || raised != (tt.want != tt.limit) {
			t.Errorf("%s: %+v, %v, want %+v", name, l.Limit, raised, tt.want)
		}
		if l.Precision != rules.PrecisionOf(l.Limit) {
			t.Errorf("%s: the precision is %v", name, l.Precision)
		}
		if before, after := (window.Check{Limit: tt.limit}).Log(), (window.Check{Limit: l.Limit}).Log(); before != after {
			t.Errorf("%s: the log %v is now %v", name, before, after)
		}
	}
	written := rules.Limit{Limit: window.Limit{Hits: 100, Window: minute}, Precision: time.Second}
	if (Amount{Factor: 200}).Raise(&written); written.Precision != time.Second {
		t.Errorf("the rule's own precision is now %v", written.Precision)
	}
}

// TestHostileGrants reads what any program could write into the store.
func TestHostileGrants(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	good := Grant{
		ID: NewID(), Rule: "per-key", Caller: Caller{Subject: "acme"}, Amount: Amount{Factor: 2},
		Until: now.Add(time.Hour), Reason: "ticket 4711", By: "kim", At: now,
	}
	write := func(change func(*Grant)) []byte {
		g := good
		change(&g)
		data, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if g, err := Parse(write(func(*Grant) {}), now); err != nil || *g != good {
		t.Fatalf("%+v, %v", g, err)
	}
	for name, data := range map[string][]byte{
		"no JSON": []byte("sk_secret"), "null": []byte("null"), "a list": []byte("[]"), "another type": []byte(`{"rule": 7}`), "an infinite factor": []byte(`{"factor": 1e999}`),
		"no id":                  write(func(g *Grant) { g.ID = "" }),
		"an id with a path":      write(func(g *Grant) { g.ID = "../../../../" }),
		"no rule":                write(func(g *Grant) { g.Rule = "" }),
		"no caller":              write(func(g *Grant) { g.Subject = "" }),
		"two callers":            write(func(g *Grant) { g.Address = "192.0.2.7" }),
		"a long subject":         write(func(g *Grant) { g.Subject = strings.Repeat("a", 1000) }),
		"no digest":              write(func(g *Grant) { g.Subject, g.Digest = "", "sk_secret" }),
		"an address of a name":   write(func(g *Grant) { g.Subject, g.Address = "", "2001:DB8::1" }),
		"no amount":              write(func(g *Grant) { g.Factor = 0 }),
		"two amounts":            write(func(g *Grant) { g.Limit = "5/minute" }),
		"a factor that lowers":   write(func(g *Grant) { g.Factor = 0.5 }),
		"a factor of millions":   write(func(g *Grant) { g.Factor = 1e6 }),
		"three decimals":         write(func(g *Grant) { g.Factor = 1.005 }),
		"a limit of 0":           write(func(g *Grant) { g.Factor, g.Limit = 0, "0/minute" }),
		"a limit of everything":  write(func(g *Grant) { g.Factor, g.Limit = 0, "4294967295/minute" }),
		"a limit per fortnight":  write(func(g *Grant) { g.Factor, g.Limit = 0, "5/fortnight" }),
		"a limit of many digits": write(func(g *Grant) { g.Factor, g.Limit = 0, strings.Repeat("9", 300) }),
		"86 years":               write(func(g *Grant) { g.At, g.Until = now.Add(86*365*24*time.Hour), now.Add(86*365*24*time.Hour) }),
		"a terminal's reason":    write(func(g *Grant) { g.Reason = "\x1b[2J" }),
		"a long reason":          write(func(g *Grant) { g.Reason = strings.Repeat("a", MaxReason+1) }),
		"a reader's order":       write(func(g *Grant) { g.By = "kim\u202e" }),
	} {
		if g, err := Parse(data, now); err == nil {
			t.Errorf("%s: %+v", name, g)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "acme") {
			t.Errorf("%s: the error repeats the grant: %v", name, err)
		}
	}
}
