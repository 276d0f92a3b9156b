package simulate

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// quiet is how long after the last call nothing is under way any more: leases have ended, and what is
// taken back has been.
const quiet = 2500 * time.Millisecond

// run runs a plan and checks the promises.
func run(t *testing.T, p *plan, m mutants) *world {
	var w *world
	// The product keeps timers and channels in pools, and those of one bubble are of no use in
	// another one. Two collections empty the pools.
	runtime.GC()
	runtime.GC()
	cryptotest.SetGlobalRandom(t, p.Seed) // names of instances
	synctest.Test(t, func(*testing.T) {
		w = newWorld(p, m)
		w.live()
	})
	w.judge()
	return w
}

// live runs a world until its end.
func (w *world) live() {
	for _, k := range w.keys {
		for i := range k.Callers {
			c := &caller{w: w, name: fmt.Sprintf("caller-%d-%d", k.Number, i), r: w.rand("caller", k.Number, i), key: k}
			w.running.Go(c.run)
		}
	}
	for _, k := range w.keys {
		if k.Resets && k.Callers > 0 {
			w.running.Go(func() { w.operate(k) })
		}
	}
	w.running.Go(w.promote)
	for _, f := range w.plan.Faults {
		w.running.Go(func() { w.inject(f) })
	}
	time.Sleep(w.plan.Length + quiet)
	w.mu.Lock()
	w.atRest()
	instances := slices.Clone(w.instances)
	w.mu.Unlock()
	for _, in := range instances {
		in.stop()
	}
	w.mu.Lock()
	w.over = true
	for p := range w.conns {
		_ = p.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// inject makes a fault happen.
func (w *world) inject(f fault) {
	// Some nanoseconds of its own, so that no two things happen at once.
	w.sleepUntil(f.At - time.Duration(f.Size)*time.Millisecond*time.Duration(b2i(f.Kind == faultFailover)))
	w.mu.Lock()
	if f.Kind == faultFailover {
		s := w.servers[f.Who]
		kept := followed{w.now(), s.data.clone()}
		w.mu.Unlock()
		w.sleepUntil(f.At)
		w.mu.Lock()
		w.note("%v", f)
		s.lose(kept.at, kept.values)
		s.setClock(time.Duration(w.number("clock", f.At)%200) * time.Millisecond)
		s.down = true
	} else {
		w.note("%v", f)
	}
	now := w.now()
	switch f.Kind {
	case faultCut:
		if in := w.instances[f.Size]; in != nil {
			in.cut[f.Who] = max(in.cut[f.Who], now+f.For)
		}
	case faultFreeze:
		w.servers[f.Who].frozen = max(w.servers[f.Who].frozen, now+f.For)
	case faultPause:
		if in := w.instances[f.Who]; in != nil {
			in.frozen = max(in.frozen, now+f.For)
		}
	case faultRestart:
		s := w.servers[f.Who]
		if f.Size == 0 {
			s.lose(0, make(map[string]value))
		} else {
			s.scripts = make(map[string]string)
			w.hangUp(func(p *pipe) bool { return p.server == s })
		}
		s.down = true
	case faultClock:
		w.servers[f.Who].setClock(w.servers[f.Who].offset + time.Duration(f.Size)*time.Millisecond)
	case faultMove:
		w.mu.Unlock()
		w.move(f)
		return
	case faultCrash:
		w.mu.Unlock()
		w.restart(f.Who, f.Size != 0, f.For)
		return
	}
	w.mu.Unlock()
	w.sleepUntil(f.At + f.For)
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.Kind == faultFailover || f.Kind == faultRestart {
		w.servers[f.Who].down = false
		w.note("%s is back", w.servers[f.Who].name)
	}
}

// freezes is how much later a server may run a call that has failed: it may be frozen, twice in a row.
const freezes = 4 * time.Second

// operate resets a key now and then, as an operator does.
func (w *world) operate(k *key) {
	r := w.rand("operator", k.Number)
	for {
		time.Sleep(time.Second + time.Duration(r.Int64N(int64(3*time.Second))))
		w.mu.Lock()
		in := w.instances[r.IntN(len(w.instances))]
		over, known, check := w.now() >= w.plan.Length, k.redis != "", k.check
		w.mu.Unlock()
		switch {
		case over:
			return
		case in == nil || !known:
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		begin := w.now()
		err := in.reset(ctx, check.Log())
		cancel()
		w.mu.Lock()
		w.note("the operator has reset %s at %s, which took %v: %v", k.name, in.name, w.now()-begin, err)
		last := reset{begin, w.now(), err != nil}
		if last.failed {
			last.at += freezes
		}
		k.resets = append(k.resets, last)
		w.mu.Unlock()
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *world) sleepUntil(at time.Duration) { time.Sleep(at - w.now()) }

// story returns the history as text, one line for each event.
func (w *world) story() string {
	lines := make([]event, 0, len(w.ops)+len(w.events))
	for _, o := range w.ops {
		lines = append(lines, event{o.begin, o.String()})
	}
	lines = append(lines, w.events...)
	slices.SortStableFunc(lines, func(a, b event) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%13v  %s\n", l.at, l.text)
	}
	return b.String()
}
