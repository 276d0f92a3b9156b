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

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/safetext"
	"github.com/slidegate/slidegate/internal/terminal"
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
		Short: "Let a subject, an address or a key begin anew: remove what it has used of its limits.",
		Long: "Let a subject, an address or a key begin anew: remove what it has used of its limits.\n\n" +
			"The service writes the reset and its reason to its audit log. On a terminal, rls shows what is used and asks first. " +
			"With the store memory, each instance counts for itself: name all of them in --admin. With Redis, one instance removes the logs for all instances that share it. " +
			"A limit that counts in a region has a log in each region: name an instance of each of them. The logs of further scopes are removed for all regions that share those.",
		RunE: begin(func(args []string) error { return r.Run(c, args) }),
	}
	r.party.flags(cmd)
	cmd.Flags().StringVar(&r.Reason, "reason", "", "the `TEXT` for the audit log: why")
	cmd.Flags().BoolVar(&r.Yes, "yes", false, "do not ask for confirmation")
	r.adminPorts.flags(cmd, waitToReset)
	completeParty(cmd, c, &r.adminPorts)
	if err := cmd.MarkFlagRequired("reason"); err != nil {
		panic(err) // the flag is defined above
	}
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
	// The usage says who shares a store, and what the reset will remove.
	usage := func(ctx context.Context, to instance) (*insight.Usage, error) { return caller.usage(ctx, to, q) }
	before := askAll(context.Background(), caller.instances, usage)
	if len(answered(before)) == 0 {
		return failed(before)
	}
	if ok, err := r.confirmed(q, shared(append([]answer[insight.Usage](nil), before...))); err != nil || !ok {
		return err
	}
	body, err := json.Marshal(insight.ResetRequest{
		Subject: q.Subject, Address: q.Address, Digest: q.Digest, Descriptor: q.Descriptor, Rule: q.Rule, Reason: r.Reason,
	})
	if err != nil {
		return err
	}
	all := resetAll(before, usage, func(to instance) (*insight.Reset, error) {
		out := new(insight.Reset)
		return out, caller.call(context.Background(), to, http.MethodPost, "/v1/reset", body, out)
	})
	if r.JSON {
		if err := printJSON(len(caller.instances) == 1, all); err != nil {
			return err
		}
	} else {
		for _, a := range answered(all) {
			ownMemory := slices.ContainsFunc(answered(before), func(b answer[insight.Usage]) bool { return b.from == a.from && b.value.Source != sourceRedis })
			named := len(answered(all)) > 1 || ownMemory && len(caller.instances) > 1
			writeReset(&stdout, a.value, page{widthOf(os.Stdout), coloursOf(os.Stdout), named, a.from.name})
		}
	}
	for _, a := range answered(all) {
		if a.value.Problem != "" && failed(all) == nil {
			return partial{fmt.Errorf("%s: %s", a.from.name, safetext.Text(a.value.Problem))}
		}
	}
	return failed(all)
}

// resetAll resets in each instance that counts in its own memory, and in the first one that
// answers of those that share a store. A later one that still has the use of before has another
// store, such as that of another region. An instance whose usage is not known is an error.
func resetAll(before []answer[insight.Usage], usage func(context.Context, instance) (*insight.Usage, error), do func(instance) (*insight.Reset, error)) (all []answer[insight.Reset]) {
	var sharedDone bool
	var sharedFailed []answer[insight.Reset]
	for _, b := range before {
		switch {
		case b.err != nil:
			all = append(all, answer[insight.Reset]{from: b.from, err: b.err})
		case b.value.Source != sourceRedis:
			value, err := do(b.from)
			all = append(all, answer[insight.Reset]{b.from, value, err})
		case !sharedDone:
			value, err := do(b.from)
			one := answer[insight.Reset]{b.from, value, err}
			if sharedDone = err == nil; !sharedDone {
				sharedFailed = append(sharedFailed, one)
				continue
			}
			all = append(all, one)
		default:
			now, err := usage(context.Background(), b.from)
			if err != nil {
				all = append(all, answer[insight.Reset]{from: b.from, err: err})
			} else if stillUsed(b.value, now) {
				value, err := do(b.from)
				all = append(all, answer[insight.Reset]{b.from, value, err})
			}
		}
	}
	if !sharedDone {
		all = append(all, sharedFailed...)
	}
	return all
}

// stillUsed reports whether a log has at least the use that it had before a reset.
func stillUsed(before, now *insight.Usage) bool {
	return slices.ContainsFunc(before.Limits, func(was insight.LimitUsage) bool {
		return was.Used > 0 && slices.ContainsFunc(now.Limits, func(is insight.LimitUsage) bool {
			return is.Log == was.Log && is.Policy == was.Policy && is.Window == was.Window && is.Used >= was.Used
		})
	})
}

// confirmed asks the operator on a terminal. Elsewhere it says yes.
func (r *resetCmd) confirmed(q insight.Query, before []answer[insight.Usage]) (bool, error) {
	if r.Yes || !term.IsTerminal(int(os.Stdin.Fd())) {
		return true, nil
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

// writeReset writes what was removed.
func writeReset(w io.Writer, r *insight.Reset, p page) {
	where := ""
	if p.several {
		where = " in " + p.from
	}
	if r.Logs == 0 {
		fmt.Fprintf(w, "%s had used nothing%s, so nothing was removed.\n", nameOf(r.Query), where)
	} else {
		fmt.Fprintf(w, "%s %s of %s%s.\n", p.paint.Green("Removed"), counted(r.Logs, "log"), p.paint.Bold(nameOf(r.Query)), where)
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
		fmt.Fprintf(w, "and %s more\n", counted(n, "log"))
	}
}
