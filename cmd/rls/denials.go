package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

type denialsCmd struct {
	adminPorts
	Rule, Subject, Route, Address string
	Since, Shadow                 string
	Limit                         int
	Follow                        bool
}

func denials(c *cli) *cobra.Command {
	var d denialsCmd
	cmd := leaf("denials", "Print the last requests that were denied, and by which limit.", func() error { return d.Run(c) })
	cmd.Long = cmd.Short + "\n\n" +
		"Each instance keeps its own last denials. rls merges those of several instances by time. Above a rate, an instance keeps a part of them; ×10 then stands for ten.\n\n" +
		"With --follow, rls goes on printing new denials until it is interrupted. --json then prints one denial a line, with several addresses in --admin also the key admin."
	f := cmd.Flags()
	f.StringVar(&d.Rule, "rule", "", "only those of the rule with this `NAME`")
	f.StringVar(&d.Subject, "subject", "", "only those of the customer with this `ID`")
	f.StringVar(&d.Route, "route", "", "only those of this `ROUTE`")
	f.StringVar(&d.Address, "address", "", "only those of a client's `IP` address, which is masked to its network")
	f.StringVar(&d.Since, "since", "", "only those of this long ago or later, such as 10m, or since a `TIME` such as 2026-01-31T09:30:00Z")
	f.StringVar(&d.Shadow, "shadow", "", "`WHICH` denials in shadow mode: only (these alone), or no (none of them)")
	f.IntVar(&d.Limit, "limit", 50, "at most `N` of each instance")
	f.BoolVarP(&d.Follow, "follow", "f", false, "go on with new ones")
	d.flags(cmd, waitToRead)
	completeWords(cmd, "shadow", "only", "no")
	return cmd
}

// values returns the filter as the admin port wants it.
func (d *denialsCmd) values() (url.Values, error) {
	if d.Since != "" {
		length, err := time.ParseDuration(d.Since)
		if _, err2 := time.Parse(time.RFC3339, d.Since); (err != nil || length <= 0) && err2 != nil {
			return nil, usage("--since: %q is neither a duration such as 10m nor a time such as 2026-01-31T09:30:00Z", d.Since)
		}
	}
	if !slices.Contains([]string{"", "only", "no"}, d.Shadow) {
		return nil, usage("--shadow: expected only or no, not %q", d.Shadow)
	}
	if d.Limit < 1 {
		return nil, usage("--limit: expected a number above 0")
	}
	values := url.Values{}
	for name, value := range map[string]string{"rule": d.Rule, "subject": d.Subject, "route": d.Route, "address": d.Address, "since": d.Since, "shadow": d.Shadow} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values, nil
}

// A seen is a denial, and the instance that denied.
type seen struct {
	insight.Denial
	Admin string `json:"admin,omitempty"`
}

