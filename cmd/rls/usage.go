package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/redislog"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

// party has the flags that name the party of a usage or a reset.
type party struct {
	Address, Digest, Descriptor string
	KeyStdin                    bool
	Rule                        string
}

// partyUse is the usage line of a command about a party.
const partyUse = " [SUBJECT]"

func (p *party) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.Address, "address", "", "a client's `IP` address")
	f.StringVar(&p.Digest, "digest", "", "the `HEX` digits of the digest of an API key, as rls digest prints them")
	f.StringVar(&p.Descriptor, "descriptor", "", "a domain and the entries of a descriptor: `DOMAIN/ENTRIES`, such as edge/route=search")
	f.BoolVar(&p.KeyStdin, "key-stdin", false, "read an API key from standard input, and send only its digest")
	f.StringVar(&p.Rule, "rule", "", "only the limits of the rule with this `NAME`")
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), cobra.NoFileCompletions
}

// query returns the party that the arguments name.
func (p *party) query(c *cli, args []string) (insight.Query, error) {
	q := insight.Query{Address: p.Address, Digest: p.Digest, Descriptor: p.Descriptor, Rule: p.Rule}
	named := 0
	for _, given := range []bool{len(args) > 0, q.Address != "", q.Digest != "", q.Descriptor != "", p.KeyStdin} {
		if given {
			named++
		}
	}
	if named != 1 {
		return q, usage("name one of a subject, --address, --digest, --descriptor or --key-stdin")
	}
	if len(args) > 0 {
		q.Subject = args[0]
		if q.Subject == "" {
			return q, usage("the id of the subject is empty")
		}
	}
	if p.KeyStdin {
		s, err := c.load()
		if err != nil {
			return q, err
		}
		secrets := s.NewSecrets(s.Secrets.Key)
		text, err := keyStdin(secrets, "usage")
		if err != nil {
			return q, err
		}
		q.Digest = secrets.Digest(text)
	}
	return q, nil
}

// nameOf returns the party of a query as text.
func nameOf(q insight.Query) string {
	switch {
	case q.Subject != "":
		return safetext.Text(q.Subject)
	case q.Digest != "":
		return "the key with the digest " + safetext.Text(tier.ShortDigest(q.Digest)) + "…"
	case q.Address != "":
		return "the address " + safetext.Text(q.Address)
	default:
		return safetext.Text(q.Descriptor)
	}
}

type usageCmd struct {
	party
	adminPorts
	Refresh    bool
	Raw, Scope string
	Entries    int
}

func usageOf(c *cli) *cobra.Command {
	var u usageCmd
	cmd := &cobra.Command{
		Use:   "usage" + partyUse,
		Short: "Print the tier of a customer, an address or a key, what it has used of each of its limits, and when it may go on.",
		Long: "Print the tier of a customer, an address or a key, what it has used of each of its limits, and when it may go on.\n\n" +
			"It charges nothing. With the store memory, each instance counts for itself: name all of them in --admin. " +
			"With Redis they share their counts, and rls prints the first answer. If a store is unavailable, rls prints what the instances have counted meanwhile and what their local limits have left, says so, and exits with 3.",
		RunE: begin(func(args []string) error { return u.Run(c, args) }),
	}
	u.party.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&u.Refresh, "refresh", false, "first make the instances ask tiers.source again for this customer or key, or for all if none is named")
	f.StringVar(&u.Raw, "raw", "", "instead print the counter that the Redis of the settings has under this `KEY`, as redis-cli --scan prints it")
	f.StringVar(&u.Scope, "scope", settings.ScopeRegion, "with --raw: the scope of the log: region, or a name in store.scopes")
	f.IntVar(&u.Entries, "entries", 40, "with --raw: how many of the newest entries to print, or of the active requests that end last; -1 prints all")
	u.adminPorts.flags(cmd, waitToRead)
	return cmd
}

