package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/test/random"
)

// begin is the time of the first request of a test.
const begin = 1_700_000_000 * time.Second

// fields describes requests by the entries of a log, each of which is a descriptor.
type fields struct {
	keys    []string
	costs   []uint64 // nil: 1
	end     string   // asked at the end too, with this key
	subject bool     // the first value is the id of the subject
}

func (f *fields) Wants() []accesslog.Attribute {
	var wants []accesslog.Attribute
	for _, k := range f.keys {
		wants = append(wants, accesslog.Header(k))
	}
	return wants
}

func (f *fields) Describe(dst []Question, r *accesslog.Record) []Question {
	for i, k := range f.keys {
		v := r.Values[i]
		if v.State != accesslog.Present {
			continue
		}
		cost := uint64(1)
		if f.costs != nil {
			cost = f.costs[int(r.Line)%len(f.costs)]
		}
		q := Question{Domain: "edge", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: k, Value: string(v.Text)}}, Cost: cost}}, AtEnd: k == f.end}
		if f.subject && i == 0 {
			q.Subject = string(v.Text)
		}
		dst = append(dst, q)
	}
	return dst
}

func (*fields) Unreported() []Unreported { return nil }

// records is a source of requests: a time since begin, and values. The request lacks a value "-".
type records struct {
	of   []accesslog.Record
	next int
}

func (r *records) Next() (*accesslog.Record, error) {
	if r.next == len(r.of) {
		return nil, io.EOF
	}
	r.next++
	return &r.of[r.next-1], nil
}

func (r *records) add(after time.Duration, values ...string) {
	rec := accesslog.Record{At: begin + after, Line: int64(len(r.of) + 1)}
	for _, v := range values {
		if v == "-" {
			rec.Values = append(rec.Values, accesslog.Value{State: accesslog.Absent})
			continue
		}
		rec.Values = append(rec.Values, accesslog.Value{Text: []byte(v), State: accesslog.Present})
	}
	r.of = append(r.of, rec)
}

// limited returns a rule whose name is its key.
func limited(key string, limits ...window.Limit) rules.Rule {
	r := rules.Rule{Domain: "edge", Name: key, Path: []descriptors.Node{{Key: key, AnyValue: true}}}
	for _, l := range limits {
		r.Terms.Limits = append(r.Terms.Limits, rules.Limit{Limit: l, Precision: window.Precision(l)})
	}
	return r
}

func per(hits uint64, win time.Duration) window.Limit { return window.Limit{Hits: hits, Window: win} }

func rulesOf(t testing.TB, directory *tier.Directory, all ...rules.Rule) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil), Tiers: directory})
	if err := rs.AddDomain("edge"); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return rs
}