// Run prints the last denials, and with Follow all further ones.
func (d *denialsCmd) Run(c *cli) error {
	values, err := d.values()
	if err != nil {
		return err
	}
	caller, err := d.caller(c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ask := func(ctx context.Context, to instance, limit int) (*insight.Denials, error) {
		limited := maps.Clone(values)
		limited.Set("limit", strconv.Itoa(limit))
		out := new(insight.Denials)
		return out, caller.call(ctx, to, http.MethodGet, "/v1/denials?"+limited.Encode(), nil, out)
	}
	all := askAll(ctx, caller.instances, func(ctx context.Context, to instance) (*insight.Denials, error) { return ask(ctx, to, d.Limit) })
	several := len(caller.instances) > 1
	if d.Follow {
		if len(answered(all)) == 0 {
			return failed(all)
		}
		return d.follow(ctx, caller, ask, all)
	}
	if d.JSON {
		if err := printJSON(!several, all); err != nil {
			return err
		}
		return failed(all)
	}
	if len(answered(all)) > 0 {
		d.write(all, page{width: widthOf(os.Stdout), paint: coloursOf(os.Stdout), several: several})
	}
	return failed(all)
}

// merged returns the denials of all instances, the oldest first.
func merged(all []answer[insight.Denials], several bool) (out []seen) {
	for _, a := range answered(all) {
		admin := ""
		if several {
			admin = a.from.name
		}
		for _, d := range a.value.Denials {
			out = append(out, seen{d, admin})
		}
	}
	slices.SortStableFunc(out, func(a, b seen) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return out
}

// write writes denials as a table, the newest last, where the eye is.
func (d *denialsCmd) write(all []answer[insight.Denials], p page) {
	list := merged(all, p.several)
	if len(list) == 0 {
		fmt.Fprintln(&stdout, "No denials"+d.narrowed()+".")
	} else {
		t := denialTable(p)
		for i := range list {
			addDenial(t, &list[i], p)
		}
		t.Write(&stdout)
	}
	for _, a := range answered(all) {
		if sampled(a.value) {
			fmt.Fprintln(os.Stderr, p.paint.Yellow(fmt.Sprintf("%s records one of %d denials, because there are so many.", a.from.name, a.value.Sampled)))
		}
	}
}

func sampled(d *insight.Denials) bool { return d.Sampled > 1 }

func (d *denialsCmd) narrowed() string {
	if d.Rule+d.Subject+d.Route+d.Address+d.Since+d.Shadow == "" {
		return ""
	}
	return " that these flags choose"
}

func denialTable(p page) *terminal.Table {
	t := &terminal.Table{Width: p.width, Paint: p.paint, Columns: []terminal.Column{
		{Title: "TIME"},
		{Title: "RULE", Least: 10},
		{Title: "WHO", Least: 10},
		{Title: "TIER", Least: 8, Drop: 3, Sparse: true},
		{Title: "USED", Right: true},
		{Title: "LIMIT"},
		{Title: "WAIT", Right: true},
		{Title: "ROUTE", Least: 6, Drop: 4, Sparse: true},
		{Title: "REQUEST", Least: 8, Drop: 6, Sparse: true},
		{Title: "NOTE", Least: 12, Sparse: true},
	}}
	if p.several {
		t.Columns = append(t.Columns, terminal.Column{Title: "INSTANCE", Least: 8, Drop: 5})
	}
	return t
}

func addDenial(t *terminal.Table, d *seen, p page) {
	wait := terminal.Cell{Text: wait(d.Wait)}
	if d.Never {
		wait = terminal.Cell{Text: "never", Paint: p.paint.Red}
	}
	row := []terminal.Cell{
		terminal.Text(clock(d.At)), terminal.Text(d.Rule), terminal.Text(whoOf(&d.Denial)), terminal.Text(d.Tier), terminal.Text(fmt.Sprint(d.Used)),
		terminal.Text(d.Amount()),
		wait, terminal.Text(d.Route), terminal.Text(d.RequestID),
		{Text: noteOfDenial(&d.Denial), Paint: p.paint.Yellow},
	}
	if p.several {
		row = append(row, terminal.Text(d.Admin))
	}
	t.Add(row...)
}

// clock returns a time of the last day without its date.
func clock(at time.Time) string {
	at = at.Local()
	if since := time.Since(at); since > 12*time.Hour || since < -12*time.Hour {
		return at.Format("01-02 15:04:05")
	}
	return at.Format(time.TimeOnly)
}

// whoOf names the party of a denial as well as it is known.
func whoOf(d *insight.Denial) string {
	switch {
	case d.Subject != "":
		return d.Subject
	case d.Digest != "":
		return "key " + tier.ShortDigest(d.Digest)
	default:
		return cmp.Or(d.Address, "-")
	}
}

func noteOfDenial(d *insight.Denial) string {
	var parts []string
	add := func(is bool, text string) {
		if is {
			parts = append(parts, text)
		}
	}
	add(d.Shadow, "observed")
	add(d.Degraded, "without store")
	add(d.Of > 1, fmt.Sprintf("limit %d of %d", d.Which, d.Of))
	add(d.Cost > 1, fmt.Sprintf("cost %d", d.Cost))
	add(d.Stands > 1, fmt.Sprintf("×%d", d.Stands))
	return strings.Join(parts, ", ")
}
