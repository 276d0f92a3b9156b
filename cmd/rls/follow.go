package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/terminal"
)

// followEvery is how often rls asks for new denials. Tests change it.
var followEvery = time.Second

// mostFollowed bounds the new denials of an instance at a time.
const mostFollowed = 1000

// follow prints the denials in all, and then new ones until ctx ends or an instance refuses.
func (d *denialsCmd) follow(ctx context.Context, c *caller, ask func(context.Context, instance, int) (*insight.Denials, error), all []answer[insight.Denials]) error {
	out := newFollower(d.JSON, len(c.instances) > 1)
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
		for _, one := range merged(all, out.page.several) {
			if err := out.print(&one); err != nil {
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

// A follower prints denials one by one, in columns of one width.
type follower struct {
	json  bool
	page  page
	begun bool
}

func newFollower(asJSON, several bool) *follower {
	return &follower{json: asJSON, page: page{width: widthOf(os.Stdout), paint: coloursOf(os.Stdout), several: several}}
}

// followed are the widths of columns in which most denials fit, by their titles.
var followed = map[string]int{"TIME": 8, "RULE": 16, "WHO": 18, "TIER": 8, "USED": 7, "LIMIT": 14, "WAIT": 7, "ROUTE": 14, "REQUEST": 36, "NOTE": 24, "INSTANCE": 20}

func (f *follower) print(d *seen) error {
	if f.json {
		return printLine(d)
	}
	t := denialTable(f.page)
	for i := range t.Columns {
		t.Columns[i].Want = followed[t.Columns[i].Title]
	}
	empty := t.Widths()
	addDenial(t, d, f.page)
	if !f.begun {
		f.begun = true
		t.WriteTitles(&stdout, empty)
	}
	for i, c := range t.Columns {
		if f.page.width == terminal.Unbounded || c.Least == 0 && empty[i] >= 0 {
			empty[i] = max(empty[i], terminal.Columns(t.Rows[0][i].Text)) // numbers are never cut
		}
	}
	t.WriteRow(&stdout, empty, t.Rows[0])
	return stdout.err
}
