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

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// TestSample: above its bound, a replay counts for a fair share of the callers. It never holds more
// than the bound, and what it says that it holds is true.
func TestSample(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	from := new(records)
	for i := range 30_000 {
		from.add(time.Duration(i)*time.Millisecond, "t"+strconv.Itoa(random.IntN(4000)))
	}
	o := EngineOptions{Rules: rulesOf(t, nil, limited("tenant", per(5, 10*time.Second))), Describer: &fields{keys: []string{"tenant"}}, WhatIf: func(string) bool { return true }}
	o.Against = o.Rules
	whole := replayed(t, o, from)
	if whole.LogsFraction != 1 {
		t.Fatalf("all logs have room, and the share is %g", whole.LogsFraction)
	}
	e := NewEngine(o)
	defer e.Close()
	e.sample.most = 400 << 10
	from.next = 0
	for {
		r, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err := e.Add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if e.sample.bytes > e.sample.most {
			t.Fatalf("the logs have %d bytes, and the bound is %d", e.sample.bytes, e.sample.most)
		}
	}
	checkHeld(t, e)
	r, err := e.Report(t.Context(), accesslog.Stats{})
	if err != nil {
		t.Fatal(err)
	}
	about := func(what string, got, want, off float64) {
		if math.Abs(got-want) > off {
			t.Errorf("%s: %g, want about %g", what, got, want)
		}
	}
	all, part := whole.Rules[0], r.Rules[0]
	if r.LogsFraction >= 1 || r.LogsFraction < 1.0/64 || part.WhatIf.Requests != all.WhatIf.Requests || part.Denied != all.Denied {
		t.Errorf("the share is %g, of %d requests, of which %d are denied", r.LogsFraction, part.WhatIf.Requests, part.Denied)
	}
	about("callers", float64(part.Logs), float64(all.Logs), 600)
	about("denied callers", float64(part.DeniedLogs), float64(all.DeniedLogs), 600)
	for i, row := range part.WhatIf.Rows {
		about("requests denied by "+strconv.FormatUint(row.Limit, 10), row.DeniedFraction, all.WhatIf.Rows[i].DeniedFraction, 0.05)
		about("callers denied by "+strconv.FormatUint(row.Limit, 10), float64(row.DeniedLogs), float64(all.WhatIf.Rows[i].DeniedLogs), 600)
	}
	for _, s := range part.WhatIf.Smallest {
		if s.Above != 0 {
			t.Errorf("an estimate counts as certain: %+v", s)
		}
	}
}

// TestSampleOfManyLimits: callers that come once, under many limits, are within the bound.
func TestSampleOfManyLimits(t *testing.T) {
	const limits, callers = 20, 3000
	var rs []rules.Rule
	var keys []string
	for i := range limits {
		keys = append(keys, "k"+strconv.Itoa(i))
		rs = append(rs, limited(keys[i], per(1, time.Second)))
	}
	from := new(records)
	for i := range callers {
		for range 3 {
			from.add(time.Duration(i)*time.Second, slices.Repeat([]string{"t" + strconv.Itoa(i)}, limits)...)
		}
	}
	e := NewEngine(EngineOptions{Rules: rulesOf(t, nil, rs...), Describer: &fields{keys: keys}, WhatIf: func(string) bool { return true }})
	defer e.Close()
	e.sample.most = 400 << 10
	if err := e.Run(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if held := checkHeld(t, e); held > e.sample.most || held < e.sample.most/8 {
		t.Errorf("%d bytes are held, with a bound of %d", held, e.sample.most)
	}
}

// checkHeld counts the bytes of the logs again.
func checkHeld(t *testing.T, e *Engine) (held int) {
	t.Helper()
	for _, s := range []*decider{e.now, e.was} {
		if s == nil {
			continue
		}
		held += useBytes * len(s.tally.logs)
		for _, p := range s.tally.parts {
			if p.sim == nil {
				continue
			}
			for _, l := range p.sim.logs {
				held += l.bytes()
			}
		}
	}
	if held != e.sample.bytes {
		t.Errorf("the logs have %d bytes, and %d are counted", held, e.sample.bytes)
	}
	return held
}
