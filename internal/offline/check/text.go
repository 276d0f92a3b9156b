package check

import (
	"fmt"
	"io"
	"strings"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/operate/tables"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// WriteText writes what a valid result has: what the rules mean and cost, and the customer.
func (r *Result) WriteText(w io.Writer, paint terminal.Colours) {
	what := "the built-in example"
	switch {
	case len(r.Paths) > 0:
		what = strings.Join(r.Paths, ", ")
	case r.Server != "":
		what = fmt.Sprintf("settings and tiers (the rules come from the xDS server %s, which validate does not ask)", r.Server)
	}
	fmt.Fprintf(w, "%s: %s\n", safetext.Text(what), paint.Green("valid"))
	if r.Tests > 0 {
		fmt.Fprintf(w, "tests: %d\n", r.Tests)
	}
	if r.Rules > 0 {
		fmt.Fprintf(w, "rules without on_store_error: %s (store.on_error)\n", r.Summary.OnStoreError)
	}
	if r.Summary != nil {
		writeReview(w, paint, r.Summary)
	}
	if r.Customer != nil {
		tables.Customer(w, r.Customer, paint)
	}
}

func writeReview(w io.Writer, paint terminal.Colours, review *explain.Review) {
	for _, d := range review.Domains {
		fmt.Fprintf(w, "\ndomain %s: %s\n", paint.Bold(safetext.Text(d.Name)), words.Counted(uint64(len(d.Rules)), "rule"))
		for i := range d.Rules {
			writeRule(w, paint, &d.Rules[i])
		}
	}
	if t := review.TiersWithoutRule; len(t) > 0 {
		fmt.Fprintf(w, "\ntiers that no by_tier names: %s\n", safetext.Text(strings.Join(t, ", ")))
	}
	if t := review.TiersWithoutSubject; len(t) > 0 {
		fmt.Fprintf(w, "\ntiers that no subject has: %s\n", safetext.Text(strings.Join(t, ", ")))
	}
}

func writeRule(w io.Writer, paint terminal.Colours, r *explain.RuleReview) {
	fmt.Fprintf(w, "  %s  %s", paint.Bold(safetext.Text(r.Name)), safetext.Text(r.Path))
	if r.Location != "" {
		fmt.Fprintf(w, "  (%s)", safetext.Text(r.Location))
	}
	fmt.Fprintln(w)
	if r.Unreachable != "" {
		fmt.Fprintf(w, "    %s %s\n", paint.Yellow("UNREACHABLE:"), safetext.Text(r.Unreachable))
	}
	if len(r.Traits) > 0 {
		fmt.Fprintf(w, "    %s\n", safetext.Text(strings.Join(r.Traits, ", ")))
	}
	if len(r.Terms) == 0 {
		fmt.Fprintf(w, "    limits nothing\n")
	}
	for i := range r.Terms {
		t := &r.Terms[i]
		who := ""
		if t.Tier != "" {
			who = safetext.Text(t.Tier) + ": "
		} else if len(r.Terms) > 1 {
			who = "others: "
		}
		if t.Unlimited {
			fmt.Fprintf(w, "    %sunlimited\n", who)
		}
		for _, l := range t.Limits {
			fmt.Fprintf(w, "    %s%s, %s\n", who, l.Limit, cost(&l))
			if l.Words != "" {
				fmt.Fprintf(w, "      %s\n", safetext.Text(l.Words))
			}
			if l.Lease != "" {
				fmt.Fprintf(w, "      lease %s, where a key is asked for often\n", l.Lease)
			}
			if l.Pointless != "" {
				fmt.Fprintf(w, "      %s %s\n", paint.Yellow("POINTLESS:"), l.Pointless)
			}
		}
		if t.Observe > 0 {
			fmt.Fprintf(w, "      only observed for %s of the subjects\n", words.Percent(t.Observe))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "    note: %s\n", safetext.Text(note))
	}
}

// cost returns how exact a limit is, and how much memory a key takes.
func cost(l *explain.LimitReview) string {
	precision := "exact, "
	switch {
	case l.Policy != window.Sliding.String():
		precision = ""
	case l.Precision != "":
		precision = "times rounded up to " + l.Precision + ", "
	}
	if l.Bytes == 0 {
		return precision + "stores nothing"
	}
	upTo := "up to "
	switch l.Policy {
	case window.Sliding.String(), window.InFlight.String():
	default:
		upTo = "" // a log has one size
	}
	return fmt.Sprintf("%s%s%s a key", precision, upTo, words.Bytes(int64(l.Bytes)))
}
