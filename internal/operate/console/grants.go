package console

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// grantsOf returns the grants of the subject of a page.
func (c *Console) grantsOf(p *subjectPage) (all []*grant.Grant) {
	for _, g := range c.opts.Insight.Grants() {
		if g.Subject != "" && g.Subject == p.Usage.Subject || g.Address != "" && g.Address == p.Query.Address || g.Digest != "" && g.Digest == p.Query.Digest {
			all = append(all, g)
		}
	}
	return all
}

// grant makes a grant for the subject of a form, or revokes one.
func (c *Console) grant(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	get := r.PostForm.Get
	q, ok := c.query(ctx, get)
	if !ok {
		c.unrecognized(w, r, get("id"))
		return
	}
	by := c.opts.Access.Caller(r).By()
	var err error
	switch id, rule := get("revoke"), get("rule"); {
	case id != "":
		_, err = c.opts.Insight.Revoke(ctx, id, by)
	case c.ruleName(rule) == "":
		err = &insight.InvalidError{Text: "no active rule has that name; the rules may have changed"}
	default:
		text := strings.TrimPrefix(strings.TrimSpace(get("amount")), "×")
		amount := grant.Amount{Limit: text}
		if factor, bad := strconv.ParseFloat(text, 64); bad == nil {
			amount = grant.Amount{Factor: factor}
		}
		_, err = c.opts.Insight.Grant(ctx, q.Grant(rule, amount, get("until"), strings.TrimSpace(get("reason")), by))
	}
	if err == nil {
		seeOther(w, subjectAddress(q))
		return
	}
	p, code := c.read(ctx, q, "", ""), http.StatusBadGateway
	p.Wrong = "The store does not answer. Try again when the overview shows no problem."
	if invalid := new(insight.InvalidError); errors.As(err, &invalid) || errors.Is(err, insight.ErrNoGrant) {
		p.Wrong, code = "The service refuses this: "+err.Error()+".", http.StatusUnprocessableEntity
	}
	c.showSubject(w, r, code, p)
}

// ruleNames returns the names of the rules of limits, each once.
func ruleNames(limits []limit) (names []string) {
	for _, l := range limits {
		if !slices.Contains(names, l.Rule) {
			names = append(names, l.Rule)
		}
	}
	return names
}
