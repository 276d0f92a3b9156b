package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/tables"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

type denialsCmd struct {
	adminPorts
	Rule, Subject, Route, Address, Request string
	Since, Shadow                          string
	Limit                                  int
	Follow, Local                          bool
}

func denials(c *cli) *cobra.Command {
	var d denialsCmd
	cmd := leaf("denials", "Print the last requests that were denied, and by which limit.",
		"Each instance keeps its own last denials. rls merges those of several instances by time. Above a rate, an instance keeps a part of them; ×10 then stands for ten.\n\n"+
			"With --follow, rls goes on printing new denials until it is interrupted. --json then prints one denial a line.", func() error { return d.Run(c) })
	f := cmd.Flags()
	f.StringVar(&d.Rule, "rule", "", "only those of the rule with this `NAME`")
	f.StringVar(&d.Subject, "subject", "", "only those of the customer with this `ID`")
	f.StringVar(&d.Route, "route", "", "only those of this `ROUTE`")
	f.StringVar(&d.Address, "address", "", "only those of a client's `IP` address, which is masked to its network")
	f.StringVar(&d.Request, "request", "", "only that with this `ID` in x-request-id")
	f.StringVar(&d.Since, "since", "", "only those of this long ago or later, such as 10m, or since a `TIME` such as 2026-01-31T09:30:00Z")
	f.IntVar(&d.Limit, "limit", 50, "at most `N` of each address in --admin")
	f.BoolVar(&d.Local, "local", false, "times of this machine, not UTC")
	f.BoolVarP(&d.Follow, "follow", "f", false, "go on with new ones")
	d.flags(cmd, waitToRead)
	wordVar(cmd, &d.Shadow, "shadow", "", "`WHICH` denials in shadow mode: only (these alone), or no (none of them)", "only", "no")
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
	if d.Limit < 1 {
		return nil, usage("--limit: expected a number above 0")
	}
	return client.Values(map[string]string{"rule": d.Rule, "subject": d.Subject, "route": d.Route, "address": d.Address, "request": d.Request, "since": d.Since, "shadow": d.Shadow}), nil
}

// Run prints the last denials, and with Follow all further ones.
func (d *denialsCmd) Run(c *cli) error {
	values, err := d.values()
	if err != nil {
		return err
	}
	ask, err := d.client(c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	whole, all := ask.Denials(ctx, values, d.Limit)
	answered := merge.Answered(all)
	if len(whole) == 1 && whole[0].Err == nil {
		noteAlone(ask, whole[0].Value.Instances)
	}
	switch {
	case d.Follow && len(answered) > 0:
		return ask.Follow(ctx, values, all, followEvery, d.print, func(from, text string) { fmt.Fprintf(os.Stderr, "rls: %s: %s\n", from, text) })
	case !d.Follow:
		err = show(&d.adminPorts, whole, func([]merge.Answer[insight.Denials]) { d.write(whole, all, values) })
	}
	return cmp.Or(err, client.Failed(all))
}

// followEvery is how often rls asks for new denials. Tests change it.
var followEvery = time.Second

// print prints a denial as one line: as JSON, or in words.
func (d *denialsCmd) print(one *insight.Denial) error {
	if !d.JSON {
		_, err := fmt.Fprintln(&stdout, tables.DenialLine(one, d.page(false)))
		return err
	}
	data, err := json.Marshal(one)
	if err == nil {
		_, err = fmt.Fprintln(&stdout, terminal.JSON(data))
	}
	return err
}

// page says how to write denials.
func (d *denialsCmd) page(several bool) tables.Page {
	p := pageOf(os.Stdout, several, "")
	p.Local = d.Local
	return p
}

// write writes denials as a table, the newest last, where the eye is.
func (d *denialsCmd) write(whole, all []merge.Answer[insight.Denials], filter url.Values) {
	if list := client.Merge(all); len(list) > 0 {
		tables.Denials(&stdout, list, d.page(len(all) > 1))
	} else if len(filter) == 0 {
		fmt.Fprintln(&stdout, "No denials.")
	} else {
		fmt.Fprintln(&stdout, "No denials that these flags choose.")
	}
	for _, a := range merge.Answered(whole) {
		if a.Value.Sampled > 1 {
			fmt.Fprintln(os.Stderr, coloursOf(os.Stdout).Yellow(fmt.Sprintf("%s records one of %d denials, because there are so many.", a.From, a.Value.Sampled)))
		}
	}
}
