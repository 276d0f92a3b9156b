package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

// denialPage is the content of the page of denials.
type denialPage struct {
	insight.Denials
	Rule, Subject, Route, Address, Request, Shadow, Since string
	Bursts                                                []burst
	// Unmatched is true if something was typed that no denial has, which is then not shown.
	Unmatched bool
	// Rules are the names that the form offers.
	Rules    []string
	Filtered bool
}

// denialsShown bounds the rows, and askedOfEach the denials of each other instance for them.
const denialsShown, askedOfEach = 200, 500

// A burst is a denial, and how many equal ones came before it, each at most burstGap before the next.
type burst struct {
	insight.Denial
	Count int
	First time.Time
}

// Lasts reports whether the group does not begin and end in the same second.
func (b burst) Lasts() bool { return b.At.Unix() != b.First.Unix() }

const burstGap = 10 * time.Second

// bursts groups denials, the newest first, and returns at most most groups.
func bursts(all []insight.Denial, most int) (groups []burst) {
	type equal struct {
		caller                  insight.Caller
		domain, rule, instance  string
		cost, limit             uint64
		shadow, degraded, never bool
	}
	last := make(map[equal]int) // the index of the group
	for _, d := range all {
		key := equal{d.Caller, d.Domain, d.Rule, d.Instance, d.Cost, d.Limit, d.Shadow, d.Degraded, d.Never}
		key.caller.RequestID = ""
		at, seen := last[key]
		if seen && groups[at].First.Sub(d.At) <= burstGap {
			groups[at].Count++
			groups[at].First = d.At
			groups[at].Stands += d.Stands
		} else if len(groups) < most {
			last[key] = len(groups)
			groups = append(groups, burst{d, 1, d.At})
		}
	}
	return groups
}

// maxOffered bounds the denials whose rules the form offers.
const maxOffered = 10_000

// spans are the choices of the time that denials cover.
var spans = map[string]time.Duration{"1m": time.Minute, "5m": 5 * time.Minute, "15m": 15 * time.Minute, "1h": time.Hour}

// filter reads a filter. Text that it does not recognize is not in it.
func (c *Console) filter(ctx context.Context, get func(string) string) (p denialPage) {
	read := func(field string, to *string, recognized func(typed string) string) {
		if v := get(field); v != "" {
			*to = recognized(v)
			p.Unmatched = p.Unmatched || *to == ""
		}
	}
	read("rule", &p.Rule, func(v string) string {
		if name := c.ruleName(v); name != "" || c.opts.Insight.IsKey(ctx, v) {
			return name
		}
		return c.denied(ctx, insight.Filter{Rule: v}).Rule // it may be no longer active
	})
	read("subject", &p.Subject, func(v string) string {
		if _, ok := c.opts.Insight.Find(ctx, insight.Query{Subject: v}, v); ok {
			return v
		}
		return ""
	})
	read("route", &p.Route, func(v string) string { return c.denied(ctx, insight.Filter{Route: v}).Route })
	read("address", &p.Address, func(v string) string { return identity.MaskAddress(insight.Address(v)) })
	read("request", &p.Request, func(v string) string { return c.denied(ctx, insight.Filter{Request: v}).RequestID })
	if v := get("shadow"); v == "only" || v == "no" {
		p.Shadow = v
	}
	if v := get("since"); spans[v] != 0 {
		p.Since = v
	}
	p.Filtered = p.Rule+p.Subject+p.Route+p.Address+p.Request+p.Shadow+p.Since != ""
	return p
}

func (p denialPage) address(page string) string {
	return address(page, "rule", p.Rule, "subject", p.Subject, "route", p.Route, "address", p.Address, "request", p.Request, "shadow", p.Shadow, "since", p.Since)
}

func (c *Console) denials(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	q := r.URL.Query()
	p := c.filter(ctx, q.Get)
	p.Unmatched = p.Unmatched || q.Has("unmatched")
	f := insight.Filter{Rule: p.Rule, Subject: p.Subject, Route: p.Route, Address: p.Address, Request: p.Request, Shadow: p.Shadow, Limit: maxOffered}
	p.Denials = c.ofAll(ctx, f, p.Since)
	p.Bursts = bursts(p.Denials.Denials, denialsShown)
	p.Rules = c.offered(p.Rule)
	c.show(w, r, http.StatusOK, view{Page: "denials", Title: "Denials", Refresh: 1, Instances: p.Instances, Data: p})
}

// ofAll returns the denials of all instances that a filter finds, since one of spans.
func (c *Console) ofAll(ctx context.Context, f insight.Filter, since string) insight.Denials {
	if since != "" {
		f.Since = c.opts.Now().Add(-spans[since])
	}
	path := address("/v1/denials", "rule", f.Rule, "subject", f.Subject, "route", f.Route, "address", f.Address, "request", f.Request, "shadow", f.Shadow, "since", since, "limit", strconv.Itoa(min(f.Limit, askedOfEach)))
	return peers.Ask(ctx, c.opts.Peers, path, c.opts.Insight.Denials(f), func(all []merge.Answer[insight.Denials]) insight.Denials {
		return merge.Denials(all, f.Limit)
	})
}

// denied returns the last denial that a filter finds, or none. It asks other instances only if this
// one has none.
func (c *Console) denied(ctx context.Context, f insight.Filter) (d insight.Denial) {
	f.Limit = 1
	all := c.opts.Insight.Denials(f).Denials
	if len(all) == 0 {
		all = c.ofAll(ctx, f, "").Denials
	}
	if len(all) > 0 {
		d = all[0]
	}
	return d
}

// offered returns the names of rules that the form of denials offers.
func (c *Console) offered(chosen string) []string {
	const most = 200
	names := []string{chosen}
	for _, d := range c.opts.Insight.Denials(insight.Filter{Limit: maxOffered}).Denials {
		names = append(names, d.Rule)
	}
	for _, r := range c.opts.Active().Rules {
		names = append(names, r.Name)
	}
	seen := map[string]bool{"": true}
	names = slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
	names = names[:min(len(names), most)]
	slices.Sort(names)
	return names
}

// filterDenials redirects to the page of the denials that a form chooses.
func (c *Console) filterDenials(w http.ResponseWriter, r *http.Request) {
	p := c.filter(r.Context(), r.PostForm.Get)
	target := p.address("/denials")
	if p.Unmatched {
		if p.Filtered {
			target += "&unmatched"
		} else {
			target += "?unmatched"
		}
	}
	seeOther(w, target)
}
