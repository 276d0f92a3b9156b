package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

func TestFaults(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	servers.Redis(t) // skips the test if there is none
	// A short run. Its latencies do not matter. Missing, late and double charges are failures, as in
	// a long run.
	o := defaults()
	o.callers, o.rate, o.only = 12, 400, regexp.MustCompile("restart empty|replies dropped|SCRIPT FLUSH")
	o.warmUp, o.lasts, o.recovery = 300*time.Millisecond, 500*time.Millisecond, time.Second
	var m measured
	for range 5 { // if the machine stalls, rls answers no call by Redis
		var err error
		if m, err = measure(t.Context(), &o, io.Discard); err != nil {
			t.Fatal(err)
		}
		if n := len(m.results); n != 3 {
			t.Fatalf("got %d results, want 3", n)
		}
		for _, f := range m.failures() {
			t.Error(f)
		}
		if !slices.ContainsFunc(m.results, func(r *result) bool { return r.ledger.exact == 0 }) {
			break
		}
	}
	var out bytes.Buffer
	m.write(&out)
	for _, r := range m.results {
		if r.ledger.exact == 0 || r.ledger.charges == 0 {
			t.Errorf("%s: the ledger is %+v, want calls that were charged", r.name, r.ledger)
		}
		if n := strings.Count(out.String(), "\n| "+r.name+" | "); n != 2 {
			t.Errorf("%s has %d rows, want one in each of two tables:\n%s", r.name, n, &out)
		}
	}
	sameColumns(t, out.String())
}

// sameColumns checks that each row of a table has as many columns as its head.
func sameColumns(t *testing.T, text string) {
	t.Helper()
	columns := 0
	for line := range strings.Lines(text) {
		switch n := strings.Count(line, "|"); {
		case n == 0:
			columns = 0
		case columns == 0:
			columns = n
		case n != columns:
			t.Errorf("%d separators, want %d as in the head: %s", n, columns, line)
		}
	}
}

// at is a time in milliseconds since some instant.
func at(ms float64) time.Time {
	return time.UnixMicro(1_700_000_000_000_000 + int64(ms*1000))
}

