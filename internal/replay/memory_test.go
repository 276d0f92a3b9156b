package replay

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
)

// TestMemoryOfWhatIf: above its bound, a what-if counts for a fair share of the callers. It never
// holds more than the bound and what one request adds, and what it says that it holds is true.
func TestMemoryOfWhatIf(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	from := new(records)
	for i := range 60_000 {
		from.add(time.Duration(i)*time.Millisecond, "t"+strconv.Itoa(random.IntN(4000)))
	}
	o := EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(5, 10*time.Second))), Describer: &fields{keys: []string{"tenant"}}, WhatIf: func(string) bool { return true }}
	all := replayed(t, o, from).Rules[0].WhatIf
	if all.LogsShare != 1 {
		t.Fatalf("all logs have room, and the share is %g", all.LogsShare)
	}
	e := NewEngine(o)
	defer e.Close()
	m := &e.whatIf.memory
	m.most = 400 << 10
	highest := 0
	from.next = 0
	for {
		r, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err := e.Add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		highest = max(highest, m.held)
	}
	checkHeld(t, m)
	if slack := 16 << 10; highest > m.most+slack {
		t.Errorf("the logs had %d bytes, and the bound is %d", highest, m.most)
	}
	r, err := e.Report(t.Context(), Logs{})
	if err != nil {
		t.Fatal(err)
	}
	part := r.Rules[0].WhatIf
	if part.LogsShare >= 1 || part.LogsShare < 1.0/64 || part.Requests != all.Requests {
		t.Errorf("the share is %g, of %d requests", part.LogsShare, part.Requests)
	}
	for i, row := range part.Rows {
		if want := all.Rows[i]; math.Abs(row.DeniedShare-want.DeniedShare) > 0.05 || math.Abs(float64(row.DeniedLogs)-float64(want.DeniedLogs)) > 400 {
			t.Errorf("limit %d: %g of the requests and %d logs, want about %g and %d", row.Limit, row.DeniedShare, row.DeniedLogs, want.DeniedShare, want.DeniedLogs)
		}
	}
	for _, s := range part.Smallest {
		if s.Above != 0 {
			t.Errorf("an estimate is told as certain: %+v", s)
		}
	}
}

// TestMemoryOfDeniedCallers: what a what-if remembers of denied callers is within the bound, also of
// many limits and of callers that come once.
func TestMemoryOfDeniedCallers(t *testing.T) {
	const limits, callers = 20, 3000
	var rules []policy.Rule
	var keys []string
	for i := range limits {
		keys = append(keys, "k"+strconv.Itoa(i))
		rules = append(rules, limited(keys[i], per(1, time.Second)))
	}
	from := new(records)
	for i := range callers {
		for range 3 {
			from.add(time.Duration(i)*time.Second, slices.Repeat([]string{"t" + strconv.Itoa(i)}, limits)...)
		}
	}
	e := NewEngine(EngineOptions{Rules: rulesOf(t, nil, rules...), Describer: &fields{keys: keys}, WhatIf: func(string) bool { return true }})
	defer e.Close()
	m := &e.whatIf.memory
	m.most = 400 << 10
	if err := e.Run(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for _, v := range m.all {
		bytes += deniedBytes * len(v.deniedLogs)
	}
	checkHeld(t, m)
	if bytes > m.most || bytes < m.most/8 {
		t.Errorf("%d bytes of denied callers, with a bound of %d", bytes, m.most)
	}
}

// checkHeld counts the bytes of the logs again.
func checkHeld(t *testing.T, m *memory) {
	t.Helper()
	held := 0
	for _, v := range m.all {
		held += deniedBytes * len(v.deniedLogs)
		for i := range v.groups {
			for _, l := range v.groups[i].logs {
				held += l.bytes()
			}
		}
	}
	if held != m.held {
		t.Errorf("the logs have %d bytes, and %d are counted", held, m.held)
	}
}