// replayed returns the report of a replay.
func replayed(t testing.TB, o EngineOptions, from *records) *Report {
	t.Helper()
	e := NewEngine(o)
	defer e.Close()
	from.next = 0
	if err := e.Run(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	r, err := e.Report(t.Context(), accesslog.Stats{Lines: uint64(len(from.of))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// settled replays requests, and returns what then remains of the limit of an entry bytes.
func settled(t *testing.T, o EngineOptions, from *records, value string) (*Report, uint64) {
	t.Helper()
	e := NewEngine(o)
	defer e.Close()
	if err := e.Run(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	r, err := e.Report(t.Context(), accesslog.Stats{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.now.timeline.Decide(t.Context(), 0, decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: "bytes", Value: value}}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, v.Limits[0].Decision.Remaining
}

// TestEngine holds a report to requests at given times.
func TestEngine(t *testing.T) {
	from := new(records)
	for _, s := range []int{0, 1, 2, 3, 11} { // two in any 10 s: 2 and 3 are denied
		from.add(time.Duration(s)*time.Second, "acme", "0")
	}
	from.add(12*time.Second, "zoo", "0")
	from.add(13*time.Second, "-", "0")
	r := replayed(t, EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(2, 10*time.Second)), limited("unused", per(5, time.Minute))), Describer: &fields{keys: []string{"tenant"}}, Locations: []string{"rules.yaml:3", "rules.yaml:9"}}, from)
	if r.Requests != 7 || r.Allowed != 5 || r.Denied != 2 || r.Unlimited != 1 || r.NoQuestion != 1 {
		t.Errorf("got %d requests, %d allowed, %d denied, %d unlimited, %d without a question", r.Requests, r.Allowed, r.Denied, r.Unlimited, r.NoQuestion)
	}
	want := []RuleReport{{
		Rule: "tenant", Location: "rules.yaml:3", Limit: "2 per 10s", Requests: 6, Denied: 2, Near: 1, Logs: 2, DeniedLogs: 1,
	}, {Rule: "unused", Location: "rules.yaml:9", Limit: "5 per 1m"}}
	if diff := cmp.Diff(want, r.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	when := time.Unix(0, int64(begin)).UTC()
	subjects := []DeniedSubject{{Subject: "tenant=acme", Rule: "tenant", Denied: 2, First: when.Add(2 * time.Second), Last: when.Add(3 * time.Second), Seconds: 2}}
	if diff := cmp.Diff(subjects, r.Subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	if !r.From.Equal(when) || !r.To.Equal(when.Add(13*time.Second)) {
		t.Errorf("from %v to %v", r.From, r.To)
	}
}

// TestTotals: a request that meets two limits of a rule counts once for the rule, and so does its
// caller, who has a log for each limit.
func TestTotals(t *testing.T) {
	from := new(records)
	// The limit of a second denies the second request, and that of a minute the last three.
	for _, ms := range []int{0, 200, 1500, 3000, 4000, 4100} {
		from.add(time.Duration(ms)*time.Millisecond, "acme", "0")
	}
	from.add(5*time.Second, "zoo", "0")
	r := replayed(t, EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(1, time.Second), per(2, time.Minute))), Describer: &fields{keys: []string{"tenant"}}, Locations: []string{"rules.yaml:3"}}, from)
	if diff := cmp.Diff([]RuleTotal{{Rule: "tenant", Requests: 7, Denied: 4, Near: 3, Logs: 2, DeniedLogs: 1}}, r.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if r.Near != 3 {
		t.Errorf("%d requests were near a limit, want 3", r.Near)
	}
	if len(r.Subjects) != 1 || r.Subjects[0].Denied != 4 || r.Subjects[0].Seconds != 3 {
		t.Errorf("subjects %+v, want one with 4 denials in 3 seconds", r.Subjects)
	}
}

// TestEngineTiers decides by the subject that the log names, and counts those that are unknown.
func TestEngineTiers(t *testing.T) {
	directory, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	if err := directory.Add(tier.Subject{ID: "acme", Tier: "pro"}); err != nil {
		t.Fatal(err)
	}
	rule := rules.Rule{Domain: "edge", Name: "per-key", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, ByTier: map[string]rules.Terms{
		"free": {Limits: []rules.Limit{{Limit: per(1, time.Minute)}}}, "pro": {Limits: []rules.Limit{{Limit: per(3, time.Minute)}}},
	}}
	from := new(records)
	for i := range 4 {
		from.add(time.Duration(i)*time.Second, "acme", "0")
		from.add(time.Duration(i)*time.Second, "ghost", "0")
	}
	r := replayed(t, EngineOptions{Rules: rulesOf(t, directory, rule), Describer: &fields{keys: []string{"api_key"}, subject: true}}, from)
	if r.UnknownSubjects != 4 || r.Denied != 4 {
		t.Errorf("got %d unknown subjects and %d denied, want 4 and 4", r.UnknownSubjects, r.Denied)
	}
	got := fmt.Sprint(r.Rules[0].Tier, r.Rules[0].Denied, r.Rules[1].Tier, r.Rules[1].Denied, r.Subjects[0].Subject, r.Subjects[1].Subject)
	if want := "free3pro1all callersacme"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestEngineAtEnd asks at the end of a request, at its own time among the others.
func TestEngineAtEnd(t *testing.T) {
	from := new(records)
	// The costs of the ends come at 5 s and 2 s: only the second one is there at 3 s.
	from.add(0, "a", "x", "5000")
	from.add(time.Second, "a", "x", "1000")
	from.add(3*time.Second, "a", "x", "0")
	rules := rulesOf(t, nil, limited("tenant", per(100, time.Minute)), limited("bytes", per(2, time.Minute)))
	r, remaining := settled(t, EngineOptions{Rules: rules, Describer: &fields{keys: []string{"tenant", "bytes"}, end: "bytes"}}, from, "x")
	if p := r.Rules[1]; r.Denied != 0 || p.Requests != 0 || p.Logs != 1 || remaining != 0 {
		t.Errorf("denied %d; at the end %d remain: %+v", r.Denied, remaining, p)
	}
}

// TestEngineDuration ends the streams of requests when the log says that they ended. It reads durations
// with parts of a millisecond, and says of how many requests the duration is not known.
func TestEngineDuration(t *testing.T) {
	for duration, known := range map[string]bool{"2000.5": true, "2e3": true, "-": false, "-1": false, "1e300": false, "NaN": false, "x": false} {
		from := new(records)
		from.add(0, "a", duration)
		from.add(time.Second, "a", "0")
		flight := limited("tenant", window.Limit{Hits: 1, Window: time.Hour, Policy: window.InFlight})
		r := replayed(t, EngineOptions{Rules: rulesOf(t, nil, flight), Against: rulesOf(t, nil, flight), Describer: &fields{keys: []string{"tenant"}}, WhatIf: func(string) bool { return true }}, from)
		if (r.Denied == 1) != known || (len(r.Unreported) == 0) != known || !known && (r.Unreported[0].Requests != 1 || r.Unreported[0].Attribute != accesslog.Duration) {
			t.Errorf("%s: %d denied, unreported %+v", duration, r.Denied, r.Unreported)
		}
	}
}

// TestWhatIfNeverFits: a cost above every limit is denied by every limit of a what-if, also the largest
// cost there is.
func TestWhatIfNeverFits(t *testing.T) {
	from := new(records)
	for i := range 4 {
		from.add(time.Duration(i)*time.Second, "a")
	}
	rule := limited("tenant", per(5, time.Minute))
	rule.Charge.Factor = 2
	describer := &fields{keys: []string{"tenant"}, costs: []uint64{1, 1 << 63}}
	r := replayed(t, EngineOptions{Rules: rulesOf(t, nil, rule), Describer: describer, WhatIf: func(string) bool { return true }}, from)
	for _, row := range r.Rules[0].WhatIf.Rows {
		if row.Denied < 2 || row.Limit >= 4 && row.Denied > 2 {
			t.Errorf("limit %d: %d denied, and two requests fit no limit", row.Limit, row.Denied)
		}
	}
	if r.Denied != 2 {
		t.Errorf("%d denied, want 2", r.Denied)
	}
}

// settling asks in flight, and at the end gives the place back and reports a cost, as
// envoy/in-flight.yaml does.
type settling struct{ fields }

func (s *settling) Describe(dst []Question, r *accesslog.Record) []Question {
	dst = s.fields.Describe(dst, r)
	return append(dst, Question{Domain: "edge", AtEnd: true, Descriptors: []decide.Descriptor{
		identity.EndOfStream(),
		{Entries: descriptors.Descriptor{{Key: "bytes", Value: "all"}}, Cost: 5},
	}})
}

// TestEngineSettles charges at the end what an admitted request cost, and nothing for a denied one.
func TestEngineSettles(t *testing.T) {
	from := new(records)
	from.add(0, "a", "2000")
	from.add(1*time.Second, "a", "500")
	from.add(2500*time.Millisecond, "a", "0")
	rules := rulesOf(t, nil, limited("tenant", window.Limit{Hits: 1, Window: time.Hour, Policy: window.InFlight}), limited("bytes", per(100, time.Minute)))
	r, remaining := settled(t, EngineOptions{Rules: rules, Describer: &settling{fields{keys: []string{"tenant"}}}}, from, "all")
	if r.Denied != 1 || remaining != 90 {
		t.Errorf("got %d denied, and %d remain", r.Denied, remaining)
	}
}

// TestEngineFirstDenial ends at the first filter that denies: later ones are not asked.
func TestEngineFirstDenial(t *testing.T) {
	from := new(records)
	for i := range 5 {
		from.add(time.Duration(i), "a", "b", "0")
	}
	r := replayed(t, EngineOptions{Rules: rulesOf(t, nil, limited("one", per(2, time.Minute)), limited("two", per(100, time.Minute))), Describer: &fields{keys: []string{"one", "two"}}}, from)
	if r.Rules[1].Requests != 2 {
		t.Errorf("the second filter was asked %d times, want 2", r.Rules[1].Requests)
	}
}

// TestEngineAgainst compares two generations, request by request.
func TestEngineAgainst(t *testing.T) {
	from := new(records)
	for i, tenant := range []string{"a", "a", "a", "b", "b", "a"} {
		from.add(time.Duration(i)*time.Second, tenant, "0")
	}
	var out bytes.Buffer
	d := NewDecisions(&out, []string{"access.log"})
	one := limited("tenant", per(1, 10*time.Second))
	r := replayed(t, EngineOptions{
		Rules: rulesOf(t, nil, one), Against: rulesOf(t, nil, limited("tenant", per(2, 10*time.Second))), Describer: &fields{keys: []string{"tenant"}}, Decisions: d,
	}, from)
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if a := r.Against; a.NewlyDenied != 2 || a.Freed != 0 || a.Denied != 2 || len(a.NewlyDeniedTop) != 2 || len(a.FreedTop) != 0 {
		t.Errorf("got %+v", a)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := `{"file":"access.log","line":2,"time":"2023-11-14T22:13:21.000000000Z","allowed":false,"rule":"tenant","subject":"tenant=a","remaining":0,"retry_after":9,"against":{"allowed":true,"rule":"tenant"}}`
	if len(lines) != 6 || lines[1] != want {
		t.Errorf("got %d lines, the second is\n%s, want\n%s", len(lines), lines[1], want)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	freed := replayed(t, EngineOptions{
		Rules: rulesOf(t, nil, limited("tenant", per(2, 10*time.Second))), Against: rulesOf(t, nil, one), Describer: &fields{keys: []string{"tenant"}},
	}, from)
	if a := freed.Against; a.NewlyDenied != 0 || a.Freed != 2 || len(a.FreedTop) != 2 {
		t.Errorf("the reverse: %+v", a)
	}
}

// attempts describes requests by a tenant and an idempotency key.
type attempts struct{ fields }

func (f *attempts) Describe(dst []Question, r *accesslog.Record) []Question {
	d := descriptors.Descriptor{{Key: "tenant", Value: string(r.Values[0].Text)}, {Key: "attempt", Value: string(r.Values[1].Text)}}
	return append(dst, Question{Domain: "edge", Descriptors: []decide.Descriptor{{Entries: d, Cost: 1}}})
}

// TestEngineAgainstOnce: one of the two generations does not know the idempotency key of a rule, and
// the other one does not miss it.
func TestEngineAgainstOnce(t *testing.T) {
	once := func(r rules.Rule) rules.Rule {
		r.Charge.Once = rules.ChargeOnce{Entry: "attempt", For: time.Minute, Retries: 3}
		return r
	}
	plain, other := limited("tenant", per(1, time.Minute)), once(limited("other", per(1, time.Minute)))
	from := new(records)
	for i := range 40 {
		from.add(time.Duration(i)*time.Second, fmt.Sprint(i/2), "same")
	}
	r := replayed(t, EngineOptions{Rules: rulesOf(t, nil, plain, other), Against: rulesOf(t, nil, once(plain), other), Describer: &attempts{fields{keys: []string{"tenant", "attempt"}}}}, from)
	if a := r.Against; r.Denied != 20 || a.Denied != 0 || a.NewlyDenied != 20 {
		t.Errorf("%d are denied, and %+v, want 20 that are newly denied", r.Denied, a)
	}
}

// TestEngineFull ends at the first decision that cannot be written.
func TestEngineFull(t *testing.T) {
	from := new(records)
	for i := range 5000 {
		from.add(time.Duration(i)*time.Second, "a")
	}
	out, in := io.Pipe()
	out.Close()
	e := NewEngine(EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(1, time.Second))), Describer: &fields{keys: []string{"tenant"}}, Decisions: NewDecisions(in, nil)})
	defer e.Close()
	if err := e.Run(t.Context(), from); !errors.Is(err, io.ErrClosedPipe) || from.next > 2000 {
		t.Errorf("got %v after %d of %d requests", err, from.next, len(from.of))
	}
}

// TestEngineCancel ends between two requests, and the report is of those before.
func TestEngineCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from := &cancelling{cancel: cancel}
	e := NewEngine(EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(2, time.Minute))), Describer: &fields{keys: []string{"tenant"}}})
	defer e.Close()
	if err := e.Run(ctx, from); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	r, err := e.Report(t.Context(), accesslog.Stats{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != cancelEvery || r.Allowed != 2 {
		t.Errorf("got %d requests, %d allowed", r.Requests, r.Allowed)
	}
}

// cancelling is a source that never ends, and cancels early.
type cancelling struct {
	cancel context.CancelFunc
	r      accesslog.Record
}

func (c *cancelling) Next() (*accesslog.Record, error) {
	if c.r.Line++; c.r.Line == 100 {
		c.cancel()
	}
	c.r.At, c.r.Values = begin, []accesslog.Value{{Text: []byte("a"), State: accesslog.Present}, {}}
	return &c.r, nil
}

// TestWhatIf holds every row to replays with that limit.
func TestWhatIf(t *testing.T) {
	for name, c := range map[string]struct {
		limit window.Limit
		costs []uint64
		set   func(*window.Limit, uint64)
		unit  calendar.Unit
	}{
		"sliding":         {limit: per(10, 10*time.Second)},
		"long":            {limit: per(10, 7*24*time.Hour)},
		"costs":           {limit: per(10, 10*time.Second), costs: []uint64{1, 0, 3, 1, 2}},
		"coarse":          {limit: per(9_000, 10*time.Second), costs: []uint64{1000}},
		"fixed":           {limit: window.Limit{Hits: 10, Window: 10 * time.Second, Policy: window.Fixed}},
		"calendar":        {limit: window.Limit{Hits: 10, Window: calendar.Hour.Nominal(), Policy: window.Calendar}, unit: calendar.Hour},
		"sliding_counter": {limit: window.Limit{Hits: 10, Window: 10 * time.Second, Policy: window.SlidingCounter}},
		"token_bucket":    {limit: window.Limit{Hits: 5, Rate: 10, Window: 10 * time.Second, Policy: window.TokenBucket}, set: func(l *window.Limit, n uint64) { l.Rate = uint32(n) }},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, 11))
			from := new(records)
			at := time.Duration(0)
			for range 1000 {
				at += time.Duration(random.ExpFloat64() * float64(40*time.Millisecond))
				if random.IntN(300) == 0 {
					at += time.Duration(random.IntN(3)) * c.limit.Window / 2
				}
				from.add(at, "t"+strconv.Itoa(int(random.ExpFloat64()*3)), "0")
			}
			if c.set == nil {
				c.set = func(l *window.Limit, n uint64) { l.Hits = n }
			}
			rs := func(l window.Limit) *rules.Rules {
				rule := limited("tenant", l)
				if l.Policy == window.Calendar {
					of, err := calendar.New(calendar.Spec{Unit: c.unit.String()})
					if err != nil {
						t.Fatal(err)
					}
					rule.Terms.Limits[0].Calendar = of
				}
				return rulesOf(t, nil, rule)
			}
			with := func(n uint64) RuleReport {
				l := c.limit
				c.set(&l, n)
				return replayed(t, EngineOptions{Rules: rs(l), Describer: &fields{keys: []string{"tenant"}, costs: c.costs}}, from).Rules[0]
			}
			r := replayed(t, EngineOptions{Rules: rs(c.limit), Describer: &fields{keys: []string{"tenant"}, costs: c.costs}, WhatIf: func(string) bool { return true }}, from).Rules[0]
			if len(r.WhatIf.Rows) < 10 {
				t.Fatalf("got %d rows", len(r.WhatIf.Rows))
			}
			for _, row := range r.WhatIf.Rows {
				if want := with(row.Limit); row.Denied != want.Denied || row.DeniedLogs != want.DeniedLogs {
					t.Errorf("limit %d: got %d denied of %d logs, want %d of %d", row.Limit, row.Denied, row.DeniedLogs, want.Denied, want.DeniedLogs)
				}
				if row.Current && row.Denied != r.Denied {
					t.Errorf("the current limit denied %d and %d", row.Denied, r.Denied)
				}
			}
			for _, s := range r.WhatIf.Smallest {
				switch {
				case len(c.costs) > 1:
					if s.Above > 0 {
						t.Errorf("with several costs nothing is certain: %+v", s)
					}
				case s.Above > 0 && float64(with(s.Above).Denied) < s.Fraction*3000, s.Limit > 0 && float64(with(s.Limit).Denied) >= s.Fraction*3000, s.Above == 0 && s.Limit == 0:
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// TestTimelineSweeps keeps only the logs of the last window.
func TestTimelineSweeps(t *testing.T) {
	line := NewTimeline(rulesOf(t, nil, limited("tenant", per(2, time.Second))), 0)
	defer line.Close()
	most := 0
	for i := range random.Steps(t, 60_000, 300_000) {
		req := decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: "tenant", Value: strconv.Itoa(i)}}, Cost: 1}}}
		if _, err := line.Decide(t.Context(), begin+time.Duration(i)*time.Millisecond, req, nil); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			most = max(most, line.store.Len())
		}
	}
	if most > minSweep+2*lookEvery {
		t.Errorf("the store had %d logs, of which 1000 counted", most)
	}
}

