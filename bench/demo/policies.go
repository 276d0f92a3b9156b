package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// The pattern: bursts around a full minute, and single requests after it. Each request of the
// picture stays in flight for stay.
const (
	patternLimit  = 5
	patternLength = 3 * time.Minute
	stay          = 20 * time.Second
)

// pattern returns when requests arrive, after a full hour less a minute.
func pattern() (at []time.Duration) {
	burst := func(start time.Duration, n int) {
		for i := range n {
			at = append(at, start+time.Duration(i)*3*time.Second)
		}
	}
	burst(40*time.Second, 7)  // shortly before the full minute, which is a full hour too
	burst(61*time.Second, 7)  // shortly after it
	burst(96*time.Second, 5)  // half a minute later
	burst(152*time.Second, 7) // in the next minute
	return at
}

// A contender is one policy with its limit, and what it has admitted.
type contender struct {
	name, note string
	limit      window.Limit
	calendar   *calendar.Calendar
	admitted   []bool
}

// contenders returns one limit for each policy, all about five requests a minute.
func contenders() ([]*contender, error) {
	hour, err := calendar.New(calendar.Spec{Unit: "hour"})
	if err != nil {
		return nil, err
	}
	per := func(p window.Policy) window.Limit {
		return window.Limit{Hits: patternLimit, Window: time.Minute, Policy: p}
	}
	bucket := per(window.TokenBucket)
	bucket.Rate = patternLimit
	return []*contender{
		{name: "sliding", note: "5 in any minute", limit: per(window.Sliding)},
		{name: "token_bucket", note: "5/m, burst 5", limit: bucket},
		{name: "fixed", note: "5 each minute", limit: per(window.Fixed)},
		{name: "calendar", note: "5 each hour", limit: window.Limit{Hits: patternLimit, Window: time.Hour, Policy: window.Calendar}, calendar: hour},
		{name: "sliding_counter", note: "about 5 a minute", limit: per(window.SlidingCounter)},
		{name: "in_flight", note: "5 at once, 20 s each", limit: per(window.InFlight)},
	}, nil
}

// decide asks a store for each request of the pattern.
func (c *contender) decide(ctx context.Context, arrivals []time.Duration) error {
	// A full hour, less the minute before it.
	begin := time.Date(2026, time.March, 2, 8, 59, 0, 0, time.UTC)
	now := begin
	store := memstore.New(memstore.Options{Clock: func() time.Duration { return time.Duration(now.UnixNano()) }})
	defer store.Close()
	type stream struct {
		id   window.StreamID
		ends time.Time
	}
	var open []stream
	for i, at := range arrivals {
		for len(open) > 0 && !open[0].ends.After(begin.Add(at)) {
			now = open[0].ends
			if _, err := store.End(ctx, window.Ending{Stream: open[0].id, Deny: time.Minute}); err != nil {
				return err
			}
			open = open[1:]
		}
		now = begin.Add(at)
		check := window.Check{Key: "demo", Limit: c.limit, Cost: 1}
		if c.calendar != nil {
			check.Period = c.calendar.Period(now)
		}
		if c.limit.Policy == window.InFlight {
			check.Stream = window.StreamID(i + 1)
		}
		var decisions [1]window.Decision
		if _, err := store.Take(ctx, window.MayWait, []window.Check{check}, decisions[:]); err != nil {
			return err
		}
		c.admitted = append(c.admitted, decisions[0].Allowed)
		if c.limit.Policy == window.InFlight && decisions[0].Allowed {
			open = append(open, stream{check.Stream, now.Add(stay)})
		}
	}
	return nil
}

const (
	policiesLeft, policiesRight = 190, 960
	policiesWidth               = 1060
	policiesTop, policiesStep   = 118, 54
)

// policiesDrawing lets every policy decide the pattern, and returns the answers as an SVG
// document.
func policiesDrawing(ctx context.Context) (string, error) {
	all, err := contenders()
	if err != nil {
		return "", err
	}
	arrivals := pattern()
	for _, c := range all {
		if err := c.decide(ctx, arrivals); err != nil {
			return "", err
		}
	}
	xOf := func(at time.Duration) float64 {
		return policiesLeft + float64(policiesRight-policiesLeft)*float64(at)/float64(patternLength)
	}
	bottom := policiesTop + len(all)*policiesStep - 20
	const title = "The same requests through every policy"
	desc := fmt.Sprintf("Of %d requests in %v", len(arrivals), patternLength)
	for _, c := range all {
		desc += fmt.Sprintf(", %s admits %d", c.name, c.count())
	}
	d := svg{figures.NewSVG(policiesWidth, bottom+60, title, desc+".")}
	d.Text(24, 36, "title", "start", title)
	d.Text(24, 58, "note", "start", fmt.Sprintf("%d requests; each stays %v in flight", len(arrivals), stay))
	for i, label := range []string{"08:59", "09:00", "09:01", "09:02"} {
		x := int(xOf(time.Duration(i) * time.Minute))
		d.Text(x, policiesTop-30, "note", "middle", label)
		d.Linef(`  <line class="second" x1="%d" y1="%d" x2="%d" y2="%d"/>`, x, policiesTop-22, x, bottom)
	}
	for row, c := range all {
		y := policiesTop + row*policiesStep
		d.Text(24, y, "name", "start", c.name)
		d.Text(24, y+18, "note", "start", c.note)
		d.Linef(`  <line class="track" x1="%d" y1="%d" x2="%d" y2="%d"/>`, policiesLeft, y, policiesRight, y)
		for i, at := range arrivals {
			d.mark(xOf(at), y, c.admitted[i])
		}
		d.Text(policiesRight+34, y+6, "count", "start", fmt.Sprint(c.count()))
	}
	d.mark(policiesLeft+7, bottom+30, true)
	d.Text(policiesLeft+22, bottom+35, "note", "start", "admitted")
	d.mark(policiesLeft+111, bottom+30, false)
	d.Text(policiesLeft+126, bottom+35, "note", "start", "denied")
	return d.End(), nil
}

func (c *contender) count() (n int) {
	for _, ok := range c.admitted {
		if ok {
			n++
		}
	}
	return n
}
