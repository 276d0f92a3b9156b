package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// short returns options for a short run. Its latencies do not matter. Missing, late and
// double charges are failures, as in a long run.
func short(only string) *options {
	o := defaults()
	o.callers, o.rate, o.rules, o.attempts = 12, 400, choices, 1
	o.only = regexp.MustCompile(only)
	o.warmUp, o.lasts, o.recovery = 300*time.Millisecond, 500*time.Millisecond, time.Second
	return &o
}

func TestFaults(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	servers.Redis(t) // skips the test if there is none
	m, err := measure(t.Context(), short("restart empty|replies dropped|SCRIPT FLUSH"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(m.results); n != 3 {
		t.Fatalf("got %d results, want 3", n)
	}
	for _, f := range m.failures() {
		t.Error(f)
	}
	var out bytes.Buffer
	m.write(&out)
	for _, r := range m.results {
		if r.ledger.exact == 0 || r.ledger.charges == 0 {
			t.Errorf("%s: the ledger is %+v, want calls that were charged", r.scenario, r.ledger)
		}
		if n := strings.Count(out.String(), "\n| "+r.scenario+" | "); n != 2+len(choices) {
			t.Errorf("%s has %d rows, want one in each of two tables and one for each rule:\n%s", r.scenario, n, &out)
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
		{"degraded and charged twice", []answer{degraded(102, 110)}, one(103, 104), h, ledger{charges: 2, double: 1, ghosts: ghosts{unnoticed: 1}}},
		{"in flight at the fault", []answer{degraded(95, 110)}, one(97), h, ledger{charges: 1, ghosts: ghosts{atFault: 1}}},
		{"before it was noticed", []answer{degraded(105, 125)}, one(107), h, ledger{charges: 1, ghosts: ghosts{unnoticed: 1}}},
		{"beyond", []answer{degraded(125, 135)}, one(127), h, ledger{charges: 1, ghosts: ghosts{beyond: 1}}},
		{"a stray", []answer{degraded(300, 320)}, one(301), h, ledger{charges: 1, ghosts: ghosts{strays: 1}}},
		{"an error that was charged", []answer{refused}, one(5), h, ledger{charges: 1, ghosts: ghosts{strays: 1}}},
		{"after the answer", []answer{degraded(130, 145)}, one(147), h, ledger{charges: 1, late: 1, ghosts: ghosts{beyond: 1}}},
		{"after an exact one", []answer{exact(0, 10), exact(50, 60)}, one(5, 20, 55), h, ledger{charges: 3, exact: 2, late: 1, double: 1}},
	} {
		got := compareLedger([][]answer{nil, tt.calls}, map[int][]charge{1: tt.charges}, tt.history)
		odd := len(got.odd) > 0
		if want := tt.want.missing+tt.want.lost+tt.want.late+tt.want.double+tt.want.ghosts.all() > 0; odd != want {
			t.Errorf("%s: odd calls are told: %t, want %t", tt.name, odd, want)
		}
		got.odd = nil
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(ledger{}, ghosts{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	good := func() *result {
		return &result{
			rules:   choices,
			answers: [][]answer{{{sent: at(0), received: at(1), degraded: true}, {sent: at(20), received: at(21)}}},
			history: history{fault: span{at(0), at(10)}},
			last:    at(1),
			before:  program.State{Goroutines: 10, Heap: 1e6},
			after:   program.State{Goroutines: 12, Heap: 2e6},
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
		{"no recovery", func(r *result) { r.answers[0][1].degraded = true }, "no exact answer"},
		{"a limit of the region", func(r *result) { r.region = [][]answer{{{sent: at(2), received: at(3), degraded: true}}} }, "only the store of the region"},
		{"no answer afterwards", func(r *result) { r.answers[0] = r.answers[0][:1] }, "no exact answer"},
		{"double", func(r *result) { r.ledger.double = 1 }, "no call explains"},
		{"late", func(r *result) { r.ledger.late = 1 }, "after their callers"},
		{"missing", func(r *result) { r.ledger.missing = 1 }, "not charged"},
		{"beyond", func(r *result) { r.ledger.ghosts.beyond = 1 }, "was not asked"},
		{"strays", func(r *result) { r.ledger.ghosts.strays = 9 }, ""},
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

func TestMostCharged(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []window.Entry
		want    int
	}{
		{"none", nil, 0},
		{"a window apart", []window.Entry{{At: 0, Cost: 2}, {At: 100, Cost: 3}}, 3},
		{"just within", []window.Entry{{At: 0, Cost: 2}, {At: 99, Cost: 3}}, 5},
		{"in the middle", []window.Entry{{At: 0, Cost: 1}, {At: 60, Cost: 1}, {At: 120, Cost: 1}, {At: 150, Cost: 1}, {At: 400, Cost: 2}}, 3},
	} {
		if got := mostCharged(tt.entries, 100); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestReshardedJudge proves that judge notices every failure of three services.
func TestReshardedJudge(t *testing.T) {
	log := func() *hotLog {
		return &hotLog{rule: "one", value: "hot-0", limit: window.Limit{Hits: 2, Window: 100 * time.Millisecond}, callers: []int{0, 1}, most: 2, readings: 5}
	}
	call := func(from float64) answer { return answer{sent: at(from), received: at(from + 1), allowed: true} }
	for _, tt := range []struct {
		name   string
		change func(r *resharded, answers [][]answer)
		ok     bool
	}{
		{"as it should be", func(*resharded, [][]answer) {}, true},
		{"a third call", func(_ *resharded, a [][]answer) { a[1] = append(a[1], call(60)) }, false},
		{"a third call that was degraded", func(_ *resharded, a [][]answer) {
			a[1] = append(a[1], call(60))
			a[1][1].degraded = true
		}, true},
		{"a log with too much", func(r *resharded, _ [][]answer) { r.logs[0].exceeded = 1 }, false},
		{"a limit that was never near", func(r *resharded, _ [][]answer) { r.logs[0].most = 0 }, false},
		{"a log that was never read", func(r *resharded, _ [][]answer) { r.logs[0].readings = 0 }, false},
		{"no migration", func(r *resharded, _ [][]answer) { r.slots = 0 }, false},
		{"an error", func(_ *resharded, a [][]answer) { a[0][0].code = codes.Unavailable }, false},
	} {
		r := &resharded{migrated: migrated{slots: 1}, begun: at(0), logs: []*hotLog{log()}}
		answers := [][]answer{{call(0), call(200)}, {call(50)}}
		tt.change(r, answers)
		r.judge(answers)
		if ok := len(r.failures) == 0; ok != tt.ok {
			t.Errorf("%s: got %q, want ok %t", tt.name, r.failures, tt.ok)
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

func TestQuantiles(t *testing.T) {
	var calls []answer
	for i := range 1000 {
		calls = append(calls, answer{sent: at(0), received: at(float64(1000 - i))})
	}
	calls = append(calls, answer{sent: at(5000), received: at(9000)}) // not in the span
	got := quantilesOf([][]answer{calls}, span{at(0), at(2000)}, nil)
	want := quantiles{1000, 500 * time.Millisecond, 990 * time.Millisecond, 999 * time.Millisecond, time.Second}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := quantilesOf(nil, span{}, nil); got != (quantiles{}) {
		t.Errorf("of nothing: got %+v", got)
	}
}

func TestCallerOf(t *testing.T) {
	for _, id := range []int{0, 7, 1234, 9999} {
		if got, err := callerOf(keyPrefix + "{" + callerName(id) + "}:chaos|allow:" + callerName(id) + ":3600000000"); err != nil || got != id {
			t.Errorf("caller %d: got %d, %v", id, got, err)
		}
	}
	for _, key := range []string{"", "chaos:other:3600000000", "chaos:caller-12", "chaos:caller-12x4:1"} {
		if _, err := callerOf(key); err == nil {
			t.Errorf("%q: got no error", key)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-callers", "0"},
		{"-callers", "10000"},
		{"-rate", "0"},
		{"-attempts", "0"},
		{"-rules", "allow,perhaps"},
		{"-only", "("},
		{"-rls", "no-such-rls"},
		{"-rls", os.Args[0], "-only", "no such fault"},
		{"more"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
}
