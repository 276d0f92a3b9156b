package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

type resetCmd struct {
	party
	adminPorts
	Reason string
	Yes    bool
}

func reset(c *cli) *cobra.Command {
	var r resetCmd
	cmd := &cobra.Command{
		Use:   "reset" + partyUse + " --reason TEXT",
		Short: "Remove what a customer, an address or a key has used of its limits.",
		Long: "Remove what a customer, an address or a key has used of its limits.\n\n" +
			"The service writes the reset and its reason to its audit log. On a terminal, rls shows what is used and asks first. " +
			"It resets in all instances of --admin. With the store memory, name all instances there. With Redis, one instance removes the counters of its store and of the other scopes: name an instance of each region.",
		RunE: begin(func(args []string) error { return r.Run(c, args) }),
	}
	r.party.flags(cmd)
	cmd.Flags().StringVar(&r.Reason, "reason", "", "the `TEXT` for the audit log: why")
	cmd.Flags().BoolVar(&r.Yes, "yes", false, "do not ask for confirmation")
	r.adminPorts.flags(cmd, waitToReset)
	require(cmd, "reason")
	return cmd
}

// Run removes the logs of one party.
func (r *resetCmd) Run(c *cli, args []string) error {
	q, err := r.query(c, args)
	if err != nil {
		return err
	}
	if strings.TrimSpace(r.Reason) == "" {
		return usage("--reason: say why, for the audit log")
	}
	caller, err := r.caller(c)
	if err != nil {
		return err
	}
	if ok, err := r.confirmed(caller, q); err != nil || !ok {
		return err
	}
	body, err := json.Marshal(insight.ResetRequest{
		Subject: q.Subject, Address: q.Address, Digest: q.Digest, Descriptor: q.Descriptor, Rule: q.Rule, Reason: r.Reason,
	})
	if err != nil {
		return err
	}
	// One after another: of instances that share a store, the first one removes the logs.
	all := make([]answer[insight.Reset], len(caller.instances))
	for i, to := range caller.instances {
		out := new(insight.Reset)
		all[i] = answer[insight.Reset]{to, out, caller.call(context.Background(), to, http.MethodPost, "/v1/reset", body, out)}
	}
	if r.JSON {
		if err := printJSON(len(caller.instances) == 1, all); err != nil {
			return err
		}
	} else {
		done := answered(all)
		if removed := slices.DeleteFunc(slices.Clone(done), func(a answer[insight.Reset]) bool { return a.value.Logs == 0 }); len(removed) > 0 {
			done = removed
		} else if len(done) > 1 {
			done = done[:1]
		}
		for _, a := range done {
			writeReset(&stdout, a.value, page{widthOf(os.Stdout), coloursOf(os.Stdout), len(done) > 1, a.from.name})
		}
	}
	for _, a := range answered(all) {
		if a.value.Problem != "" && failed(all) == nil {
			return partial{fmt.Errorf("%s: %s", a.from.name, safetext.Text(a.value.Problem))}
		}
	}
	return failed(all)
}

// confirmed shows the operator on a terminal what is used, and asks. Elsewhere it says yes.
func (r *resetCmd) confirmed(caller *caller, q insight.Query) (bool, error) {
	if r.Yes || !term.IsTerminal(int(os.Stdin.Fd())) {
		return true, nil
	}
	before := shared(askAll(context.Background(), caller.instances, func(ctx context.Context, to instance) (*insight.Usage, error) {
		return caller.usage(ctx, to, q)
	}))
	if len(answered(before)) == 0 {
		return false, failed(before)
	}
	for _, a := range answered(before) {
		writeUsage(os.Stderr, &shownUsage{Usage: a.value}, page{widthOf(os.Stderr), coloursOf(os.Stderr), len(before) > 1, a.from.name})
	}
	what := "all of its limits"
	if q.Rule != "" {
		what = "the rule " + safetext.Text(q.Rule)
	}
	fmt.Fprintf(os.Stderr, "\nRemove what %s has used of %s? [y/N] ", nameOf(q), what)
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

func writeReset(w io.Writer, r *insight.Reset, p page) {
	where := ""
	if p.several {
		where = " in " + p.from
	}
	if r.Logs == 0 {
		fmt.Fprintf(w, "%s had used nothing%s, so nothing was removed.\n", nameOf(r.Query), where)
	} else {
		fmt.Fprintf(w, "%s %s of %s%s.\n", p.paint.Green("Removed"), words.Counted(uint64(r.Logs), "log"), p.paint.Bold(nameOf(r.Query)), where)
	}
	if len(r.Removed) == 0 {
		return
	}
	t := &terminal.Table{Width: p.width, Paint: p.paint, Columns: []terminal.Column{
		{Title: "RULE", Least: 12}, {Title: "OF", Least: 12, Drop: 1, Sparse: true}, {Title: "LIMIT", Right: true}, {Title: "HAD USED", Right: true},
	}}
	for i := range r.Removed {
		l := &r.Removed[i]
		limit := l.Per() // an old limit may be gone from the rules
		if l.Limit > 0 {
			limit = l.Amount()
		}
		t.Add(terminal.Text(l.Rule), terminal.Text(l.Values), terminal.Text(limit), terminal.Text(fmt.Sprint(l.Used)))
		if l.Scope != "" {
			t.Note("scope " + safetext.Text(l.Scope))
		}
	}
	t.Write(w)
	if n := r.Logs - len(r.Removed); n > 0 {
		fmt.Fprintf(w, "and %s more\n", words.Counted(uint64(n), "log"))
	}
}