// Run prints the usage of one party.
func (u *usageCmd) Run(c *cli, args []string) error {
	unnamed := len(args) == 0 && u.party == party{}
	if u.Raw != "" {
		return u.raw(c, unnamed)
	}
	var q insight.Query
	var err error
	if !u.Refresh || !unnamed {
		if q, err = u.query(c, args); err != nil {
			return err
		}
	}
	caller, err := u.caller(c)
	if err != nil {
		return err
	}
	if u.Refresh {
		if err := caller.refresh(q, unnamed); err != nil || unnamed {
			return err
		}
	}
	all := shared(askAll(context.Background(), caller.instances, func(ctx context.Context, to instance) (*insight.Usage, error) {
		return caller.usage(ctx, to, q)
	}))
	shown := make([]answer[shownUsage], len(all))
	for i, a := range all {
		shown[i] = answer[shownUsage]{from: a.from, err: a.err}
		if a.err == nil {
			shown[i].value = &shownUsage{a.value, caller.lookup(a.from, q)}
		}
	}
	if u.JSON {
		if err := printJSON(len(caller.instances) == 1, shown); err != nil {
			return err
		}
	} else {
		for i, a := range answered(shown) {
			if i > 0 {
				fmt.Fprintln(&stdout)
			}
			writeUsage(&stdout, a.value, page{widthOf(os.Stdout), coloursOf(os.Stdout), len(caller.instances) > 1, a.from.name})
		}
	}
	return cmp.Or(failed(all), problemOf(all))
}

// raw prints a log that the Redis of the settings holds.
func (u *usageCmd) raw(c *cli, alone bool) error {
	if !alone || u.Refresh || u.JSON || len(u.Admin) > 0 {
		return usage("--raw reads the Redis of the settings, and takes only --scope and --entries")
	}
	s, err := c.load()
	if err != nil {
		return err
	}
	return redislog.Print(context.Background(), s.Settings, u.Scope, u.Raw, u.Entries, &stdout)
}

// A shownUsage is a usage, and the records of the party in the instance and in tiers.source. They are
// nil if there is no source to ask.
type shownUsage struct {
	*insight.Usage
	Tiers *admin.TierLookup `json:"tiers,omitempty"`
}

// lookup returns the records of a subject or a key. Nil: there are none, or they cannot be read.
func (c *caller) lookup(from instance, q insight.Query) *admin.TierLookup {
	values := url.Values{}
	switch {
	case q.Digest != "":
		values.Set("digest", q.Digest)
	case q.Subject != "":
		values.Set("id", q.Subject)
	default:
		return nil
	}
	out := new(admin.TierLookup)
	if c.call(context.Background(), from, http.MethodGet, "/v1/tiers/lookup?"+values.Encode(), nil, out) != nil {
		return nil
	}
	return out
}

