package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// followEvery is how often rls asks for new denials. Tests change it.
var followEvery = time.Second

// mostFollowed bounds the new denials of an instance at a time.
const mostFollowed = 1000

// follow prints the denials in all, and then new ones until ctx ends or an instance refuses.
func (d *denialsCmd) follow(ctx context.Context, c *caller, ask func(context.Context, instance, int) (*insight.Denials, error), all []answer[insight.Denials]) error {
	width := widthOf(os.Stdout)
	last, away := make(map[instance]uint64), make(map[instance]bool)
	say := func(from instance, text string) { fmt.Fprintf(os.Stderr, "rls: %s: %s\n", from.name, text) }
	for {
		for i := range all {
			a := &all[i]
			if refused := new(statusError); errors.As(a.err, &refused) && refused.code/100 == 4 && refused.code != http.StatusTooManyRequests {
				return fmt.Errorf("%s: %w", a.from.name, a.err)
			}
			switch was := away[a.from]; {
			case ctx.Err() != nil:
				return nil
			case a.err != nil && !was:
				say(a.from, a.err.Error()+"; rls tries again")
			case a.err == nil && was:
				say(a.from, "answers again; denials that it no longer keeps are missing")
			}
			if away[a.from] = a.err != nil; a.err == nil {
				_, begun := last[a.from]
				a.value.Denials = newer(a.value.Denials, last, a.from)
				if begun && len(a.value.Denials) == mostFollowed {
					say(a.from, "there are more new denials than rls asks for; older ones are left out")
				}
			}
		}
		for _, one := range merged(all, len(c.instances) > 1) {
			if err := d.printLine(&one, width); err != nil {
				return err // the reader of a pipe has gone
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		all = askAll(ctx, c.instances, func(ctx context.Context, to instance) (*insight.Denials, error) { return ask(ctx, to, mostFollowed) })
	}
}

// newer returns the denials after the last known one of an instance, and notes the newest. The ids
// of an instance that was started again begin at 1.
func newer(all []insight.Denial, last map[instance]uint64, from instance) []insight.Denial {
	newest := uint64(0)
	for i := range all {
		newest = max(newest, all[i].ID)
	}
	known := last[from]
	if newest > 0 && newest < known {
		known = 0
	}
	last[from] = max(known, newest)
	return slices.DeleteFunc(all, func(d insight.Denial) bool { return d.ID <= known })
}

// printLine prints a denial as one line: as JSON, or in words.
func (d *denialsCmd) printLine(one *seen, width int) error {
	if d.JSON {
		data, err := json.Marshal(one)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(&stdout, terminal.JSON(data))
		return err
	}
	passes := "passes in " + wait(one.Wait)
	if one.Never {
		passes = "never passes"
	}
	line := strings.Join([]string{clock(one.At), one.Rule, whoOf(&one.Denial), fmt.Sprintf("%d used of %s", one.Used, one.Amount()), passes}, terminal.Gap)
	for _, text := range []string{one.Tier, one.Route, noteOfDenial(&one.Denial), one.RequestID, one.Admin} {
		if text != "" {
			line += terminal.Gap + text
		}
	}
	if line = safetext.Text(line); width != terminal.Unbounded {
		line = terminal.Fit(line, width)
	}
	_, err := fmt.Fprintln(&stdout, line)
	return err
}