// TestEngineAllocations decides without an allocation once the logs have their size.
func TestEngineAllocations(t *testing.T) {
	e := NewEngine(EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(100, time.Minute))), Describer: new(describing)})
	defer e.Close()
	r := &accesslog.Record{At: begin, Values: make([]accesslog.Value, 2)}
	add := func() {
		r.At += time.Millisecond
		if r.Line++; r.Line == 10 {
			r.Line = 0
		}
		if err := e.Add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for range 10_000 {
		add()
	}
	if n := testing.AllocsPerRun(1000, add); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// TestCondition holds conditions to a report.
func TestCondition(t *testing.T) {
	r := &Report{Counts: Counts{Requests: 1000, Denied: 10, Unlimited: 5, Near: 4}, Logs: accesslog.Stats{Lines: 1010, Broken: 10, NoAddress: 20}, Against: &Comparison{NewlyDenied: 3}, Totals: []RuleTotal{
		{Rule: "per.key", Requests: 800, Denied: 10, Near: 4, Logs: 40, DeniedLogs: 3},
		{Rule: "seen", Observed: true, Requests: 100, Denied: 50, Logs: 10, DeniedLogs: 5},
	}}
	for text, want := range map[string]bool{
		"denied>0.1%": true, "denied>1%": false, "denied>=1%": true, "denied > 9": true, "denied<10": false, "denied<=10": true,
		"rule:per.key.denied>1%": true, "rule:per.key.denied>1.25%": false, "rule:per.key.near>3": true, "near>0.3%": true, "near>0.4%": false, "rule:seen.denied>49": true,
		"subjects.denied>2": true, "subjects.denied>3": false, "rule:per.key.subjects.denied>7%": true,
		"newly_denied>0": true, "freed>0": false, "unlimited>=5": true, "unreadable>0.9%": true, "unreadable": true, "no_address>1.9%": true, "no_address": true, "span>=0": true, "span": false, "late>0": false, "requests<1001": true, "requests<1000": false,
	} {
		c, err := ParseCondition(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if figure, got := c.Met(r); got != want {
			t.Errorf("%s: got %v with %s", text, got, figure)
		}
	}
	for line := range strings.Lines(figuresHelp()) {
		name := strings.Fields(line)[0]
		if _, err := ParseCondition(name + ">0"); err != nil {
			t.Errorf("the help has %s: %v", name, err)
		}
		if _, err := ParseCondition("rule:x." + name + ">0"); (err == nil) != strings.HasSuffix(line, "; also of one rule\n") {
			t.Errorf("the help has %q: of one rule %v", line, err)
		}
	}
	for _, text := range []string{"", "denied", "denied>", "rule:x.requests<1", "denied>x", "denied>1e3", "denied>-1", "denied>NaN", "denide>1", "rule:x>1", "rule:.denied>1", "rule:x.freed>0", "denied=1", "denied>1%%", "denied>100.1%", ">1"} {
		if _, err := ParseCondition(text); err == nil || !strings.HasPrefix(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: got the error %v", text, err)
		}
	}
}