// refresh makes all instances ask tiers.source again.
func (c *caller) refresh(q insight.Query, unnamed bool) error {
	change := make(map[string]any)
	switch {
	case unnamed:
		change["all"] = true
	case q.Digest != "":
		change["digest"] = q.Digest
	case q.Subject != "":
		change["subject"] = q.Subject
	default:
		return usage("--refresh: name a subject or a key; tiers.source has nothing else")
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	all := askAll(context.Background(), c.instances, func(ctx context.Context, to instance) (*struct{}, error) {
		return nil, c.call(ctx, to, http.MethodPost, "/v1/tiers/invalidate", body, new(struct{}))
	})
	if err := failed(all); err != nil || !unnamed {
		return err
	}
	_, err = fmt.Fprintln(&stdout, "The service asks its source of tiers again at the next request of each key and subject.")
	return err
}

// recordText says what a record has of a party.
func recordText(r *admin.TierRecord) string {
	switch {
	case r == nil:
		return "no record"
	case !r.Known:
		return "no such customer"
	}
	return tierText(&r.Customer)
}

// tiersText says what an instance holds of a party, and what the source says now. It is empty without
// a source, and for tiers that the instance has itself, as from a file.
func tiersText(l *admin.TierLookup) string {
	if l == nil || l.Held != nil && l.Source != nil && l.Held.AgeSeconds == 0 && recordText(l.Held) == recordText(l.Source) {
		return ""
	}
	text := "held here: " + recordText(l.Held)
	if l.Held != nil && l.Held.AgeSeconds > 0 {
		text += ", " + wait(l.Held.AgeSeconds) + " old"
	}
	if l.Error != "" {
		return text + " · the source does not answer: " + safetext.Text(l.Error)
	}
	return text + " · the source says: " + recordText(l.Source)
}

// problemOf returns a partial error if an answer is not complete.
func problemOf(all []answer[insight.Usage]) error {
	for _, a := range answered(all) {
		if a.value.Problem != "" {
			return partial{fmt.Errorf("%s: %s", a.from.name, safetext.Text(a.value.Problem))}
		}
	}
	return nil
}

// shared leaves one answer of the instances that share a store. Instances that count in their
// own memory keep theirs.
func shared(all []answer[insight.Usage]) []answer[insight.Usage] {
	seen := false
	return slices.DeleteFunc(all, func(a answer[insight.Usage]) bool {
		if a.err != nil || a.value.Source != sourceRedis {
			return false
		}
		again := seen
		seen = true
		return again
	})
}

// sourceRedis is [insight.Usage.Source] of a store that instances share.
const sourceRedis = "redis"

const (
	maxPages  = 1000
	maxLimits = 100_000
)

// usage reads all pages of a usage.
func (c *caller) usage(ctx context.Context, to instance, q insight.Query) (*insight.Usage, error) {
	var whole *insight.Usage
	for range maxPages {
		values := url.Values{}
		for name, value := range map[string]string{
			"subject": q.Subject, "address": q.Address, "digest": q.Digest, "descriptor": q.Descriptor, "rule": q.Rule, "cursor": q.Cursor,
		} {
			if value != "" {
				values.Set(name, value)
			}
		}
		u := new(insight.Usage)
		if err := c.call(ctx, to, http.MethodGet, "/v1/usage?"+values.Encode(), nil, u); err != nil {
			return nil, err
		}
		if whole == nil {
			whole = u
		} else {
			whole.Limits = append(whole.Limits, u.Limits...)
			whole.Problem = cmp.Or(whole.Problem, u.Problem)
		}
		if u.Next == "" || u.Next == q.Cursor {
			whole.Next = ""
			return whole, nil
		}
		if len(whole.Limits) > maxLimits {
			break
		}
		q.Cursor = u.Next
	}
	return nil, errors.New("the list of limits is too long; name a rule with --rule")
}

// page says how to write an answer.
type page struct {
	width   int
	paint   terminal.Colours
	several bool   // name the instance
	from    string // the instance
}

func writeUsage(w io.Writer, shown *shownUsage, p page) {
	u := shown.Usage
	head := []string{p.paint.Bold(nameOf(u.Query))}
	if u.Subject != "" && u.Subject != u.Query.Subject {
		head = append(head, "subject "+p.paint.Bold(safetext.Text(u.Subject)))
	}
	if !u.Known && u.Query.Subject != "" {
		head = append(head, p.paint.Yellow("not in the tiers"))
	}
	if u.Tier != "" {
		head = append(head, "tier "+safetext.Text(u.Tier))
	}
	if u.Disabled {
		head = append(head, p.paint.Red("disabled"))
	}
	head = append(head, countedIn(u, p))
	fmt.Fprintln(w, strings.Join(head, " · "))
	if text := tiersText(shown.Tiers); text != "" {
		fmt.Fprintln(w, terminal.Gap+text)
	}
	for _, name := range slices.Sorted(maps.Keys(u.Labels)) {
		fmt.Fprintf(w, "%s%s=%s\n", terminal.Gap, safetext.Text(name), safetext.Text(u.Labels[name]))
	}
	if u.Problem != "" {
		fmt.Fprintln(w, p.paint.Yellow("not complete: "+safetext.Text(u.Problem)))
	}
	for _, note := range u.Notes {
		fmt.Fprintln(w, p.paint.Yellow("note: "+safetext.Text(note)))
	}
	if len(u.Limits) == 0 {
		fmt.Fprintln(w, "No limit applies.")
		return
	}
	fmt.Fprintln(w)
	usageTable(u, p).Write(w)
	fmt.Fprintln(w)
	fmt.Fprintln(w, conclusion(u, p.paint))
}

// countedIn says where the numbers are from.
func countedIn(u *insight.Usage, p page) string {
	switch {
	case u.Source == "local":
		return "a store is away; counted by " + p.from + " meanwhile"
	case u.Source != sourceRedis:
		return "counted by " + p.from
	case p.several:
		return "counted in Redis, asked through " + p.from
	default:
		return "counted in Redis"
	}
}

// maxBuckets is the length of [insight.LimitUsage.History] at most.
const maxBuckets = 60

func usageTable(u *insight.Usage, p page) *terminal.Table {
	t := &terminal.Table{Width: p.width, Paint: p.paint, Columns: []terminal.Column{
		{Title: "RULE", Least: 12},
		{Title: "LIMIT", Right: true},
		{Title: "USED", Right: true},
		{Title: "", Want: 20, Least: 6, Drop: 2},
		{Title: "REMAINING", Right: true},
		{Title: "NEXT FREE", Right: true},
		{Title: "EMPTY", Right: true},
		{Title: "HISTORY", Want: maxBuckets, Least: 8, Drop: 1, First: true},
	}}
	for i := range u.Limits {
		l := &u.Limits[i]
		row := make([]terminal.Cell, len(t.Columns))
		row[0], row[1] = terminal.Text(l.Rule), terminal.Text(l.Amount())
		switch known := !l.Sent && !l.Chosen(); {
		case l.Unlimited:
			row[1] = terminal.Text("unlimited")
		default:
			row[2], row[4] = terminal.Text(fmt.Sprint(l.Used)), terminal.Text("-")
			row[5], row[6] = terminal.Text(wait(l.NextFree)), terminal.Text(wait(l.Empty))
			if slices.Max(append(l.History, 0)) > 0 {
				row[7].Draw = terminal.Spark(l.History)
			}
			if l.Sent {
				row[1] = terminal.Text(l.Per())
			}
			if known {
				share, paint := usedOf(l, p.paint)
				row[3] = terminal.Cell{Draw: terminal.Bar(share), Paint: paint}
				row[4] = terminal.Cell{Text: fmt.Sprint(l.Remaining), Paint: paint}
			}
		}
		t.Add(row...)
		t.Note(noteOf(l, u.Tier))
	}
	return t
}

// usedOf returns the share of a limit that is used, and its colour.
func usedOf(l *insight.LimitUsage, paint terminal.Colours) (share float64, colour func(string) string) {
	share = 1
	if l.Limit > 0 {
		share = float64(l.Used) / float64(l.Limit)
	}
	switch {
	case l.Remaining == 0:
		return share, paint.Red
	case share >= 0.8:
		return share, paint.Yellow
	}
	return share, paint.Green
}

// noteOf returns what else there is to know of a limit of a subject of a tier.
func noteOf(l *insight.LimitUsage, tier string) string {
	var parts []string
	if l.Values != "" {
		parts = append(parts, safetext.Text(l.Values))
	}
	if l.Scope != "" {
		parts = append(parts, "scope "+l.Scope)
	}
	switch {
	case l.Chosen():
		parts = append(parts, "the store is away: on_store_error "+safetext.Text(l.OnStoreError)+" decides")
	case l.Local:
		parts = append(parts, "share of this instance")
	}
	if l.Tier != "" && l.Tier != tier {
		parts = append(parts, "limit of tier "+safetext.Text(l.Tier))
	}
	if l.Override {
		parts = append(parts, "override of the subject")
	}
	switch {
	case l.Shadow && l.ObserveOverride:
		parts = append(parts, "shadow: only observed for this subject")
	case l.Shadow:
		parts = append(parts, "shadow: only observed")
	case l.ObserveOverride:
		parts = append(parts, "enforced for this subject")
	}
	if l.Sent {
		parts = append(parts, "each request brings the limit")
	}
	if l.NoLog {
		parts = append(parts, "no log yet, for any value of its other entries")
	}
	if len(l.ReplacedBy) > 0 {
		parts = append(parts, "not in requests that meet "+safetext.Text(strings.Join(l.ReplacedBy, ", ")))
	}
	return strings.Join(parts, " · ")
}

// maxNamed is the most columns of a rule's name in a sentence.
const maxNamed = 60

// conclusion says whether a request passes now.
func conclusion(u *insight.Usage, paint terminal.Colours) string {
	full := u.Denying()
	switch {
	case len(full) == 0 && u.ByAddress:
		return paint.Yellow("Ask with --address whether its requests pass: the address of the client counts for it.")
	case len(full) == 0:
		return paint.Green("No limit is used up.")
	}
	const most = 5
	var lines []string
	for i, l := range full {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(full)-most))
			break
		}
		used := fmt.Sprintf("%d used of %s", l.Used, l.Amount())
		if l.Local {
			used = "the share of this instance is used up, of " + l.Amount()
		}
		lines = append(lines, fmt.Sprintf("%s: %s. %s", terminal.Fit(safetext.Text(l.Rule), maxNamed), used, l.Passes()))
	}
	return paint.Red("Used up, so requests are denied:") + "\n" + terminal.Gap + strings.Join(lines, "\n"+terminal.Gap)
}

// wait returns a number of seconds to wait for a table.
func wait(s float64) string {
	if s <= 0 {
		return "-"
	}
	return words.Seconds(s)
}
