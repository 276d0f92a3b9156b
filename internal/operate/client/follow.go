package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
)

// maxFollowed bounds the new denials of an instance at a time.
const maxFollowed = 1000

// Follow shows the denials in all, and every interval those that are new, until ctx ends or an
// instance refuses. report gets what an operator should know about an instance. An error of show
// ends it.
func (c *Client) Follow(ctx context.Context, filter url.Values, all []merge.Answer[insight.Denials], interval time.Duration, show func(*insight.Denial) error, report func(from, text string)) error {
	last, silent := make(map[string]uint64), make(map[string]bool)
	for {
		for i := range all {
			a := &all[i]
			if refused := new(Refusal); errors.As(a.Err, &refused) && refused.Status/100 == 4 && refused.Status != http.StatusTooManyRequests {
				return fmt.Errorf("%s: %w", a.From, a.Err)
			}
			switch was := silent[a.From]; {
			case ctx.Err() != nil:
				return nil
			case a.Err != nil && !was:
				report(a.From, a.Err.Error()+"; rls tries again")
			case a.Err == nil && was:
				report(a.From, "answers again; denials that it no longer keeps are missing")
			}
			if silent[a.From] = a.Err != nil; a.Err == nil {
				_, begun := last[a.From]
				a.Value.Denials = newer(a.Value.Denials, last, a.From)
				if begun && len(a.Value.Denials) == maxFollowed {
					report(a.From, "there are more new denials than rls asks for; older ones are left out")
				}
			}
		}
		for _, d := range Merge(all) {
			if err := show(&d); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		_, all = c.Denials(ctx, filter, maxFollowed)
	}
}

// newer returns the denials after the last known one of an instance, and notes the newest. The ids
// of an instance that was started again begin at 1.
func newer(all []insight.Denial, last map[string]uint64, from string) []insight.Denial {
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
