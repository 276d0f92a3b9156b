package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/tables"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

type resetCmd struct {
	callerFlags
	adminPorts
	Reason string
	Yes    bool
}

func reset(c *cli) *cobra.Command {
	var r resetCmd
	cmd := newCommand("reset"+callerUse+" --reason TEXT", "Remove what a customer, an address or a key has used of its limits.",
		"On a terminal, rls shows what is used and asks first. "+
			"It resets in all instances of --admin. With the store memory, name all instances there. With Redis, one instance removes the counters of its store and of the other scopes: name an instance of each region.",
		func(args []string) error { return r.Run(c, args) })
	r.flagsWithDescriptor(cmd)
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why: a `TEXT` for the audit log")
	cmd.Flags().BoolVar(&r.Yes, "yes", false, "do not ask for confirmation")
	r.adminPorts.flags(cmd, waitToReset)
	require(cmd, "reason")
	return cmd
}

// Run removes the logs of one caller.
func (r *resetCmd) Run(c *cli, args []string) error {
	q, err := r.query(c, args)
	if err != nil {
		return err
	}
	if strings.TrimSpace(r.Reason) == "" {
		return usage("--reason: say why, for the audit log")
	}
	ask, err := r.client(c)
	if err != nil {
		return err
	}
	if ok, err := r.confirmed(ask, q); err != nil || !ok {
		return err
	}
	all := ask.Reset(context.Background(), insight.ResetRequest{Query: q, Reason: r.Reason})
	err = show(&r.adminPorts, all, func(done []merge.Answer[insight.Reset]) {
		if removed := slices.DeleteFunc(slices.Clone(done), func(a merge.Answer[insight.Reset]) bool { return a.Value.Logs == 0 }); len(removed) > 0 {
			done = removed
		} else if len(done) > 1 {
			done = done[:1]
		}
		for _, a := range done {
			tables.Reset(&stdout, a.Value, pageOf(os.Stdout, len(done) > 1, a.From))
		}
	})
	return cmp.Or(err, client.Incomplete(all, func(r *insight.Reset) string { return r.Problem }))
}

// confirmed shows the operator on a terminal what is used, and asks. Elsewhere it says yes.
func (r *resetCmd) confirmed(ask *client.Client, q insight.Query) (bool, error) {
	if r.Yes || !term.IsTerminal(int(os.Stdin.Fd())) {
		return true, nil
	}
	before := ask.Usage(context.Background(), q)
	answered := merge.Answered(before)
	if err := noCustomer(before); err != nil || len(answered) == 0 {
		return false, cmp.Or(err, client.Failed(before))
	}
	for _, a := range answered {
		tables.Usage(os.Stderr, a.Value, nil, pageOf(os.Stderr, len(before) > 1, a.From))
	}
	what := "all of its limits"
	if q.Rule != "" {
		what = "the rule " + safetext.Text(q.Rule)
	}
	fmt.Fprintf(os.Stderr, "\nRemove what %s has used of %s? [y/N] ", tables.Name(q), what)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the confirmation: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	fmt.Fprintln(os.Stderr, "Nothing was removed.")
	return false, nil
}