func TestLedger(t *testing.T) {
	exact := func(from, to float64) answer { return answer{sent: at(from), received: at(to), allowed: true} }
	degraded := func(from, to float64) answer {
		a := exact(from, to)
		a.degraded = true
		return a
	}
	denied := exact(0, 10)
	denied.allowed = false
	refused := answer{sent: at(0), received: at(10), code: codes.Unavailable}
	one := func(ms ...float64) (made []charge) {
		for _, m := range ms {
			made = append(made, charge{at(m), 1})
		}
		return made
	}
	h := history{
		fault:   span{at(100), at(200)},
		moments: []span{{at(100), at(101)}},
		unasked: []span{{at(120), at(190)}},
	}
	losing := h
	losing.lostBefore = at(50)
	for _, tt := range []struct {
		name    string
		calls   []answer
		charges []charge
		history history
		want    ledger
	}{
		{"all is well", []answer{exact(0, 10), exact(20, 30)}, one(5, 25), h, ledger{charges: 2, exact: 2}},
		{"at both ends of a call", []answer{exact(0, 10), exact(10.5, 30)}, one(10, 10.5), h, ledger{charges: 2, exact: 2}},
		{"a clock that was read a little early", []answer{exact(0, 10), exact(20, 30)}, one(5, 19.5), h, ledger{charges: 2, exact: 2}},
		{"not charged", []answer{exact(0, 10), exact(20, 30)}, one(25), h, ledger{charges: 1, exact: 2, missing: 1}},
		{"lost", []answer{exact(0, 10), exact(60, 70)}, one(65), losing, ledger{charges: 1, exact: 2, lost: 1}},
		{"not lost but missing", []answer{exact(0, 10), exact(60, 70)}, one(5), losing, ledger{charges: 1, exact: 2, missing: 1}},
		{"twice in a call", []answer{exact(0, 10), exact(20, 30)}, one(5, 6, 25), h, ledger{charges: 3, exact: 2, double: 1}},
		{"twice at one instant", []answer{exact(0, 10)}, []charge{{at(5), 2}}, h, ledger{charges: 2, exact: 1, double: 1}},
		{"before all calls", []answer{exact(10, 20)}, one(5, 15), h, ledger{charges: 2, exact: 1, double: 1}},
		{"denied", []answer{denied}, nil, h, ledger{}},
		{"denied and charged", []answer{denied}, one(5), h, ledger{charges: 1, double: 1}},
		{"degraded", []answer{degraded(130, 140)}, nil, h, ledger{}},
		{"degraded and charged twice", []answer{degraded(102, 110)}, one(103, 104), h, ledger{charges: 2, double: 1, unnoticed: 1}},
		{"in flight at the fault", []answer{degraded(95, 110)}, one(97), h, ledger{charges: 1, atFault: 1}},
		{"before it was noticed", []answer{degraded(105, 125)}, one(107), h, ledger{charges: 1, unnoticed: 1}},
		{"beyond", []answer{degraded(125, 135)}, one(127), h, ledger{charges: 1, beyond: 1}},
		{"a stray", []answer{degraded(300, 320)}, one(301), h, ledger{charges: 1, strays: 1}},
		{"an error that was charged", []answer{refused}, one(5), h, ledger{charges: 1, strays: 1}},
		{"after the answer", []answer{degraded(130, 145)}, one(147), h, ledger{charges: 1, late: 1, beyond: 1}},
		{"after an exact one", []answer{exact(0, 10), exact(50, 60)}, one(5, 20, 55), h, ledger{charges: 3, exact: 2, late: 1, double: 1}},
	} {
		got := compareLedger([][]answer{nil, tt.calls}, map[int][]charge{1: tt.charges}, tt.history)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(ledger{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	good := func() *result {
		return &result{
			answers: [][]answer{{{sent: at(0), received: at(1), degraded: true, allowed: true}, {sent: at(20), received: at(21)}}},
			history: history{fault: span{at(0), at(10)}},
			before:  metrics.State{Goroutines: 10, Heap: 1e6},
			after:   metrics.State{Goroutines: 12, Heap: 2e6},
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*result)
		want   string // in the only failure; empty: none
	}{
		{"as it should be", func(*result) {}, ""},
		{"an error", func(r *result) { r.answers[0][0].code = codes.Unknown; r.answers[0][0].degraded = true }, "Unknown"},
		{"no fault", func(r *result) { r.answers[0][0].degraded = false }, "has not happened"},
		{"no recovery", func(r *result) { r.answers[0][1].degraded, r.answers[0][1].allowed = true, true }, "no exact answer"},
		{"denied under allow", func(r *result) { r.answers[0][0].allowed = false }, "on_store_error"},
		{"allowed under deny", func(r *result) { r.answers[0][0].caller = 1 }, "on_store_error"},
		{"no answer afterwards", func(r *result) { r.answers[0] = r.answers[0][:1] }, "no exact answer"},
		{"double", func(r *result) { r.ledger.double = 1 }, "no call explains"},
		{"late", func(r *result) { r.ledger.late = 1 }, "after their callers"},
		{"missing", func(r *result) { r.ledger.missing = 1 }, "not charged"},
		{"beyond", func(r *result) { r.ledger.beyond = 1 }, "was not asked"},
		{"strays", func(r *result) { r.ledger.strays = 9 }, ""},
		{"lost", func(r *result) { r.ledger.lost = 9 }, ""},
		{"goroutines", func(r *result) { r.after.Goroutines = 30 }, "30 goroutines"},
		{"memory", func(r *result) { r.after.Heap = 1e8 }, "100.0 MB of heap"},
	} {
		r := good()
		tt.change(r)
		r.judge(scenario{degrades: tt.name != "an error"})
		switch {
		case tt.want == "" && len(r.failures) > 0, tt.want != "" && (len(r.failures) != 1 || !strings.Contains(r.failures[0], tt.want)):
			t.Errorf("%s: got %q, want %q", tt.name, r.failures, tt.want)
		}
	}
}

func TestRecovered(t *testing.T) {
	for _, tt := range []struct {
		name      string
		last, end float64
		want      time.Duration
		known     bool
	}{
		{"before the fault ended", 90, 1000, 0, true},
		{"a while after", 150, 1000, 50 * time.Millisecond, true},
		{"until the end", 990, 1000, 890 * time.Millisecond, false},
	} {
		r := result{last: at(tt.last), end: at(tt.end), history: history{fault: span{at(0), at(100)}}}
		if got, known := r.recovered(); got != tt.want || known != tt.known {
			t.Errorf("%s: got %v %t, want %v %t", tt.name, got, known, tt.want, tt.known)
		}
	}
}

// TestSharedJudge proves that judge notices every failure of three services.
func TestSharedJudge(t *testing.T) {
	call := func(caller int, from float64, degraded bool) answer {
		return answer{caller: caller, service: caller, sent: at(from), received: at(from + 1), allowed: true, degraded: degraded}
	}
	for _, tt := range []struct {
		name   string
		change func(r *shared)
		want   string // in the only failure; empty: none
	}{
		{"as it should be", func(*shared) {}, ""},
		{"seven with Redis", func(r *shared) { r.answers[0] = append(r.answers[0], call(0, 2006, false)) }, "all services admitted 7"},
		{"a service has more than its quota", func(r *shared) { r.answers[1] = append(r.answers[1], call(1, 160, true)) }, "a service admitted without Redis 3"},
		{"more than its quota in the next window", func(r *shared) { r.answers[1] = append(r.answers[1], call(1, 960, true)) }, ""},
		{"an error", func(r *shared) { r.answers[0][0].code = codes.Unavailable }, "Unavailable"},
		{"a number that fell", func(r *shared) { r.instances = 1 }, "counted 1 instances"},
		{"a service that recovers late", func(r *shared) { r.answers[2] = r.answers[2][:2] }, "not exact again"},
		{"a limit that was never near", func(r *shared) { r.logs[0].limit.Hits, r.outage = 60, false }, "not tried"},
		{"no outage", func(r *shared) {
			for _, calls := range r.answers {
				calls[0].allowed, calls[1].allowed = false, false
			}
		}, "its quota was not tried"},
		{"less than its quota of an hour", func(r *shared) { r.logs[0].rule, r.answers[2][1].allowed = "hour", false }, "want 2 each"},
	} {
		r := &shared{outage: true, instances: services, fault: span{at(100), at(1500)}, answers: make([][]answer, services)}
		r.logs = []*hotLog{{rule: "one", limit: window.Limit{Hits: 6, Window: 500 * time.Millisecond}, callers: []int{0, 1, 2}}}
		for service := range services {
			r.answers[service] = []answer{call(service, 150, true), call(service, 151, true), call(service, 2000, false), call(service, 2001, false)}
		}
		tt.change(r)
		r.judge()
		switch {
		case tt.want == "" && len(r.failures) > 0, tt.want != "" && (len(r.failures) != 1 || !strings.Contains(r.failures[0], tt.want)):
			t.Errorf("%s: got %q, want %q", tt.name, r.failures, tt.want)
		}
	}
}

func TestUnasked(t *testing.T) {
	line := func(message, node string, ms float64) map[string]any {
		return map[string]any{"msg": message, "node": node, "ts": at(ms).Format(time.RFC3339Nano)}
	}
	got, err := unasked([]map[string]any{
		line("starting", "", 0),
		line(asksAgain, "a", 1), // it was asked before, as far as is known
		line(stopsAsking+" and more", "a", 10),
		line(stopsAsking, "b", 11),
		line(asksAgain, "a", 20),
		line(stopsAsking, "a", 30),
	}, at(99))
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string][]span{"a": {{at(10), at(20)}, {at(30), at(99)}}, "b": {{at(11), at(99)}}} {
		if len(got[node]) != len(want) {
			t.Fatalf("%s: got %v, want %v", node, got[node], want)
		}
		for i, s := range got[node] {
			if !s.from.Equal(want[i].from) || !s.to.Equal(want[i].to) {
				t.Errorf("%s: got %v, want %v", node, s, want[i])
			}
		}
	}
	if _, err := unasked([]map[string]any{{"msg": stopsAsking, "ts": "yesterday"}}, at(0)); err == nil {
		t.Error("a line without a time: got no error")
	}
}

func TestInstances(t *testing.T) {
	var lines []map[string]any
	for i, n := range []float64{3, 4, 1, 3} {
		lines = append(lines, map[string]any{"msg": countsOthers, "now": n, "ts": at(float64(10 * i)).Format(time.RFC3339Nano)})
	}
	lines = append(lines, map[string]any{"msg": "starting", "ts": "now"})
	for _, tt := range []struct {
		since float64
		least int
	}{{0, 1}, {11, 1}, {21, 1}, {31, 3}} {
		if now, least, err := instances(lines, at(tt.since)); now != 3 || least != tt.least || err != nil {
			t.Errorf("since %v: got %d, %d, %v, want 3, %d", tt.since, now, least, err, tt.least)
		}
	}
	if _, _, err := instances([]map[string]any{{"msg": countsOthers, "ts": "yesterday"}}, at(0)); err == nil {
		t.Error("a line without a time: got no error")
	}
}
